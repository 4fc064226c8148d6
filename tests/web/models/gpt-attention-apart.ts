// The attention of one GPT block without the layer: a product for q, k and v, the functional core, a product with W_O.
// Only so can the projected heads be seen.
import { type Runtime, type Tensor, scaledDotProductAttention } from 'headwise';
import type { Keep } from './gpt.js';
import { headsOf, joinHeads } from './heads.js';
import { type Tensors, linearNamed } from './parts.js';

/** Attention named `name` (transformer.h.0.attn, say) of x [B, L, E]. */
export function attendApart(
  tensors: Tensors,
  name: string,
  heads: number,
  x: Tensor,
  runtime: Runtime,
  keep: Keep,
): void {
  const product = (part: string, input: Tensor): Tensor => {
    const linear = linearNamed(runtime, tensors, `${name}.${part}.`);
    const output = linear.forward(input);
    linear.dispose();
    return output;
  };
  const qkv = product('c_attn', x);
  const width = x.shape[2]!;
  const [q, k, v] = [0, 1, 2].map((part) => headsOf(qkv, part * width, heads, width / heads)) as [
    Tensor,
    Tensor,
    Tensor,
  ];
  const attended = scaledDotProductAttention(q, k, v, {
    causal: true,
    needScores: 'biased',
    needWeights: 'perHead',
    runtime,
  });
  const joined = joinHeads(attended.output);
  keep('qkv', qkv);
  keep('q', q);
  keep('k', k);
  keep('v', v);
  keep('att', attended.scores!);
  keep('attSm', attended.weights);
  keep('y', joined);
  keep('yProj', product('c_proj', joined));
}
