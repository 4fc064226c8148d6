// A Llama-shaped language model on the package: grouped-query attention with rotary positions, RMS norms, SiLU gates.
import { type ForwardResult, type KvCache, type Linear, MultiHeadAttention, type Runtime, type Tensor } from 'headwise';
import type { LlamaFile, LlamaLayer } from './llama2c-file.js';
import { linearOf } from './parts.js';
import { add, lookUp, multiply, rmsNorm, silu } from './steps.js';

const EPSILON = 1e-5;

interface Block {
  readonly weights: LlamaLayer;
  readonly attention: MultiHeadAttention;
  readonly gate: Linear;
  readonly up: Linear;
  readonly down: Linear;
}

export interface LlamaCall {
  /** One for each layer, from createCaches(). */
  readonly caches?: readonly KvCache[];
  /** Gets each layer's attention, with the weights of every head. */
  readonly onAttention?: (result: ForwardResult) => void;
}

export class Llama {
  readonly #file: LlamaFile;
  readonly #blocks: readonly Block[];
  readonly #head: Linear;

  constructor(file: LlamaFile, runtime: Runtime) {
    const { width: embedDim, heads: numHeads, kvHeads: numKvHeads } = file;
    this.#file = file;
    this.#blocks = file.layers.map((weights) => {
      const rope = { base: 10000, interleaved: true };
      const attention = new MultiHeadAttention({ embedDim, numHeads, numKvHeads, rope, bias: false, runtime });
      attention.loadStateDict({
        q_proj_weight: weights.query,
        k_proj_weight: weights.key,
        v_proj_weight: weights.value,
        'out_proj.weight': weights.output,
      });
      const [gate, up, down] = [weights.gate, weights.up, weights.down].map((weight) => linearOf(runtime, weight));
      return { weights, attention, gate: gate!, up: up!, down: down! };
    });
    this.#head = linearOf(runtime, file.embedding);
  }

  createCaches(batch: number, capacity: number): KvCache[] {
    return this.#blocks.map(({ attention }) => attention.createCache({ batch, capacity }));
  }

  /** Logits [B, L, vocabulary] of the tokens of each entry; shorter entries are padded, and their rows are junk. */
  forward(entries: readonly (readonly number[])[], { caches, onAttention }: LlamaCall = {}): Tensor {
    const lengths = entries.map((ids) => ids.length);
    const longest = Math.max(...lengths);
    const padded = entries.flatMap((ids) => [...ids, ...Array<number>(longest - ids.length).fill(0)]);
    let x: Tensor = { ...lookUp(this.#file.embedding, padded), shape: [entries.length, longest, this.#file.width] };
    this.#blocks.forEach(({ weights, attention, gate, up, down }, i) => {
      const attended = attention.forward(rmsNorm(x, weights.attentionNorm, EPSILON), {
        causal: true,
        queryLengths: lengths,
        cache: caches?.[i],
        needWeights: onAttention ? 'perHead' : false,
      });
      onAttention?.(attended);
      x = add(x, attended.output);
      const normed = rmsNorm(x, weights.feedForwardNorm, EPSILON);
      x = add(x, down.forward(multiply(silu(gate.forward(normed)), up.forward(normed))));
    });
    return this.#head.forward(rmsNorm(x, this.#file.finalNorm, EPSILON));
  }

  dispose(): void {
    this.#blocks.forEach(({ attention, gate, up, down }) => [attention, gate, up, down].forEach((p) => p.dispose()));
    this.#head.dispose();
  }
}
