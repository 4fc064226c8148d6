// forward() against the float64 reference, and the promises of its signature.
import {
  type ForwardOptions,
  type MaskTensor,
  MultiHeadAttention,
  type MultiHeadAttentionOptions,
  type PerBatch,
  type Runtime,
  type Tensor,
  load,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectClose, expectSameBits, size, zeros } from './helpers.js';
import { type ReferenceOptions, attention, combine, meanOverHeads, project } from './reference.js';

let runtime: Runtime;

/** A layer with random weights and biases, and the same weights for the reference. */
function layerOf(options: MultiHeadAttentionOptions, seed: number) {
  const mha = new MultiHeadAttention({ ...options, runtime });
  const random = new Random(seed);
  const { embedDim, numHeads, numKvHeads, headDim, vHeadDim, kDim, vDim, outDim, bias } = mha.config;
  const part = (on: boolean, outputs: number, inputs: number) => ({
    weight: random.tensor(outputs, inputs),
    bias: on ? random.tensor(outputs) : undefined,
  });
  const q = part(bias.query, numHeads * headDim, embedDim);
  const k = part(bias.key, numKvHeads * headDim, kDim);
  const v = part(bias.value, numKvHeads * vHeadDim, vDim);
  const out = part(bias.out, outDim, numHeads * vHeadDim);
  const dict: Record<string, Tensor> = {};
  for (const [name, { weight, bias: b }] of Object.entries({ q_proj: q, k_proj: k, v_proj: v, o_proj: out })) {
    dict[`${name}.weight`] = weight;
    if (b) dict[`${name}.bias`] = b;
  }
  mha.loadStateDict(dict, { layout: 'huggingface' });
  const reference = (query: Tensor, key: Tensor, value: Tensor, o: ReferenceOptions = {}) => {
    const result = attention(
      project(query, q.weight, q.bias, numHeads),
      project(key, k.weight, k.bias, numKvHeads),
      project(value, v.weight, v.bias, numKvHeads),
      o,
    );
    return {
      output: combine(result.output, out.weight, out.bias),
      weights: result.weights.flat(3),
      averaged: meanOverHeads(result.weights),
      lse: result.lse.flat(2),
    };
  };
  return { mha, reference };
}

/** Compares output, both kinds of weights and the log-sum-exp. */
function compare(
  { mha, reference }: ReturnType<typeof layerOf>,
  [query, key, value]: [Tensor, Tensor, Tensor],
  options: ForwardOptions,
  expected: ReferenceOptions,
): void {
  const want = reference(query, key, value, expected);
  const perHead = mha.forward(query, key, value, { ...options, needWeights: 'perHead', returnLse: true });
  expectClose(perHead.output.data, want.output, 2e-5);
  expectClose(perHead.weights!.data, want.weights);
  expectClose(perHead.lse!.data, want.lse);
  const averaged = mha.forward(query, key, value, { ...options, needWeights: 'averaged' });
  expectClose(averaged.weights!.data, want.averaged);
  expectSameBits(averaged.output.data, perHead.output.data);
  expectSameBits(mha.forward(query, key, value, options).output.data, perHead.output.data);
}

const [B, L, S] = [3, 7, 11];
const SHAPES: Record<string, MultiHeadAttentionOptions> = {
  'plain heads': { embedDim: 20, numHeads: 4 },
  'grouped-query heads': { embedDim: 24, numHeads: 6, numKvHeads: 2 },
  'every width its own': {
    embedDim: 10,
    numHeads: 4,
    numKvHeads: 2,
    headDim: 3,
    vHeadDim: 5,
    kDim: 9,
    vDim: 8,
    outDim: 13,
  },
  'no bias': { embedDim: 16, numHeads: 4, bias: false },
  'bias of query and output only': { embedDim: 16, numHeads: 4, bias: { key: false, value: false } },
};

