// A BERT-style masked-word encoder on the package's two layers, MultiHeadAttention and Linear. The order of steps is
// BERT's: embeddings → LayerNorm; then per layer attention → add → LayerNorm → widen → GELU → narrow → add → LayerNorm.
import { Linear, MultiHeadAttention, type Runtime, type Tensor } from 'headwise';
import type { parseSafetensors } from 'headwise/safetensors';
import type { AttentionMaps } from '../protocol.js';
import { add, gelu, layerNorm, topOfSoftmax, type Candidate } from './arithmetic.js';
import { toFloat32 } from './stored.js';

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

export type StoredTensors = ReturnType<typeof parseSafetensors>['tensors'];

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

/** Reads tensors by name and checks their shapes. */
class Weights {
  readonly #tensors: StoredTensors;
  #count = 0;

  constructor(tensors: StoredTensors) {
    this.#tensors = tensors;
  }

  get count(): number {
    return this.#count;
  }

  read(name: string, shape: readonly number[]): Float32Array {
    const tensor = this.#tensors[name];
    const got = tensor ? `[${tensor.shape.join(', ')}]` : 'absent';
    const wanted = `[${shape.join(', ')}]`;
    if (!tensor || got !== wanted) {
      throw new Error(`the weight file: ${name} is ${got}; it must be ${wanted}; use the file that belongs to config.json`);
    }
    const values = toFloat32(tensor);
    this.#count += values.length;
    return values;
  }

  norm(name: string, width: number): Norm {
    return { weight: this.read(`${name}.weight`, [width]), bias: this.read(`${name}.bias`, [width]) };
  }

  linear(name: string, inFeatures: number, outFeatures: number, runtime: Runtime): Linear {
    const linear = new Linear({ inFeatures, outFeatures, runtime });
    linear.loadStateDict({
      weight: { data: this.read(`${name}.weight`, [outFeatures, inFeatures]), shape: [outFeatures, inFeatures] },
      bias: { data: this.read(`${name}.bias`, [outFeatures]), shape: [outFeatures] },
    });
    return linear;
  }

  /** Query, key and value stand apart in this file; PyTorch's layer wants them stacked. */
  attention(name: string, width: number, numHeads: number, runtime: Runtime): MultiHeadAttention {
    const attention = new MultiHeadAttention({ embedDim: width, numHeads, runtime });
    const weight = new Float32Array(3 * width * width);
    const bias = new Float32Array(3 * width);
    ['query', 'key', 'value'].forEach((part, i) => {
      weight.set(this.read(`${name}.self.${part}.weight`, [width, width]), i * width * width);
      bias.set(this.read(`${name}.self.${part}.bias`, [width]), i * width);
    });
    attention.loadStateDict({
      in_proj_weight: { data: weight, shape: [3 * width, width] },
      in_proj_bias: { data: bias, shape: [3 * width] },
      'out_proj.weight': { data: this.read(`${name}.output.dense.weight`, [width, width]), shape: [width, width] },
      'out_proj.bias': { data: this.read(`${name}.output.dense.bias`, [width]), shape: [width] },
    });
    return attention;
  }
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
    const weights = new Weights(tensors);
    const width = config.hidden_size;
    const inner = config.intermediate_size;
    this.config = config;
    this.#words = weights.read('bert.embeddings.word_embeddings.weight', [config.vocab_size, width]);
    this.#positions = weights.read('bert.embeddings.position_embeddings.weight', [
      config.max_position_embeddings,
      width,
    ]);
    // The page never compares two sentences: every piece is of the first segment.
    this.#firstSegment = weights.read('bert.embeddings.token_type_embeddings.weight', [2, width]).subarray(0, width);
    this.#embeddingNorm = weights.norm('bert.embeddings.LayerNorm', width);
    this.#layers = Array.from({ length: config.num_hidden_layers }, (_, i) => {
      const name = `bert.encoder.layer.${i}`;
      return {
        attention: weights.attention(`${name}.attention`, width, config.num_attention_heads, runtime),
        attentionNorm: weights.norm(`${name}.attention.output.LayerNorm`, width),
        widen: weights.linear(`${name}.intermediate.dense`, width, inner, runtime),
        narrow: weights.linear(`${name}.output.dense`, inner, width, runtime),
        outputNorm: weights.norm(`${name}.output.LayerNorm`, width),
      };
    });
    this.#transform = weights.linear('cls.predictions.transform.dense', width, width, runtime);
    this.#transformNorm = weights.norm('cls.predictions.transform.LayerNorm', width);
    this.#decoder = new Linear({ inFeatures: width, outFeatures: config.vocab_size, runtime });
    this.#decoder.loadStateDict({
      weight: { data: this.#words, shape: [config.vocab_size, width] },
      bias: { data: weights.read('cls.predictions.bias', [config.vocab_size]), shape: [config.vocab_size] },
    });
    this.weightCount = weights.count;
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
    for (const { attention, widen, narrow } of this.#layers) for (const part of [attention, widen, narrow]) part.dispose();
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
