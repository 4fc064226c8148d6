// scaledDotProductAttention() against the float64 reference, in both layouts and all ranks, and its bad arguments.
import {
  type AttentionOptions,
  type ForwardResult,
  HeadwiseRangeError,
  HeadwiseTypeError,
  type Runtime,
  type Tensor,
  load,
  scaledDotProductAttention as attend,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { type ExpectedError, Random, VARIANTS, expectClose, expectError, expectSameBits, zeros } from './helpers.js';
import { attention, headsOf, meanOverHeads } from './reference.js';

let runtime: Runtime;
/** In the build under test. */
const scaledDotProductAttention = (q: Tensor, k: Tensor, v: Tensor, options?: AttentionOptions): ForwardResult =>
  attend(q, k, v, { runtime, ...options });

/** [B, H, L, D] to [B, L, H, D], or back: the two middle axes change places. */
function swapAxes({ data, shape }: Tensor): Tensor {
  const [b, x, y, w] = shape as [number, number, number, number];
  const out = new Float32Array(data.length);
  for (let i = 0; i < b; ++i)
    for (let j = 0; j < x; ++j)
      for (let k = 0; k < y; ++k)
        for (let c = 0; c < w; ++c) out[((i * y + k) * x + j) * w + c] = data[((i * x + j) * y + k) * w + c]!;
  return { data: out, shape: [b, y, x, w] };
}

const ALL = { needWeights: 'perHead', returnLse: true } as const;

describe.each(VARIANTS)('build %s', (variant) => {
  beforeAll(async () => {
    runtime = await load({ variant });
  });

  describe.each([
    ['equal heads', 4, 4],
    ['grouped-query heads', 6, 2],
    ['one key/value head', 5, 1],
  ])('%s', (_name, H, Hkv) => {
    const random = new Random(H);
    const [B, L, S, D, Dv] = [2, 9, 13, 6, 7];
    const [q, k, v] = [random.tensor(B, H, L, D), random.tensor(B, Hkv, S, D), random.tensor(B, Hkv, S, Dv)];
    const attendMask = random.mask(0.6, B, 1, L, S);
    const want = attention(headsOf(q), headsOf(k), headsOf(v), {
      sees: (b, _h, i, j) => attendMask.data[(b * L + i) * S + j] === 1,
    });

    test('[B, H, L, D]', () => {
      const got = scaledDotProductAttention(q, k, v, { ...ALL, attendMask });
      expect(got.output.shape).toEqual([B, H, L, Dv]);
      expect(got.weights!.shape).toEqual([B, H, L, S]);
      expect(got.lse!.shape).toEqual([B, H, L]);
      expectClose(got.output.data, want.output.flat(3));
      expectClose(got.weights!.data, want.weights.flat(3));
      expectClose(got.lse!.data, want.lse.flat(2));
      const averaged = scaledDotProductAttention(q, k, v, { needWeights: 'averaged', attendMask });
      expect(averaged.weights!.shape).toEqual([B, L, S]);
      expectClose(averaged.weights!.data, meanOverHeads(want.weights));
    });

    test('[B, L, H, D] gives the same bits', () => {
      const one = scaledDotProductAttention(q, k, v, { ...ALL, attendMask });
      const [a, b, c] = [q, k, v].map(swapAxes) as [Tensor, Tensor, Tensor];
      const other = scaledDotProductAttention(a, b, c, { ...ALL, attendMask, layout: 'BLHD' });
      expect(other.output.shape).toEqual([B, L, H, Dv]);
      expectSameBits(swapAxes(other.output).data, one.output.data);
      expectSameBits(other.weights!.data, one.weights!.data);
      expectSameBits(other.lse!.data, one.lse!.data);
    });

    test('without the batch axis, in both layouts', () => {
      const first = (t: Tensor): Tensor => ({
        data: t.data.slice(0, t.data.length / t.shape[0]!),
        shape: t.shape.slice(1),
      });
      const one = scaledDotProductAttention(first(q), first(k), first(v), ALL);
      expect(one.output.shape).toEqual([H, L, Dv]);
      expect(one.weights!.shape).toEqual([H, L, S]);
      expect(one.lse!.shape).toEqual([H, L]);
      const plain = attention(headsOf(q), headsOf(k), headsOf(v));
      expectClose(one.output.data, plain.output[0]!.flat(2));
      const [a, b, c] = [q, k, v].map((t) => first(swapAxes(t))) as [Tensor, Tensor, Tensor];
      const other = scaledDotProductAttention(a, b, c, { ...ALL, layout: 'BLHD' });
      expect(other.output.shape).toEqual([L, H, Dv]);
      expectSameBits(other.weights!.data, one.weights!.data);
    });
  });

  test('rank 2 is one head, in either layout', () => {
    const random = new Random(7);
    const [q, k, v] = [random.tensor(5, 6), random.tensor(8, 6), random.tensor(8, 3)];
    const want = attention([[rows(q)]], [[rows(k)]], [[rows(v)]], { sees: (_b, _h, i, j) => j <= i + 2 });
    for (const layout of ['BHLD', 'BLHD'] as const) {
      const got = scaledDotProductAttention(q, k, v, { ...ALL, layout, causal: true, queryOffset: 2 });
      expect([got.output.shape, got.weights!.shape, got.lse!.shape]).toEqual([[5, 3], [5, 8], [5]]);
      expectClose(got.output.data, want.output.flat(3));
    }
  });

  const rows = ({ data, shape }: Tensor): number[][] =>
    Array.from({ length: shape[0]! }, (_, i) => Array.from(data.slice(i * shape[1]!, (i + 1) * shape[1]!)));

  test('large finite biases are added, -Infinity masks', () => {
    const [q, k, v] = [zeros(1, 2), zeros(3, 2), { data: Float32Array.of(1, 2, 4), shape: [3, 1] }];
    const bias = (...data: number[]): object => ({ attnBias: { data: Float32Array.from(data), shape: [1, 3] } });
    expectClose(scaledDotProductAttention(q, k, v, bias(-1e9, -1e9, -1e9)).output.data, [7 / 3]);
    expectClose(scaledDotProductAttention(q, k, v, bias(-1e9, 0, -Infinity)).output.data, [2]);
    expectClose(scaledDotProductAttention(q, k, v, bias(-Infinity, -Infinity, -Infinity)).output.data, [0]);
  });

  test('zero lengths', () => {
    expect(scaledDotProductAttention(zeros(0, 2, 3, 4), zeros(0, 2, 5, 4), zeros(0, 2, 5, 4)).output.shape).toEqual([
      0, 2, 3, 4,
    ]);
    expect(
      scaledDotProductAttention(zeros(1, 2, 0, 4), zeros(1, 2, 5, 4), zeros(1, 2, 5, 6), ALL).weights!.shape,
    ).toEqual([1, 2, 0, 5]);
    const none = scaledDotProductAttention(zeros(1, 2, 3, 4), zeros(1, 2, 0, 4), zeros(1, 2, 0, 6), ALL);
    expect(new Set(none.output.data)).toEqual(new Set([0]));
    expect(new Set(none.lse!.data)).toEqual(new Set([-Infinity]));
  });

  describe('bad arguments', () => {
    const random = new Random(9);
    const [q, k, v] = [random.tensor(2, 4, 5, 6), random.tensor(2, 2, 7, 6), random.tensor(2, 2, 7, 3)];
    const call = 'scaledDotProductAttention()';
    const SHAPE = { type: HeadwiseRangeError, code: 'wrong-shape', call } as const;
    const TYPE = { type: HeadwiseTypeError, code: 'wrong-type', call } as const;
    test.each<[string, unknown[], ExpectedError]>([
      ['no value', [q, k], { ...TYPE, argument: 'value', got: 'undefined', wanted: 'a tensor' }],
      [
        'options in the place of the value',
        [q, k, { causal: true }],
        { ...TYPE, argument: 'value', got: 'keys {causal}', wanted: 'a tensor' },
      ],
      [
        'rank 5',
        [zeros(1, 1, 1, 1, 1), k, v],
        { ...SHAPE, argument: 'query.shape', got: '[1, 1, 1, 1, 1]', wanted: '[B, H, L, D]' },
      ],
      [
        'rank 1',
        [zeros(4), zeros(4), zeros(4)],
        { ...SHAPE, argument: 'query.shape', got: '[4]', wanted: '[L, D] for one head' },
      ],
      [
        'ranks that differ',
        [q, zeros(2, 7, 6), v],
        { ...SHAPE, argument: 'key.shape', got: '[2, 7, 6]', wanted: 'rank 4' },
      ],
      [
        'batch sizes that differ',
        [q, zeros(3, 2, 7, 6), v],
        { ...SHAPE, argument: 'key.shape', got: '[3, 2, 7, 6]', wanted: 'batch size' },
      ],
      [
        'head sizes that differ',
        [q, zeros(2, 2, 7, 5), v],
        { ...SHAPE, argument: 'key.shape', got: '[2, 2, 7, 5]', wanted: 'head size D' },
      ],
      [
        'head counts of key and value',
        [q, k, zeros(2, 4, 7, 3)],
        { ...SHAPE, argument: 'value.shape', got: '[2, 4, 7, 3]', wanted: 'namely 2' },
      ],
      [
        'lengths of key and value',
        [q, k, zeros(2, 2, 8, 3)],
        { ...SHAPE, argument: 'value.shape', got: '[2, 2, 8, 3]', wanted: 'namely 7' },
      ],
      [
        'heads that do not divide',
        [q, zeros(2, 3, 7, 6), zeros(2, 3, 7, 3)],
        { ...SHAPE, argument: 'key.shape', got: '[2, 3, 7, 6]', wanted: "divides the query's 4" },
      ],
      [
        'the other layout',
        [q, k, v, { layout: 'BLHD' }],
        { ...SHAPE, argument: 'key.shape', got: '[2, 2, 7, 6]', wanted: /divides|length/ },
      ],
      [
        'no head',
        [zeros(2, 0, 5, 6), k, v],
        { ...SHAPE, argument: 'query.shape', got: '[2, 0, 5, 6]', wanted: 'at least one head' },
      ],
      [
        'a head size of 0',
        [zeros(2, 4, 5, 0), zeros(2, 2, 7, 0), v],
        { ...SHAPE, argument: 'query.shape', got: '[2, 4, 5, 0]', wanted: 'head size of at least 1' },
      ],
      [
        'an unknown layout',
        [q, k, v, { layout: 'LBHD' }],
        { ...SHAPE, code: 'out-of-range', argument: 'layout', got: '"LBHD"', wanted: "'BHLD' or 'BLHD'" },
      ],
      [
        'an unknown option',
        [q, k, v, { isCausal: true }],
        { ...TYPE, code: 'unknown-option', argument: '"isCausal"', got: 'unknown', wanted: 'causal' },
      ],
      ['options of null', [q, k, v, null], { ...TYPE, argument: 'options', got: 'null', wanted: 'an object' }],
      [
        'a runtime of something else',
        [q, k, v, { runtime: 1 }],
        { ...TYPE, argument: 'runtime', got: '1', wanted: 'load()' },
      ],
    ])('%s', (_name, args, expected) => {
      const before = scaledDotProductAttention(q, k, v).output.data;
      expectError(() => (attend as (...args: unknown[]) => unknown)(...args), expected);
      expectSameBits(scaledDotProductAttention(q, k, v).output.data, before);
    });
  });
});
