// attentionTile(), inspect(), headStatistics(): parts of dense weights and scores, in every build.
import {
  HeadwiseRangeError,
  HeadwiseTypeError,
  type Runtime,
  attentionTile,
  headStatistics,
  inspect,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { type ExpectedError, Random, expectClose, expectError, zeros } from './helpers.js';

const random = new Random(31);
const [B, H, Hkv, L, S, D] = [2, 6, 2, 11, 150, 8];
const [q, k, v] = [random.tensor(B, H, L, D), random.tensor(B, Hkv, S, D), random.tensor(B, Hkv, S, 5)];
const options = {
  causal: 'end',
  keyLengths: [150, 90],
  window: [60, -1],
  softcap: 1.5,
  alibi: true,
  sinks: new Float32Array(H).fill(0.5),
  attendMask: random.mask(0.8, 1, H, L, S),
} as const;

describe.each(['simd', 'relaxed'] as const)('%s build', (variant) => {
  let runtime: Runtime;
  let weights: Float32Array;
  beforeAll(async () => {
    runtime = await load({ variant });
    weights = scaledDotProductAttention(q, k, v, { ...options, runtime, needWeights: 'perHead' }).weights!.data;
  });
  const rowOf = (b: number, h: number, i: number): Float32Array => {
    const at = ((b * H + h) * L + i) * S;
    return weights.slice(at, at + S);
  };

  test('a tile is a part of the dense weights', () => {
    const { lse } = scaledDotProductAttention(q, k, v, { ...options, runtime, returnLse: true });
    for (const given of [lse!, undefined]) {
      const tile = attentionTile(q, k, {
        ...options,
        runtime,
        lse: given,
        batch: 1,
        head: 4,
        rows: [3, 6],
        keys: [20, 95],
      });
      expect(tile.shape).toEqual([3, 75]);
      expectClose(
        tile.data,
        [3, 4, 5].flatMap((i) => [...rowOf(1, 4, i).slice(20, 95)]),
        1e-6,
      );
    }
  });

  test.each(['raw', 'capped', 'biased'] as const)('%s scores are those of needScores', (kind) => {
    const { scores } = scaledDotProductAttention(q, k, v, { ...options, runtime, needScores: kind });
    const got = inspect(q, k, { ...options, runtime, kind });
    expect(got.values!.shape).toEqual([B, H, L, S]);
    expectClose(got.values!.data, scores!.data, 1e-6);
  });

  test('any heads and rows, top keys, entropy, blocks', () => {
    const heads = [5, 0];
    const got = inspect(q, k, {
      ...options,
      runtime,
      heads,
      rows: [2, 9],
      keys: [10, 140],
      values: true,
      topK: 3,
      entropy: true,
      pooled: [3, 50],
    });
    const want = [0, 1].flatMap((b) =>
      heads.flatMap((h) => [2, 3, 4, 5, 6, 7, 8].map((i) => rowOf(b, h, i).slice(10, 140))),
    );
    expect(got.values!.shape).toEqual([B, 2, 7, 130]);
    expectClose(
      got.values!.data,
      want.flatMap((row) => [...row]),
      1e-6,
    );
    expect(got.entropy!.shape).toEqual([B, 2, 7]);
    expectClose(
      got.entropy!.data,
      want.map((row) => row.reduce((s, p) => (p > 0 ? s - p * Math.log(p) : s), 0)),
    );
    expect(got.topK!.shape).toEqual([B, 2, 7, 3]);
    want.forEach((row, at) => {
      const best = [...row.keys()].sort((x, y) => row[y]! - row[x]! || x - y).slice(0, 3);
      expect([...got.topK!.keys.slice(3 * at, 3 * at + 3)]).toEqual(best.map((j) => j + 10));
      expectClose(
        got.topK!.values.slice(3 * at, 3 * at + 3),
        best.map((j) => row[j]!),
        1e-6,
      );
    });
    expect(got.pooled!.shape).toEqual([B, 2, 3, 3]);
    const pooled = [0, 1, 2, 3].flatMap((group) =>
      [
        [0, 3],
        [3, 6],
        [6, 7],
      ].flatMap(([r0, r1]) =>
        [
          [0, 50],
          [50, 100],
          [100, 130],
        ].map(([c0, c1]) => {
          const block = want.slice(group * 7 + r0!, group * 7 + r1!).flatMap((row) => [...row.slice(c0, c1)]);
          return block.reduce((a, x) => a + x, 0) / block.length;
        }),
      ),
    );
    expectClose(got.pooled!.data, pooled, 1e-6);
  });

  test('entropy is right to the last bit but one of float32, for weights from 1 down to tiny ones', () => {
    // One key whose weight is p, in the company of others that share the rest.
    const logits = Float32Array.from({ length: 60 * 3 }, (_, i) => (i % 3 === 0 ? (i / 3) * 1.37 - 5 : 0));
    const query = { data: Float32Array.of(1), shape: [1, 1] };
    for (let row = 0; row < 60; ++row) {
      const key = { data: logits.slice(3 * row, 3 * row + 3), shape: [3, 1] };
      const { values, entropy } = inspect(query, key, { runtime, entropy: true, values: true });
      const want = values!.data.reduce((sum, p) => (p > 0 ? sum - p * Math.log(p) : sum), 0);
      expect(Math.abs(entropy!.data[0]! - want)).toBeLessThanOrEqual(2 ** -23 * want);
    }
  });

  test('fewer keys than topK: the rest is -1', () => {
    const got = inspect(zeros(1, 2), zeros(3, 2), { runtime, topK: 3, keyLengths: 2 });
    expect(got.topK!.shape).toEqual([1, 3]);
    expect([...got.topK!.keys]).toEqual([0, 1, -1]);
    expect([...got.topK!.values]).toEqual([0.5, 0.5, 0]);
  });

  test('without the batch axis, without rows', () => {
    expect(inspect(zeros(2, 3, 4), zeros(2, 5, 4), { runtime, entropy: true }).entropy!.shape).toEqual([2, 3]);
    expect(inspect(zeros(2, 0, 4), zeros(2, 5, 4), { runtime }).values!.shape).toEqual([2, 0, 5]);
    expect(attentionTile(zeros(3, 4), zeros(0, 4), { runtime }).shape).toEqual([3, 0]);
  });

  test('A-03 rows of a long sequence without L x S', async () => {
    const n = 8192;
    const [Q, K] = [random.tensor(1, 4, n, 16), random.tensor(1, 4, n, 16)];
    const got = inspect(Q, K, { runtime, causal: true, heads: [2], rows: [5, 10] }).values!;
    expect(got.shape).toEqual([1, 1, 5, n]);
    for (let i = 0; i < 5; ++i) {
      const row = got.data.slice(i * n, (i + 1) * n);
      expect(row.reduce((a, x) => a + x, 0)).toBeCloseTo(1, 5);
      expect(row.slice(6 + i).every((x) => x === 0)).toBe(true);
    }
    // 256 MB would be one head's matrix.
    expect(runtime.heapBytes).toBeLessThan(64 * 2 ** 20);
    const few = { data: Q.data.slice((2 * n + 5) * 16, (2 * n + 10) * 16), shape: [1, 1, 5, 16] };
    const one = { data: K.data.slice(2 * n * 16, 3 * n * 16), shape: [1, 1, n, 16] };
    const dense = { runtime, causal: true, queryOffset: 5, needWeights: 'perHead' } as const;
    expectClose(got.data, scaledDotProductAttention(few, one, one, dense).weights!.data, 1e-6);
  });

  test('head statistics', () => {
    const call = { runtime, causal: true, queryOffset: [3, 40] } as const;
    const dense = scaledDotProductAttention(q, k, v, { ...call, needWeights: 'perHead' }).weights!.data;
    const got = headStatistics(q, k, call);
    expect(got.self.shape).toEqual([B, H]);
    const mean = (f: (row: Float32Array, p: number) => number): number[] =>
      Array.from({ length: B * H }, (_, group) => {
        let sum = 0;
        for (let i = 0; i < L; ++i) {
          const at = (group * L + i) * S;
          sum += f(dense.slice(at, at + S), call.queryOffset[Math.floor(group / H)]! + i);
        }
        return sum / L;
      });
    expectClose(
      got.self.data,
      mean((row, p) => row[p]!),
      1e-6,
    );
    expectClose(
      got.previous.data,
      mean((row, p) => row[p - 1]!),
      1e-6,
    );
    expectClose(
      got.next.data,
      mean((row, p) => row[p + 1]!),
      1e-6,
    );
    expectClose(
      got.first.data,
      mean((row) => row[0]!),
      1e-6,
    );
    expectClose(
      got.entropy.data,
      mean((row) => row.reduce((s, p) => (p > 0 ? s - p * Math.log(p) : s), 0)),
    );
    // Queries that see nothing do not count.
    const some = headStatistics(zeros(4, 2), zeros(4, 2), { runtime, causal: true, queryLengths: 1 });
    expect([some.self.data[0], some.first.data[0], some.previous.data[0]]).toEqual([1, 1, 0]);
  });
});

test('rows that see no key: 0, or NaN as forward() gives them', () => {
  const call = { causal: true, queryLengths: [2, 11] } as const;
  for (const emptyRows of ['zero', 'nan'] as const) {
    const want = scaledDotProductAttention(q, k, v, { ...call, emptyRows, needWeights: 'perHead' }).weights.data;
    expect(want.some(Number.isNaN)).toBe(emptyRows === 'nan');
    expectClose(inspect(q, k, { ...call, emptyRows }).values!.data, want, 1e-6);
    const tile = attentionTile(q, k, { ...call, emptyRows, head: 3 });
    expectClose(tile.data, want.slice(3 * L * S, 4 * L * S), 1e-6);
  }
});

describe('bad arguments', () => {
  const RANGE = { type: HeadwiseRangeError, code: 'out-of-range' } as const;
  const TYPE = { type: HeadwiseTypeError, code: 'wrong-type' } as const;
  test.each<[string, object, Omit<ExpectedError, 'call'>]>([
    ['rows beyond', { rows: [0, 12] }, { ...RANGE, argument: 'rows[1]', got: '12', wanted: '0 to 11' }],
    [
      'rows that end before they begin',
      { rows: [3, 2] },
      { ...RANGE, argument: 'rows[0]', got: '3', wanted: '0 to 2' },
    ],
    ['keys as a number', { keys: 3 }, { ...TYPE, argument: 'keys', got: '3', wanted: '[begin, end]' }],
    ['a head beyond', { heads: [6] }, { ...RANGE, argument: 'heads[0]', got: '6', wanted: '0 to 5' }],
    ['heads as a number', { heads: 1 }, { ...TYPE, argument: 'heads', got: '1', wanted: 'an Array' }],
    ['topK 0', { topK: 0 }, { ...RANGE, argument: 'topK', got: '0', wanted: '1 to 150' }],
    ['a kind', { kind: 'logits' }, { ...RANGE, argument: 'kind', got: '"logits"', wanted: "'biased'" }],
    [
      'entropy of scores',
      { kind: 'raw', entropy: true },
      { ...TYPE, code: 'conflict', argument: 'entropy', got: "'raw'", wanted: "'weights'" },
    ],
    ['pooled as a number', { pooled: 2 }, { ...TYPE, argument: 'pooled', got: '2', wanted: '[rows, keys]' }],
    [
      'lse of another shape',
      { lse: zeros(2, 6, 3) },
      { ...RANGE, code: 'wrong-shape', argument: 'lse.shape', got: '[2, 6, 3]', wanted: '[2, 6, 11]' },
    ],
    [
      'needWeights',
      { needWeights: 'perHead' },
      { ...TYPE, code: 'unknown-option', argument: '"needWeights"', got: 'unknown', wanted: 'topK' },
    ],
    ['a bad mask', { softcap: -1 }, { ...RANGE, argument: 'softcap', got: '-1', wanted: 'positive, or 0' }],
  ])('%s', (_name, bad, expected) => {
    expectError(() => inspect(q, k, bad), { ...expected, call: 'inspect()' });
  });
  test('of a tile', () => {
    const call = 'attentionTile()';
    expectError(() => attentionTile(q, k, { head: 6 }), {
      ...RANGE,
      call,
      argument: 'head',
      got: '6',
      wanted: '0 to 5',
    });
    expectError(() => attentionTile(q, k, { batch: -1 }), {
      ...RANGE,
      call,
      argument: 'batch',
      got: '-1',
      wanted: '0 to 1',
    });
    expectError(() => attentionTile(q, zeros(2, 2, 7, 6)), {
      ...RANGE,
      code: 'wrong-shape',
      call,
      argument: 'key.shape',
      got: '[2, 2, 7, 6]',
      wanted: 'head size D',
    });
  });
});
