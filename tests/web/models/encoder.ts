// The encoder: words become one vector for each letter, in a batch with padding on either side.
import type { MaskTensor, MultiHeadAttention, Runtime, Tensor } from 'headwise';
import { type Tensors, tensorNamed } from './parts.js';
import { type Norm, add, layerNorm } from './steps.js';
import { FeedForward, embed, normNamed, selfAttentionNamed } from './transformer-parts.js';

/** Where the padding stands, and with it how attention is told. */
export type Side = 'left' | 'right';

export interface Memory {
  /** [B, S, E] */
  readonly states: Tensor;
  /** The options that hide the padding: lengths where it stands behind the words, a mask where before them. */
  readonly hidden: { readonly keyLengths: number[] } | { readonly keyPaddingMask: MaskTensor };
  readonly lengths: readonly number[];
}

interface Layer {
  readonly norm: Norm;
  readonly attention: MultiHeadAttention;
  readonly feedForward: FeedForward;
}

export class Encoder {
  readonly #embedding: Tensor;
  readonly #layers: readonly Layer[];
  readonly #norm: Norm;

  constructor(tensors: Tensors, layers: number, runtime: Runtime) {
    this.#embedding = tensorNamed(tensors, 'encoder/embeddings/weight');
    this.#layers = Array.from({ length: layers }, (_, i) => ({
      norm: normNamed(tensors, `encoder/layer_${i}/self_attention/layer_norm`),
      attention: selfAttentionNamed(runtime, tensors, `encoder/layer_${i}/self_attention`),
      feedForward: new FeedForward(runtime, tensors, `encoder/layer_${i}/ffn`),
    }));
    this.#norm = normNamed(tensors, 'encoder/layer_norm');
  }

  encode(words: readonly (readonly number[])[], side: Side): Memory {
    const lengths = words.map((ids) => ids.length);
    const [batch, longest, width] = [words.length, Math.max(...lengths), this.#embedding.shape[1]!];
    // NaN in the padding: whatever is hidden must have no effect.
    const data = new Float32Array(batch * longest * width).fill(NaN);
    const mask = new Uint8Array(batch * longest).fill(1);
    words.forEach((ids, b) => {
      const first = b * longest + (side === 'left' ? longest - ids.length : 0);
      data.set(embed(this.#embedding, ids, 0).data, first * width);
      mask.fill(0, first, first + ids.length);
    });
    const hidden =
      side === 'right' ? { keyLengths: lengths } : { keyPaddingMask: { data: mask, shape: [batch, longest] } };
    let x: Tensor = { data, shape: [batch, longest, width] };
    for (const { norm, attention, feedForward } of this.#layers) {
      x = feedForward.forward(add(x, attention.forward(layerNorm(x, norm), hidden).output));
    }
    return { states: layerNorm(x, this.#norm), hidden, lengths };
  }

  dispose(): void {
    this.#layers.forEach(({ attention, feedForward }) => [attention, feedForward].forEach((part) => part.dispose()));
  }
}
