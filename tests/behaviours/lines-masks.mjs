// Lines about masks and causality. See lines.mjs.
export const MASKS = [
  {
    id: 'masks/ranks',
    line: 'masks: [T,S], [B,T,S] and [B,H,T,S] masks of the same content → same output [K]',
    differs:
      'a rank 3 mask of a batched call is refused: it could be [B, L, S], [H, L, S] or [B*H, L, S]; [B, 1, L, S] says which',
  },
  { id: 'masks/broadcast', line: 'masks: mask dimensions of size 1 broadcast [K, O]' },
  {
    id: 'masks/batch-times-heads',
    line: 'masks: 3-D attention mask of the torch module is [B*H,L,S], head fastest; equals running each batch entry with its own 2-D mask [T]',
    differs: 'written [B, H, L, S], the same numbers in the same order: [B*H, L, S] cannot be told from [B, L, S]',
  },
  {
    id: 'masks/rank-refused',
    line: 'masks: 1-D attention mask, or a 3-D one whose first size is not B*H (unbatched: H) → refused with the expected shape in the message [T]',
  },
  {
    id: 'masks/padding-shape',
    line: 'masks: key_padding_mask of wrong rank (1-D when batched, 2-D when not) or wrong length → refused [T, torch observed]',
  },
  {
    id: 'masks/integers',
    line: 'masks: masks of integer type (int64; uint8 for padding) → refused by torch, only bool and float are masks [TT, torch observed]',
    differs:
      'booleans are masks, and so are bytes of 0 and 1, since no typed array holds booleans; other bytes, wider integers and Arrays of numbers are refused',
  },
  {
    id: 'masks/union',
    line: 'masks: attention mask and padding mask together → union of what is hidden; same result as one merged mask [T, TT, K]',
  },
  {
    id: 'masks/query-and-value',
    line: 'masks: padding on value and query (query_mask, value_mask) and the causal flag combine by AND into one [B,T,S] mask [K, KG, KA]',
  },
  {
    id: 'masks/of-query',
    line: "masks: the query's mask is handed on with the output unchanged, and inside it hides the whole row (ANDed with the others) [K, KG]",
    differs:
      'it hides the rows, but results carry no masks: a function hands on what it computed, and the caller has the mask',
  },
  { id: 'masks/float', line: 'masks: float mask with 0 / -inf gives the same as the bool mask [T, TT]' },
  {
    id: 'masks/bias',
    line: 'masks: an additive bias may be combined with a bool mask or with the causal flag, padding lengths with either [J, KN]',
  },
  {
    id: 'causal/start',
    line: 'causal: is_causal equals passing a lower-triangular mask aligned top-left, also when L differs from S [TT, F, K]',
  },
  {
    id: 'causal/end',
    line: 'causal: the bottom-right variant is a separate choice; for L > S it leaves rows without keys [TT]',
  },
  {
    id: 'causal/with-mask',
    line: 'causal: torch SDPA refuses is_causal together with an explicit mask; Keras, Flax, ONNX and JAX combine them [TT, K, F, O, J]',
    differs: 'they combine, as in Keras, Flax, ONNX and JAX: all masks compose',
  },
  {
    id: 'causal/with-padding',
    line: 'causal: causal plus padding in one call equals the AND of both given as one mask, in self- and cross-attention [F]',
  },
  {
    id: 'causal/field',
    line: 'causal: receptive field: output at position t has a nonzero gradient to inputs 0..t and exactly none to later ones [FL]',
    later: 'the gradients (Learning); until then a changed input shows the same field',
  },
  { id: 'causal/internal-cache', line: 'causal: with an internal cache of P tokens, query i sees keys 0..P+i [O, R]' },
  {
    id: 'causal/external-cache',
    line: 'causal: with an external cache and per-entry valid length n, query i sits at n-L+i; a negative start leaves the first rows empty (0) [O]',
  },
];
