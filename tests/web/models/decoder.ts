// The decoder: one letter of every word at a time, until each has ended.
import type { Linear, MultiHeadAttention, Runtime, Tensor } from 'headwise';
import type { CrossAttention, MakeCrossAttention } from './cross-attention.js';
import type { Memory } from './encoder.js';
import { type Tensors, linearNamed, tensorNamed } from './parts.js';
import { type Norm, add, largestAt, layerNorm, rowOf } from './steps.js';
import { FeedForward, embed, normNamed, selfAttentionNamed } from './transformer-parts.js';

const START = 1;
const END = 2;
const LONGEST = 32;

interface Layer {
  readonly selfNorm: Norm;
  readonly self: MultiHeadAttention;
  readonly crossNorm: Norm;
  readonly cross: CrossAttention;
  readonly feedForward: FeedForward;
}

export interface Decoded {
  readonly ids: number[];
  /** Before each letter and the end, of the whole vocabulary. */
  readonly logits: Float32Array[];
  /** [letter][layer][head], over the letters of the source and its padding. */
  readonly weights: Float32Array[][][];
}

export class Decoder {
  readonly #embedding: Tensor;
  readonly #layers: readonly Layer[];
  readonly #norm: Norm;
  readonly #projection: Linear;

  constructor(tensors: Tensors, layers: number, runtime: Runtime, cross: MakeCrossAttention) {
    this.#embedding = tensorNamed(tensors, 'decoder/embeddings/weight');
    this.#layers = Array.from({ length: layers }, (_, i) => {
      const name = `decoder/layer_${i}`;
      return {
        selfNorm: normNamed(tensors, `${name}/self_attention/layer_norm`),
        self: selfAttentionNamed(runtime, tensors, `${name}/self_attention`),
        crossNorm: normNamed(tensors, `${name}/attention/layer_norm`),
        cross: cross(runtime, tensors, `${name}/attention`),
        feedForward: new FeedForward(runtime, tensors, `${name}/ffn`),
      };
    });
    this.#norm = normNamed(tensors, 'decoder/layer_norm');
    this.#projection = linearNamed(runtime, tensors, 'decoder/projection/');
  }

  /** The likeliest letter each time. */
  decode(memory: Memory): Decoded[] {
    const [batch, width] = [memory.lengths.length, this.#embedding.shape[1]!];
    const caches = this.#layers.map(({ self }) => self.createCache({ batch, capacity: LONGEST }));
    const across = this.#layers.map(({ cross }) => cross.over(memory));
    const results: Decoded[] = memory.lengths.map(() => ({ ids: [], logits: [], weights: [] }));
    let next = results.map(() => START);
    for (let position = 0; position < LONGEST && next.some((id) => id !== END); ++position) {
      // A word that has ended gives no more tokens; its rows are computed, and nobody looks at them.
      const queryLengths = next.map((id) => Number(id !== END));
      const maps: Tensor[] = [];
      const rows = next.map((id) => embed(this.#embedding, [id], position).data);
      let x: Tensor = { data: new Float32Array(batch * width), shape: [batch, 1, width] };
      rows.forEach((row, b) => x.data.set(row, b * width));
      this.#layers.forEach(({ selfNorm, self, crossNorm, feedForward }, i) => {
        const options = { causal: true, cache: caches[i]!, queryLengths };
        x = add(x, self.forward(layerNorm(x, selfNorm), options).output);
        const { output, weights } = across[i]!.attend(layerNorm(x, crossNorm));
        maps.push(weights);
        x = feedForward.forward(add(x, output));
      });
      const logits = this.#projection.forward(layerNorm(x, this.#norm));
      next = next.map((id, b) => {
        if (id === END) return END;
        const row = rowOf(logits, b).slice();
        const heads = maps.map((map) =>
          Array.from({ length: map.shape[1]! }, (_, h) => rowOf(map, b * map.shape[1]! + h)),
        );
        const letter = largestAt(row);
        results[b]!.logits.push(row);
        results[b]!.weights.push(heads);
        if (letter !== END) results[b]!.ids.push(letter);
        return letter;
      });
    }
    [...caches, ...across].forEach((part) => part.dispose());
    return results;
  }

  dispose(): void {
    this.#layers.forEach(({ self, cross, feedForward }) =>
      [self, cross, feedForward].forEach((part) => part.dispose()),
    );
    this.#projection.dispose();
  }
}