describe.each(VARIANTS)('build %s', (variant) => {
  beforeAll(async () => {
    runtime = await load({ variant });
  });

  describe.each(Object.entries(SHAPES))('%s', (_, options) => {
    const inputs = (layer: ReturnType<typeof layerOf>, seed: number): [Tensor, Tensor, Tensor] => {
      const random = new Random(seed);
      const { embedDim, kDim, vDim } = layer.mha.config;
      return [random.tensor(B, L, embedDim), random.tensor(B, S, kDim), random.tensor(B, S, vDim)];
    };

    test('without masks (weights/shapes)', () => {
      const layer = layerOf(options, 1);
      compare(layer, inputs(layer, 2), {}, {});
    });

    test('scale', () => {
      const layer = layerOf({ ...options, scale: 0.3 }, 3);
      compare(layer, inputs(layer, 4), {}, { scale: 0.3 });
      compare(layer, inputs(layer, 4), { scale: -0.7 }, { scale: -0.7 });
    });

    test.each([1, 2, 3, 4, 5, 6])('a random composition of masks, %i', (seed) => {
      const layer = layerOf(options, 10 + seed);
      const random = new Random(100 + seed);
      const H = layer.mha.config.numHeads;
      const pick = <T>(...choices: T[]): T => choices[random.below(choices.length)]!;
      const shape4 = (): number[] => [pick(1, B), pick(1, H), pick(1, L), pick(1, S)];
      const attendMask = pick(undefined, random.mask(0.7, pick(1, L), pick(1, S)), random.mask(0.7, ...shape4()));
      const attnBias = pick(undefined, random.tensor(pick(1, L), pick(1, S)), random.tensor(...shape4()));
      if (attnBias) attnBias.data.forEach((_x, i) => random.next() < 0.1 && (attnBias.data[i] = -Infinity));
      const keyPaddingMask = pick(undefined, random.mask(0.2, B, S));
      const keyLengths = pick<PerBatch | undefined>(undefined, 9, [11, 0, 6], Int32Array.of(5, 11, 1));
      const queryLengths = pick<PerBatch | undefined>(undefined, 5, [7, 3, 0]);
      const causal = pick<boolean | 'start' | 'end'>(false, true, 'start', 'end');
      const queryOffset =
        causal === true || causal === 'start' ? pick<PerBatch | undefined>(undefined, 3, -2, [0, 4, -1]) : undefined;
      const emptyRows = pick('zero' as const, 'nan' as const);
      const of = (list: number | readonly number[] | Int32Array | undefined, b: number, none: number): number =>
        list === undefined ? none : typeof list === 'number' ? list : list[b]!;
      const at = <T>(mask: { data: ArrayLike<T>; shape: readonly number[] }, ...index: number[]): T => {
        const sizes = [...Array<number>(4 - mask.shape.length).fill(1), ...mask.shape];
        return mask.data[sizes.reduce((flat, n, axis) => flat * n + (n === 1 ? 0 : index[axis]!), 0)]!;
      };
      compare(
        layer,
        inputs(layer, 200 + seed),
        { attendMask, attnBias, keyPaddingMask, keyLengths, queryLengths, causal, queryOffset, emptyRows },
        {
          emptyRows,
          bias: (b, h, i, j) => (attnBias ? at(attnBias, b, h, i, j) : 0),
          sees: (b, h, i, j) => {
            const [keys, queries] = [of(keyLengths, b, S), of(queryLengths, b, L)];
            const offset = causal === 'end' ? keys - queries : of(queryOffset, b, 0);
            return (
              (!attendMask || at(attendMask as { data: Uint8Array; shape: number[] }, b, h, i, j) === 1) &&
              (!keyPaddingMask || keyPaddingMask.data[b * S + j] === 0) &&
              j < keys &&
              i < queries &&
              (causal === false || j <= i + offset)
            );
          },
        },
      );
    });
  });

  describe('the arguments', () => {
    const options = { embedDim: 12, numHeads: 4 };

    test('a key left out is the query, a value left out is the key (shapes/left-out)', () => {
      const { mha } = layerOf(options, 20);
      const random = new Random(21);
      const [x, y] = [random.tensor(2, 5, 12), random.tensor(2, 6, 12)];
      expectSameBits(mha.forward(x).output.data, mha.forward(x, x, x).output.data);
      expectSameBits(mha.forward(x, y).output.data, mha.forward(x, y, y).output.data);
      const copy = { data: y.data.slice(), shape: y.shape };
      expectSameBits(mha.forward(x, y).output.data, mha.forward(x, y, copy).output.data);
      expectSameBits(mha.forward(x, undefined, undefined, {}).output.data, mha.forward(x).output.data);
      const [seven, value] = [random.tensor(2, 5, 12), random.tensor(2, 5, 12)];
      expectSameBits(
        mha.forward(seven, undefined, value).output.data,
        mha.forward(seven, { ...seven }, value).output.data,
      );
    });

    test('options may stand second, third or fourth', () => {
      const { mha } = layerOf(options, 22);
      const x = new Random(23).tensor(2, 5, 12);
      const want = mha.forward(x, x, x, { causal: true }).output.data;
      expectSameBits(mha.forward(x, { causal: true }).output.data, want);
      expectSameBits(mha.forward(x, x, { causal: true }).output.data, want);
      expect(want).not.toEqual(mha.forward(x).output.data);
    });

    test('unbatched input gives unbatched output, with the bits of batch 1 (shapes/unbatched)', () => {
      const { mha } = layerOf(options, 24);
      const random = new Random(25);
      const [x, y] = [random.tensor(5, 12), random.tensor(6, 12)];
      const keyPaddingMask = random.mask(0.3, 6);
      const attendMask = random.mask(0.8, 4, 5, 6);
      const o = { needWeights: 'perHead', returnLse: true } as const;
      const one = mha.forward(x, y, { ...o, keyPaddingMask, attendMask, queryOffset: [1], causal: true });
      const batch = (t: Tensor): Tensor => ({ data: t.data, shape: [1, ...t.shape] });
      const many = mha.forward(batch(x), batch(y), {
        ...o,
        keyPaddingMask: { data: keyPaddingMask.data, shape: [1, 6] },
        attendMask: { data: attendMask.data, shape: [1, 4, 5, 6] },
        queryOffset: [1],
        causal: true,
      });
      expect(one.output.shape).toEqual([5, 12]);
      expect(one.weights!.shape).toEqual([4, 5, 6]);
      expect(one.lse!.shape).toEqual([4, 5]);
      expect(mha.forward(x, y, { needWeights: 'averaged' }).weights!.shape).toEqual([5, 6]);
      expect(many.output.shape).toEqual([1, 5, 12]);
      expect(many.weights!.shape).toEqual([1, 4, 5, 6]);
      expect(many.lse!.shape).toEqual([1, 4, 5]);
      expectSameBits(one.output.data, many.output.data);
      expectSameBits(one.weights!.data, many.weights!.data);
      expectSameBits(one.lse!.data, many.lse!.data);
    });

    test('weights of a worked example, per head and averaged (known failure A-01)', () => {
      const mha = new MultiHeadAttention({ embedDim: 2, numHeads: 2, bias: false, scale: 1, runtime });
      const eye = [1, 0, 0, 1];
      mha.loadStateDict({
        in_proj_weight: { data: Float32Array.from([...eye, ...eye, ...eye]), shape: [6, 2] },
        'out_proj.weight': { data: Float32Array.from(eye), shape: [2, 2] },
      });
      const x = { data: Float32Array.of(1, 0, 0, 2), shape: [2, 2] };
      const perHead = mha.forward(x, { needWeights: 'perHead' }).weights!;
      expect(perHead.shape).toEqual([2, 2, 2]);
      expectClose(perHead.data, [0.731059, 0.268941, 0.5, 0.5, 0.5, 0.5, 0.017986, 0.982014], 1e-6);
      const averaged = mha.forward(x, { needWeights: 'averaged' }).weights!;
      expect(averaged.shape).toEqual([2, 2]);
      expectClose(averaged.data, [0.615529, 0.384471, 0.258993, 0.741007], 1e-6);
    });

    test('weights and lse come only when asked for', () => {
      const { mha } = layerOf(options, 26);
      expect(Object.keys(mha.forward(zeros(5, 12), { needWeights: false, returnLse: false }))).toEqual(['output']);
    });

    test('a mask of booleans is the mask of bytes', () => {
      const { mha } = layerOf(options, 27);
      const random = new Random(28);
      const x = random.tensor(2, 5, 12);
      const bytes = random.mask(0.6, 5, 5);
      const booleans: MaskTensor = { data: Array.from(bytes.data, Boolean), shape: [5, 5] };
      expectSameBits(
        mha.forward(x, { attendMask: booleans }).output.data,
        mha.forward(x, { attendMask: bytes }).output.data,
      );
    });

    test('out is written and returned', () => {
      const { mha } = layerOf(options, 29);
      const x = new Random(30).tensor(2, 5, 12);
      const big = new Float32Array(2 * 5 * 12 + 4).fill(7);
      const out = big.subarray(2, 2 + 120);
      const result = mha.forward(x, { out });
      expect(result.output.data).toBe(out);
      expectSameBits(out, mha.forward(x).output.data);
      expect([big[1], big[122]]).toEqual([7, 7]);
    });

    test('results are not changed by later calls', () => {
      const { mha } = layerOf(options, 31);
      const random = new Random(32);
      const first = mha.forward(random.tensor(2, 5, 12), { needWeights: 'perHead', returnLse: true });
      const copies = [first.output, first.weights!, first.lse!].map(({ data }) => data.slice());
      mha.forward(random.tensor(2, 50, 12), { needWeights: 'perHead', returnLse: true });
      [first.output, first.weights!, first.lse!].forEach(({ data }, i) => expectSameBits(data, copies[i]!));
      for (const { data } of [first.output, first.weights!, first.lse!]) expect(data.byteOffset).toBe(0);
    });

    test('what is hidden has no effect, NaN and infinity included', () => {
      const { mha } = layerOf(options, 33);
      const random = new Random(34);
      const [x, y] = [random.tensor(2, 5, 12), random.tensor(2, 6, 12)];
      const poisoned = { data: y.data.slice(), shape: y.shape };
      poisoned.data.fill(NaN, 5 * 12, 6 * 12);
      poisoned.data.fill(Infinity, 11 * 12, 12 * 12);
      const keyPaddingMask = { data: Uint8Array.of(0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1), shape: [2, 6] };
      const o = { needWeights: 'perHead', returnLse: true } as const;
      const [want, got] = [y, poisoned].map((key) => mha.forward(x, key, { ...o, keyPaddingMask }));
      expectSameBits(got!.output.data, want!.output.data);
      expectSameBits(got!.weights!.data, want!.weights!.data);
      expectSameBits(mha.forward(x, poisoned, { keyLengths: 5 }).output.data, want!.output.data);
    });

    test('rows that see nothing: the output bias and weights 0, or NaN as PyTorch', () => {
      const { mha } = layerOf(options, 35);
      const x = new Random(36).tensor(1, 5, 12);
      const bias = mha.stateDict()['out_proj.bias']!.data;
      const empty = mha.forward(x, { keyLengths: [0], needWeights: 'averaged', returnLse: true });
      for (let i = 0; i < 5; ++i) expectSameBits(empty.output.data.slice(12 * i, 12 * (i + 1)), bias);
      expect(new Set(empty.weights!.data)).toEqual(new Set([0]));
      expect(new Set(empty.lse!.data)).toEqual(new Set([-Infinity]));
      const nan = mha.forward(x, { keyLengths: 0, emptyRows: 'nan' });
      expect(nan.output.data.every(Number.isNaN)).toBe(true);
      const torch = new MultiHeadAttention({ ...options, emptyRows: 'nan', runtime });
      expect(torch.forward(x, { keyLengths: 0 }).output.data.every(Number.isNaN)).toBe(true);
      expect(torch.forward(x, { keyLengths: 0, emptyRows: 'zero' }).output.data.some(Number.isNaN)).toBe(false);
    });

    test.each([
      ['no batch entries', [0, 5, 12], [0, 6, 12]],
      ['no queries', [2, 0, 12], [2, 6, 12]],
      ['no keys', [2, 5, 12], [2, 0, 12]],
      ['nothing', [0, 12], [0, 12]],
    ])('%s', (_name, q, k) => {
      const { mha } = layerOf(options, 37);
      const { output, weights, lse } = mha.forward(zeros(...q), zeros(...k), {
        needWeights: 'perHead',
        returnLse: true,
      });
      expect(output.shape).toEqual([...q.slice(0, -1), 12]);
      expect(output.data.length).toBe(size(output.shape));
      expect(weights!.data.length).toBe(size(weights!.shape));
      expect(weights!.shape).toEqual([...q.slice(0, -2), 4, q.at(-2), k.at(-2)]);
      expect(lse!.shape).toEqual([...q.slice(0, -2), 4, q.at(-2)]);
      const bias = mha.stateDict()['out_proj.bias']!.data;
      for (let row = 0; row < output.data.length; row += 12) expectSameBits(output.data.slice(row, row + 12), bias);
    });

    test('batch size equal to length does not confuse the axes (shapes/batch-is-length)', () => {
      const layer = layerOf(options, 38);
      const random = new Random(39);
      compare(layer, [random.tensor(5, 5, 12), random.tensor(5, 5, 12), random.tensor(5, 5, 12)], {}, {});
    });

    test('weights come from the seed', () => {
      const weights = (seed?: number): Float32Array =>
        new MultiHeadAttention({ ...options, seed, runtime }).stateDict()['in_proj_weight']!.data;
      expectSameBits(weights(), weights(0));
      expectSameBits(weights(5), weights(5));
      expect(weights(5)).not.toEqual(weights(6));
      const bound = Math.sqrt(6 / (12 + 36));
      expect(Math.max(...weights(5).map(Math.abs))).toBeLessThanOrEqual(bound);
      expect(Math.max(...weights(5).map(Math.abs))).toBeGreaterThan(bound * 0.9);
    });

    test('create() loads and makes', async () => {
      const mha = await MultiHeadAttention.create(options);
      expect(mha.config).toMatchObject({ embedDim: 12, numHeads: 4, headDim: 3, kDim: 12, outDim: 12 });
      expect(mha.forward(zeros(2, 12)).output.shape).toEqual([2, 12]);
    });
  });
});
