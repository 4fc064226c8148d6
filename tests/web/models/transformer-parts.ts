// What encoder and decoder of a CTranslate2 transformer have in common.
import { MultiHeadAttention, type Runtime, type Tensor } from 'headwise';
import { type Tensors, linearNamed, tensorNamed } from './parts.js';
import { type Norm, add, layerNorm, lookUp, relu } from './steps.js';

export const HEADS = 8;

export const normNamed = (tensors: Tensors, name: string): Norm => ({
  scale: tensorNamed(tensors, `${name}/gamma`),
  shift: tensorNamed(tensors, `${name}/beta`),
  epsilon: 1e-6,
});

/** `linear_0` holds the projections of query, key and value one below the other, `linear_1` that of the output. */
export function selfAttentionNamed(runtime: Runtime, tensors: Tensors, name: string): MultiHeadAttention {
  const output = tensorNamed(tensors, `${name}/linear_1/weight`);
  const attention = new MultiHeadAttention({ embedDim: output.shape[0]!, numHeads: HEADS, runtime });
  attention.loadStateDict({
    in_proj_weight: tensorNamed(tensors, `${name}/linear_0/weight`),
    in_proj_bias: tensorNamed(tensors, `${name}/linear_0/bias`),
    'out_proj.weight': output,
    'out_proj.bias': tensorNamed(tensors, `${name}/linear_1/bias`),
  });
  return attention;
}

/** x + W1 relu(W0 norm(x)) */
export class FeedForward {
  readonly #norm: Norm;
  readonly #widen;
  readonly #narrow;

  constructor(runtime: Runtime, tensors: Tensors, name: string) {
    this.#norm = normNamed(tensors, `${name}/layer_norm`);
    this.#widen = linearNamed(runtime, tensors, `${name}/linear_0/`);
    this.#narrow = linearNamed(runtime, tensors, `${name}/linear_1/`);
  }

  forward(x: Tensor): Tensor {
    return add(x, this.#narrow.forward(relu(this.#widen.forward(layerNorm(x, this.#norm)))));
  }

  dispose(): void {
    this.#widen.dispose();
    this.#narrow.dispose();
  }
}

/** Rows [ids.length, width]: the embedding times √width, plus the position's sines and cosines. */
export function embed(table: Tensor, ids: readonly number[], firstPosition: number): Tensor {
  const rows = lookUp(table, ids);
  const width = rows.shape[1]!;
  const half = width / 2;
  const data = rows.data.map((value, at) => {
    const i = at % width;
    // Positions are counted from 1.
    const position = firstPosition + 1 + Math.floor(at / width);
    const angle = position * Math.exp((-(i % half) * Math.log(10000)) / (half - 1));
    return value * Math.sqrt(width) + (i < half ? Math.sin(angle) : Math.cos(angle));
  });
  return { data, shape: rows.shape };
}
