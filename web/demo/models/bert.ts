// A BERT-style masked-word encoder on the package's two layers, MultiHeadAttention and Linear. The order of steps is
// BERT's: embeddings → LayerNorm; then per layer attention → add → LayerNorm → widen → GELU → narrow → add → LayerNorm.
import { Linear, MultiHeadAttention, type Runtime, type Tensor } from 'headwise';
import type { StoredTensor } from 'headwise/safetensors';
import type { AttentionMaps } from '../protocol.js';
import { add, gelu, layerNorm, topOfSoftmax, type Candidate } from './arithmetic.js';
import { readNumbers } from './stored.js';

/** The fields of config.json this model needs. */
export interface BertConfig {
  readonly vocab_size: number;
  readonly hidden_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly intermediate_size: number;
  readonly max_position_embeddings: number;
  readonly layer_norm_eps: number;
}

export type StoredTensors = Readonly<Record<string, StoredTensor>>;

interface Norm {
  readonly weight: Float32Array;
  readonly bias: Float32Array;
}

interface Layer {
  readonly attention: MultiHeadAttention;
  readonly attentionNorm: Norm;
  readonly widen: Linear;
  readonly narrow: Linear;
  readonly outputNorm: Norm;
}

export interface EncoderResult {
  /** `[length, width]` */
  readonly hidden: Float32Array;
  readonly maps: AttentionMaps;
}

export class Bert {
  readonly config: BertConfig;
  /** How many numbers were learned. */
  readonly weightCount: number;
  readonly #words: Float32Array;
  readonly #positions: Float32Array;
  readonly #firstSegment: Float32Array;
  readonly #embeddingNorm: Norm;
  readonly #layers: readonly Layer[];
  readonly #transform: Linear;
  readonly #transformNorm: Norm;
  /** The word embedding once more, as a projection from a hidden vector to a score per piece. */
  readonly #decoder: Linear;

  constructor(tensors: StoredTensors, config: BertConfig, runtime: Runtime) {
    const { hidden_size: width, intermediate_size: inner, num_attention_heads: numHeads } = config;
    const norm = (name: string): Norm => ({
      weight: readNumbers(tensors, `${name}.weight`, [width]),
      bias: readNumbers(tensors, `${name}.bias`, [width]),
    });
    const linear = (name: string, inFeatures: number, outFeatures: number): Linear => {
      const made = new Linear({ inFeatures, outFeatures, runtime });
      made.loadStateDict(tensors, { prefix: `${name}.` });
      return made;
    };
    const attention = (name: string): MultiHeadAttention => {
      const made = new MultiHeadAttention({ embedDim: width, numHeads, runtime });
      made.loadStateDict(tensors, { layout: 'bert', prefix: `${name}.` });
      return made;
    };

    this.config = config;
    this.weightCount = Object.values(tensors).reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
    const embeddings = 'bert.embeddings';
    this.#words = readNumbers(tensors, `${embeddings}.word_embeddings.weight`, [config.vocab_size, width]);
    this.#positions = readNumbers(tensors, `${embeddings}.position_embeddings.weight`, [
      config.max_position_embeddings,
      width,
    ]);
    // The page never compares two sentences: every piece is of the first segment.
    this.#firstSegment = readNumbers(tensors, `${embeddings}.token_type_embeddings.weight`, [2, width]).subarray(
      0,
      width,
    );
    this.#embeddingNorm = norm(`${embeddings}.LayerNorm`);
    this.#layers = Array.from({ length: config.num_hidden_layers }, (_, i) => {
      const name = `bert.encoder.layer.${i}`;
      return {
        attention: attention(`${name}.attention`),
        attentionNorm: norm(`${name}.attention.output.LayerNorm`),
        widen: linear(`${name}.intermediate.dense`, width, inner),
        narrow: linear(`${name}.output.dense`, inner, width),
        outputNorm: norm(`${name}.output.LayerNorm`),
      };
    });
    this.#transform = linear('cls.predictions.transform.dense', width, width);
    this.#transformNorm = norm('cls.predictions.transform.LayerNorm');
    this.#decoder = new Linear({ inFeatures: width, outFeatures: config.vocab_size, runtime });
    this.#decoder.loadStateDict({
      weight: { data: this.#words, shape: [config.vocab_size, width] },
      bias: { data: readNumbers(tensors, 'cls.predictions.bias', [config.vocab_size]), shape: [config.vocab_size] },
    });
  }

  /** Runs every layer over one sentence and keeps the attention of every head. */
  encode(ids: readonly number[]): EncoderResult {
    const { num_hidden_layers: layers, num_attention_heads: heads, layer_norm_eps: epsilon } = this.config;
    const length = ids.length;
    const mapSize = heads * length * length;
    const data = new Float32Array(layers * mapSize);
    let hidden = this.#embed(ids);
    this.#layers.forEach((layer, i) => {
      const attended = layer.attention.forward(this.#tensor(hidden), { needWeights: 'perHead' });
      if (!attended.weights) throw new Error('forward(): no attention weights came back, needWeights asked for them');
      data.set(attended.weights.data, i * mapSize);
      add(attended.output.data, hidden);
      hidden = attended.output.data;
      layerNorm(hidden, layer.attentionNorm.weight, layer.attentionNorm.bias, epsilon);

      const wide = layer.widen.forward(this.#tensor(hidden));
      gelu(wide.data);
      const narrow = layer.narrow.forward(wide);
      add(narrow.data, hidden);
      hidden = narrow.data;
      layerNorm(hidden, layer.outputNorm.weight, layer.outputNorm.bias, epsilon);
    });
    return { hidden, maps: { data, layers, heads, length } };
  }

  /** The `count` likeliest pieces at `position`. */
  fill(hidden: Float32Array, position: number, count: number): Candidate[] {
    const width = this.config.hidden_size;
    const vector = hidden.slice(position * width, (position + 1) * width);
    const transformed = this.#transform.forward(this.#tensor(vector));
    gelu(transformed.data);
    layerNorm(transformed.data, this.#transformNorm.weight, this.#transformNorm.bias, this.config.layer_norm_eps);
    return topOfSoftmax(this.#decoder.forward(transformed).data, count);
  }

  dispose(): void {
    for (const { attention, widen, narrow } of this.#layers)
      for (const part of [attention, widen, narrow]) part.dispose();
    this.#transform.dispose();
    this.#decoder.dispose();
  }

  #embed(ids: readonly number[]): Float32Array {
    const width = this.config.hidden_size;
    const hidden = new Float32Array(ids.length * width);
    ids.forEach((id, position) => {
      for (let i = 0; i < width; ++i) {
        hidden[position * width + i] =
          this.#words[id * width + i]! + this.#positions[position * width + i]! + this.#firstSegment[i]!;
      }
    });
    layerNorm(hidden, this.#embeddingNorm.weight, this.#embeddingNorm.bias, this.config.layer_norm_eps);
    return hidden;
  }

  #tensor(data: Float32Array): Tensor {
    const width = this.config.hidden_size;
    return { data, shape: [data.length / width, width] };
  }
}
