// Lines about caches, empty rows, grouped heads, windows and the rest of a call. See lines.mjs.
export const CALLS = [
  {
    id: 'cache/steps',
    line: 'cache: decoding token by token with a cache equals one full pass with a causal mask (1e-5) [FL]',
  },
  {
    id: 'cache/size',
    line: 'cache: cache is allocated for the full length with the key/value head count, and its index counts the tokens written [F]',
  },
  {
    id: 'cache/present',
    line: 'cache: present = past followed by new keys/values, after projection bias (and after rotation) [R, O]',
  },
  {
    id: 'cache/halves',
    line: 'cache: past_key without past_value, or the reverse → refused; valid lengths together with past tensors → refused [O]',
  },
  {
    id: 'cache/lengths',
    line: 'cache: a valid length below 0 or above the buffer → refused, message names entry and value; 0 is allowed and the full buffer is allowed [R]',
  },
  {
    id: 'empty-rows/zero',
    line: 'empty rows: ONNX: a row without allowed key has output 0 and, in mode 3, weights 0; never NaN, whatever the raw scores hold [O]',
  },
  {
    id: 'empty-rows/torch-sdpa',
    line: 'empty rows: torch SDPA 2.5 and later: output 0 and gradient of the query 0, no NaN in any gradient [TT]',
    later: 'the gradients (Learning)',
  },
  {
    id: 'empty-rows/torch-module',
    line: 'empty rows: torch.nn.MultiheadAttention 1.13: NaN on every path (weights or not, training or fast inference); its own fast-path test leaves such rows out of the comparison [T, torch observed]',
    differs: "zero unless emptyRows: 'nan' asks for PyTorch's NaN: one such row would poison all that follows",
  },
  {
    id: 'empty-rows/huge-value',
    line: 'empty rows: a huge value behind a hidden key (1000 in the tests) must not leak, also with softcap [O, R]',
  },
  { id: 'gqa/multiple', line: 'gqa: query heads must be a multiple of key/value heads, otherwise refused [F]' },
  {
    id: 'gqa/repeat',
    line: 'gqa: query head h uses key/value head h / group (repeat each, not tile); equals plain attention on repeated heads, forward and gradients (sum over the group) [F, J, O]',
    later: 'the gradients (Learning)',
  },
  {
    id: 'gqa/one-head',
    line: 'gqa: one key/value head (multi-query) works; scores still have one slice per query head [KG]',
  },
  {
    id: 'window/keras',
    line: 'window: Keras sliding_window=w, causal: i-w < j <= i; not causal: |i-j| < w; weights outside are exactly 0 [K, KG]',
  },
  {
    id: 'window/units',
    line: 'window: ONNX/JAX bounds count neighbours, left=l keeps l+1 keys; onnxruntime local_window_size=w and Keras keep w keys [O, J, R, K]',
  },
  {
    id: 'window/composes',
    line: 'window: window works with and without the causal flag, with masks of rank 1 to 4 and with both cache kinds [O]',
    differs:
      'masks of rank 1, and of rank 3 in a batched call, are refused; a mask with a rolling cache, too, since it would have to index what was dropped',
  },
  {
    id: 'softcap/before-masks',
    line: 'softcap: applied to scaled scores before mask and bias, so hidden keys stay hidden [O, R]',
  },
  {
    id: 'rotary/positions',
    line: 'rotary: position ids outside the table or negative → refused [R]',
    differs: 'a negative position is refused of a table only: without a table it is an angle like any other',
  },
  {
    id: 'dropout/off',
    line: 'dropout: rate 0 or evaluation mode → deterministic, same as no dropout; training with rate > 0 → output and weights change, shape stays [FL, KA]',
    notForward: 'it is about dropout, which comes with Learning',
  },
  {
    id: 'dtype/result',
    line: "dtype: result has the input's type; softmax may be asked to run in float32 [FL, O]",
    differs: 'float32 in and out; other arrays are refused with the way to convert them, never converted in silence',
  },
  {
    id: 'saving/configuration',
    line: 'saving: configuration round trip restores every argument (including the window size and key_dim) [K, KG]',
    notForward: 'it is about saving a configuration, which calls no attention',
  },
  {
    id: 'extra-keys/bias-and-zero',
    line: 'extra keys: add_bias_kv appends one learned key/value, add_zero_attn then one zero key/value; masks grow by allowed columns [T]',
  },
];
