// Attention of the decoder over what the encoder made, in two ways. `linear_0` of the file is the projection of the
// query, `linear_1` those of key and value one below the other, `linear_2` that of the output.
import { KvCache, MultiHeadAttention, type Runtime, type Tensor, scaledDotProductAttention } from 'headwise';
import type { Memory } from './encoder.js';
import { headsOf, joinHeads } from './heads.js';
import { type Tensors, linearNamed, tensorNamed } from './parts.js';
import { slice } from './steps.js';
import { HEADS } from './transformer-parts.js';

export interface Attended {
  /** [B, 1, E] */
  readonly output: Tensor;
  /** [B, H, 1, S] */
  readonly weights: Tensor;
}

export interface CrossAttention {
  /** Attention over this memory, for one query of each entry. */
  over(memory: Memory): { attend(query: Tensor): Attended; dispose(): void };
  dispose(): void;
}

export type MakeCrossAttention = (runtime: Runtime, tensors: Tensors, name: string) => CrossAttention;

/** By the layer, with the memory as its key and value: each call projects the memory again. */
export const crossByLayer: MakeCrossAttention = (runtime, tensors, name) => {
  const both = tensorNamed(tensors, `${name}/linear_1/weight`);
  const bothBias = tensorNamed(tensors, `${name}/linear_1/bias`);
  const width = both.shape[1]!;
  const layer = new MultiHeadAttention({ embedDim: width, numHeads: HEADS, runtime });
  layer.loadStateDict({
    q_proj_weight: tensorNamed(tensors, `${name}/linear_0/weight`),
    k_proj_weight: slice(both, 0, width),
    v_proj_weight: slice(both, width, 2 * width),
    q_proj_bias: tensorNamed(tensors, `${name}/linear_0/bias`),
    k_proj_bias: slice(bothBias, 0, width),
    v_proj_bias: slice(bothBias, width, 2 * width),
    'out_proj.weight': tensorNamed(tensors, `${name}/linear_2/weight`),
    'out_proj.bias': tensorNamed(tensors, `${name}/linear_2/bias`),
  });
  return {
    over: ({ states, hidden }) => ({
      attend: (query) => layer.forward(query, states, { ...hidden, needWeights: 'perHead' }),
      dispose() {},
    }),
    dispose: () => layer.dispose(),
  };
};

/** From parts: the memory is projected once, into a cache that every query reads. Padding stands on the right. */
export const crossByCache: MakeCrossAttention = (runtime, tensors, name) => {
  const toQuery = linearNamed(runtime, tensors, `${name}/linear_0/`);
  const toKeyAndValue = linearNamed(runtime, tensors, `${name}/linear_1/`);
  const toOutput = linearNamed(runtime, tensors, `${name}/linear_2/`);
  const width = toQuery.inFeatures;
  const headDim = width / HEADS;
  return {
    over({ states, hidden, lengths }) {
      if (!('keyLengths' in hidden)) throw new TypeError('a cache holds words without padding before them');
      const [batch, capacity] = states.shape as [number, number];
      const cache = KvCache.create({ batch, capacity, numKvHeads: HEADS, headDim, runtime });
      const projected = toKeyAndValue.forward(states);
      cache.append(headsOf(projected, 0, HEADS, headDim), headsOf(projected, width, HEADS, headDim), lengths);
      return {
        attend(query) {
          const heads = headsOf(toQuery.forward(query), 0, HEADS, headDim);
          const { output, weights } = scaledDotProductAttention(heads, { cache, needWeights: 'perHead', runtime });
          return { output: toOutput.forward(joinHeads(output)), weights };
        },
        dispose: () => cache.dispose(),
      };
    },
    dispose: () => [toQuery, toKeyAndValue, toOutput].forEach((part) => part.dispose()),
  };
};
