// What public test suites demand of weights, grouped heads and extra keys.
import {
  HeadwiseRangeError,
  MultiHeadAttention,
  type Runtime,
  type Tensor,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectClose, expectError, expectSameBits, zeros } from '../helpers.js';
import { floats, mask } from '../lists.js';
import { attention, headsOf } from '../reference.js';

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });

  test('weights come when asked for, and the output is the same either way (weights/on-request)', () => {
    const mha = new MultiHeadAttention({ embedDim: 12, numHeads: 4, runtime });
    const x = new Random(1).tensor(2, 5, 12);
    const plain = mha.forward(x);
    expect(Object.keys(plain)).toEqual(['output']);
    expect(Object.keys(mha.forward(x, { needWeights: false }))).toEqual(['output']);
    for (const needWeights of ['averaged', 'perHead'] as const) {
      const got = mha.forward(x, { needWeights });
      expect(Object.keys(got).sort()).toEqual(['output', 'weights']);
      expectSameBits(got.output.data, plain.output.data);
    }
  });

  test('causality holds where weights are returned: none on later keys (weights/causal)', () => {
    const mha = new MultiHeadAttention({ embedDim: 12, numHeads: 4, numKvHeads: 2, runtime });
    const x = new Random(2).tensor(2, 150, 12);
    for (const needWeights of ['averaged', 'perHead'] as const) {
      const { data } = mha.forward(x, { causal: true, needWeights }).weights;
      let [later, all] = [0, 0];
      data.forEach((p, at) => {
        all += p;
        if (at % 150 > Math.floor(at / 150) % 150) later += p;
      });
      expect(later).toBe(0);
      // Each row sums to 1.
      expect(all / (data.length / 150)).toBeCloseTo(1, 5);
    }
  });

  test('identity queries and keys: 0.1691 on the diagonal, 0.1187 elsewhere (weights/identity)', () => {
    const eye = floats([8, 8], ...Array.from({ length: 64 }, (_, i) => Number(i % 9 === 0)));
    const { data } = scaledDotProductAttention(eye, eye, eye, { runtime, needWeights: 'perHead' }).weights;
    data.forEach((p, i) => expect(Math.abs(p - (i % 9 === 0 ? 0.1691 : 0.1187))).toBeLessThan(5.1e-5));
    const diagonal = Math.exp(1 / Math.sqrt(8));
    data.forEach((p, i) => expect(p).toBeCloseTo((i % 9 === 0 ? diagonal : 1) / (diagonal + 7), 6));
  });

  describe('grouped heads', () => {
    const random = new Random(3);
    const [B, L, S, D, Dv] = [2, 5, 9, 6, 7];
    const sizes = (heads: number): [Tensor, Tensor] => [random.tensor(B, heads, S, D), random.tensor(B, heads, S, Dv)];

    test('query heads that are no multiple of the key/value heads (gqa/multiple)', () => {
      const refused = { type: HeadwiseRangeError } as const;
      expectError(() => new MultiHeadAttention({ embedDim: 12, numHeads: 4, numKvHeads: 3, runtime }), {
        ...refused,
        code: 'out-of-range',
        call: 'new MultiHeadAttention()',
        argument: 'numKvHeads',
        got: '3 with numHeads 4',
        wanted: 'a divisor of numHeads',
      });
      expectError(() => scaledDotProductAttention(zeros(1, 4, L, D), zeros(1, 3, S, D), zeros(1, 3, S, Dv)), {
        ...refused,
        code: 'wrong-shape',
        call: 'scaledDotProductAttention()',
        argument: 'key.shape',
        got: `[1, 3, ${S}, ${D}]`,
        wanted: "of a number of heads that divides the query's 4",
      });
    });

    test('each key/value head serves neighbours: as plain heads that are repeated (gqa/repeat)', () => {
      const q = random.tensor(B, 6, L, D);
      const [k, v] = sizes(2);
      const repeat = ({ data, shape }: Tensor): Tensor => {
        const part = shape[2]! * shape[3]!;
        const copies = Array.from({ length: B * 6 }, (_, n) => Math.floor(n / 3) * part);
        const repeated = new Float32Array(B * 6 * part);
        copies.forEach((from, n) => repeated.set(data.subarray(from, from + part), n * part));
        return { data: repeated, shape: [B, 6, shape[2]!, shape[3]!] };
      };
      const grouped = scaledDotProductAttention(q, k, v, { runtime, causal: true });
      const plain = scaledDotProductAttention(q, repeat(k), repeat(v), { runtime, causal: true });
      expectSameBits(grouped.output.data, plain.output.data);
      const sees = (_b: number, _h: number, i: number, j: number): boolean => j <= i;
      const want = attention(headsOf(q), headsOf(repeat(k)), headsOf(repeat(v)), { sees });
      expectClose(grouped.output.data, want.output.flat(3), 1e-6);
    });

    test('one key/value head: a slice of scores for each query head (gqa/one-head)', () => {
      const q = random.tensor(B, 4, L, D);
      const [k, v] = sizes(1);
      const got = scaledDotProductAttention(q, k, v, { runtime, needWeights: 'perHead', needScores: 'raw' });
      expect([got.output.shape, got.weights.shape, got.scores!.shape]).toEqual([
        [B, 4, L, Dv],
        [B, 4, L, S],
        [B, 4, L, S],
      ]);
      const want = attention(headsOf(q), headsOf(k), headsOf(v));
      expectClose(got.weights.data, want.weights.flat(3), 1e-6);
      expectClose(got.output.data, want.output.flat(3), 1e-6);
    });
  });

  test('one learned key, then one of zeros; masks grow by columns that are seen (extra-keys/bias-and-zero)', () => {
    const both = { addBiasKv: true, addZeroAttn: true };
    const mha = new MultiHeadAttention({ embedDim: 1, numHeads: 1, scale: 1, bias: false, ...both, runtime });
    const one = floats([1, 1], 1);
    mha.loadStateDict({
      in_proj_weight: floats([3, 1], 1, 1, 1),
      'out_proj.weight': one,
      bias_k: floats([1, 1, 1], 2),
      bias_v: floats([1, 1, 1], 8),
    });
    const x = floats([1, 2, 1], 1, 3);
    const call = { needWeights: 'perHead', attendMask: mask([2, 2], 1, 0, 0, 0) } as const;
    const { output, weights } = mha.forward(x, { ...call, keyPaddingMask: mask([1, 2], 0, 1) });
    expect(weights.shape).toEqual([1, 1, 2, 4]);
    // Scores of query 1: 1 to the first key, 2 to the learned one, 0 to that of zeros; of query 3: 6 and 0.
    const softmax = (scores: number[]): number[] => {
      const sum = scores.reduce((a, s) => a + Math.exp(s), 0);
      return scores.map((s) => Math.exp(s) / sum);
    };
    const [first, second] = [softmax([1, -Infinity, 2, 0]), softmax([-Infinity, -Infinity, 6, 0])];
    expectClose(weights.data, [...first, ...second], 1e-6);
    expectClose(output.data, [first[0]! + 8 * first[2]!, 8 * second[2]!], 1e-6);
  });
});
