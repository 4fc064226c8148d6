// GPT-2's order of steps on the package: learned positions, layer norms before attention and MLP, GELU with tanh.
import { type KvCache, type Linear, MultiHeadAttention, type Runtime, type Tensor } from 'headwise';
import { type Tensors, linearNamed, linearOf, tensorNamed } from './parts.js';
import { type Norm, add, geluTanh, layerNorm, lookUp } from './steps.js';

/** Gets what was computed, under the names that the file of PyTorch's values has for it. */
export type Keep = (name: string, value: Tensor) => void;

interface Block {
  readonly attentionNorm: Norm;
  readonly attention: MultiHeadAttention;
  readonly mlpNorm: Norm;
  readonly widen: Linear;
  readonly narrow: Linear;
}

export class Gpt {
  readonly #tokens: Tensor;
  readonly #positions: Tensor;
  readonly #blocks: readonly Block[];
  readonly #finalNorm: Norm;
  readonly #head: Linear;

  constructor(tensors: Tensors, numHeads: number, layers: number, runtime: Runtime) {
    const named = (name: string): Tensor => tensorNamed(tensors, name);
    const norm = (name: string): Norm => ({
      scale: named(`${name}.weight`),
      shift: named(`${name}.bias`),
      epsilon: 1e-5,
    });
    const linear = (name: string): Linear => linearNamed(runtime, tensors, `${name}.`);
    this.#tokens = named('transformer.wte.weight');
    this.#positions = named('transformer.wpe.weight');
    const embedDim = this.#tokens.shape[1]!;
    this.#blocks = Array.from({ length: layers }, (_, i) => {
      const name = `transformer.h.${i}`;
      const attention = new MultiHeadAttention({ embedDim, numHeads, runtime });
      attention.loadStateDict({
        in_proj_weight: named(`${name}.attn.c_attn.weight`),
        in_proj_bias: named(`${name}.attn.c_attn.bias`),
        'out_proj.weight': named(`${name}.attn.c_proj.weight`),
        'out_proj.bias': named(`${name}.attn.c_proj.bias`),
      });
      return {
        attentionNorm: norm(`${name}.ln_1`),
        attention,
        mlpNorm: norm(`${name}.ln_2`),
        widen: linear(`${name}.mlp.c_fc`),
        narrow: linear(`${name}.mlp.c_proj`),
      };
    });
    this.#finalNorm = norm('transformer.ln_f');
    this.#head = linearOf(runtime, named('lm_head.weight'));
  }

  createCaches(batch: number): KvCache[] {
    const capacity = this.#positions.shape[0]!;
    return this.#blocks.map(({ attention }) => attention.createCache({ batch, capacity }));
  }

  /** Logits [B, L, vocabulary]. `keep` gets every step of block 0, and what comes out of the others. */
  forward(entries: readonly (readonly number[])[], caches?: readonly KvCache[], keep?: Keep): Tensor {
    const [batch, length] = [entries.length, entries[0]!.length];
    const from = caches?.[0]!.length ?? 0;
    const tokens = { data: lookUp(this.#tokens, entries.flat()).data, shape: [batch, length, this.#tokens.shape[1]!] };
    const ownPositions = Array.from({ length }, (_, i) => from + i);
    const everyEntry = Array.from({ length: batch }, () => ownPositions).flat();
    let x = add(tokens, lookUp(this.#positions, everyEntry));
    keep?.('tok_emb', tokens);
    keep?.('x', x);
    this.#blocks.forEach((block, i) => {
      x = forwardBlock(block, x, caches?.[i], i === 0 ? keep : undefined);
      keep?.(`block${i}`, x);
    });
    const last = layerNorm(x, this.#finalNorm);
    keep?.('ln_f', last);
    return this.#head.forward(last);
  }

  dispose(): void {
    this.#blocks.forEach(({ attention, widen, narrow }) => [attention, widen, narrow].forEach((p) => p.dispose()));
    this.#head.dispose();
  }
}

function forwardBlock(block: Block, x: Tensor, cache: KvCache | undefined, keep: Keep | undefined): Tensor {
  const { attentionNorm, attention, mlpNorm, widen, narrow } = block;
  const normed = layerNorm(x, attentionNorm);
  const whole =
    keep === undefined ? {} : ({ needScores: 'biased', needWeights: 'perHead', returnHeads: true } as const);
  const attended = attention.forward(normed, { causal: true, cache, ...whole });
  const afterAttention = add(x, attended.output);
  const mlpInput = layerNorm(afterAttention, mlpNorm);
  const wide = widen.forward(mlpInput);
  const active = geluTanh(wide);
  const mlp = narrow.forward(active);
  const out = add(afterAttention, mlp);
  if (keep) {
    const heads = attended.heads!;
    keep('ln1', normed);
    keep('att', attended.scores!);
    keep('attSm', attended.weights!);
    keep('y', { data: heads.data, shape: x.shape });
    keep('yProj', attended.output);
    keep('attnResid', afterAttention);
    keep('ln2', mlpInput);
    keep('fc', wide);
    keep('gelu', active);
    keep('mlp', mlp);
    keep('mlpResid', out);
  }
  return out;
}
