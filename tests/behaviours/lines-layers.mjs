// Lines about making a layer, its shapes and its weights. See lines.mjs.
export const LAYERS = [
  {
    id: 'construct/divisible',
    line: 'construct: embed_dim not divisible by num_heads → refused at construction with a message saying so [torch, observed in 1.13]',
  },
  {
    id: 'construct/sizes',
    line: 'construct: num_heads, key_dim or value_dim of 0, negative or fractional → refused, message names the argument; value_dim absent → key_dim [K]',
  },
  {
    id: 'construct/no-bias',
    line: 'construct: bias=False → neither input nor output projection has a bias, and the forward pass works [T, TT]',
  },
  {
    id: 'construct/own-widths',
    line: 'construct: kdim or vdim different from embed_dim → separate q/k/v weights, no packed in_proj_weight; works with key and value of those widths [T]',
  },
  {
    id: 'construct/different-starts',
    line: 'construct: kernels of query, key, value and output start from different random values even with one initializer object [K, KG]',
  },
  {
    id: 'construct/parameter-count',
    line: 'construct: parameter count: 8 trainable tensors with bias, 4 without (query, key, value, output) [K, KG]',
    differs: "4 and 2 under PyTorch's names, whose in_proj_weight holds three kernels; 8 and 4 in the layout 'keras'",
  },
  {
    id: 'construct/any-width',
    line: "construct: heads x key_dim need not equal the model width; output returns to the query's width by default [K, F]",
  },
  {
    id: 'shapes/output',
    line: "shapes: output has the query's batch and length and the configured width, whatever the key length [K, F]",
  },
  {
    id: 'shapes/value-head',
    line: 'shapes: value head size different from key head size → output width unaffected, weights unaffected [K]',
  },
  {
    id: 'shapes/left-out',
    line: 'shapes: key omitted → value is used as key (Keras); value omitted → key is used as value (Flax); same result as passing it twice [K, FL]',
    differs:
      'a key left out is the query, as a value left out is the key: self-attention is the common case, and Keras and Flax disagree',
  },
  { id: 'shapes/key-value-length', line: 'shapes: key and value lengths differ → refused [F, K, torch observed]' },
  {
    id: 'shapes/query-key',
    line: 'shapes: query and key head sizes differ → refused; ranks differ → refused; batch sizes differ → refused [F]',
  },
  {
    id: 'shapes/embed-dim',
    line: 'shapes: query width differs from embed_dim → refused, message has both numbers [torch observed]',
  },
  {
    id: 'shapes/mixed-ranks',
    line: 'shapes: mixing batched and unbatched inputs (3-D query, 2-D key and so on, each of 6 combinations) → refused, message names the ranks [T]',
  },
  {
    id: 'shapes/unbatched',
    line: 'shapes: unbatched 2-D input → 2-D output; per-head weights [H,L,S], averaged [L,S] [T, torch goldens]',
  },
  {
    id: 'shapes/batch-is-length',
    line: 'shapes: batch size equal to sequence length must not confuse the layouts [TT]',
  },
  {
    id: 'shapes/zero-lengths',
    line: 'shapes: zero queries → empty output, no failure; zero keys → output rows equal the output bias [torch observed]',
  },
  {
    id: 'weights/shapes',
    line: 'weights: averaged weights have shape [B,L,S], per-head weights [B,H,L,S]; both match a reference to 1e-5 [T]',
  },
  {
    id: 'weights/on-request',
    line: 'weights: weights are only returned or recorded when asked for; the output is the same either way [K, F, FL]',
  },
  {
    id: 'weights/causal',
    line: 'weights: causal mask is honoured also on the path that returns weights: total weight on future keys under 1e-6 [K, KG]',
  },
  {
    id: 'weights/identity',
    line: 'weights: identity query and key → known scores 0.1691 on the diagonal and 0.1187 elsewhere for 8 keys of size 8 [K, KG]',
  },
];
