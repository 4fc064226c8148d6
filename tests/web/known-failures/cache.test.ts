// What others got wrong with key/value caches: slots that hold leftovers, evicted tokens, capacity.
import {
  type CacheDType,
  HeadwiseRangeError,
  KvCache,
  type Runtime,
  type Tensor,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectClose, expectError, zeros } from '../helpers.js';
import { floats } from '../lists.js';
import { attention, headsOf } from '../reference.js';

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });
  const values = (...data: number[]): Tensor => floats([1, data.length, 1], ...data);

  describe.each<CacheDType>(['f32', 'f16', 'bf16', 'int8'])('%s', (dtype) => {
    test.each([1, 2, 3, 4, 5, 6, 7, 8])('NaN in the slots behind %d tokens has no effect (N-05)', (n) => {
      const cache = KvCache.create({ numKvHeads: 1, headDim: 1, capacity: 8, dtype, runtime });
      const bad = values(...Array<number>(8).fill(NaN));
      cache.append(bad, bad);
      cache.clear();
      const tokens = Array.from({ length: n }, (_, i) => i + 1);
      cache.append(zeros(1, n, 1), values(...tokens));
      const { output } = scaledDotProductAttention(zeros(1, 1, 1), { cache, runtime });
      // The mean of 1 to n.
      expect(output.data[0]).toBe((n + 1) / 2);
    });
  });

  test('a mask works on 16-bit storage (N-10)', () => {
    for (const dtype of ['f16', 'bf16'] as const) {
      const cache = KvCache.create({ numKvHeads: 1, headDim: 1, capacity: 2, dtype, runtime });
      cache.append(zeros(1, 2, 1), values(10, 20));
      const attendMask = { data: [true, false], shape: [1, 2] };
      expect(scaledDotProductAttention(zeros(1, 1, 1), { cache, attendMask, runtime }).output.data[0]).toBe(10);
    }
  });

  test('with three keys held and one appended, causality ends at the last (N-15)', () => {
    const cache = KvCache.create({ numKvHeads: 1, headDim: 1, capacity: 4, runtime });
    cache.append(zeros(1, 3, 1), values(1, 2, 3));
    cache.append(zeros(1, 1, 1), values(4));
    for (const causal of [true, 'start', 'end'] as const) {
      expect(scaledDotProductAttention(zeros(1, 1, 1), { cache, causal, runtime }).output.data[0]).toBe(2.5);
    }
  });

  test('a window of 5 forgets NaN as soon as it has passed, at every length (K-03)', () => {
    const random = new Random(3);
    const [n, window] = [40, 5];
    const [q, k, v] = [random.tensor(1, 2, n, 3), random.tensor(1, 2, n, 3), random.tensor(1, 2, n, 4)];
    // Tokens 6 to 8 are poison: queries 6 to 12 see one of them, all others none.
    for (let h = 0; h < 2; ++h) {
      for (const { data, shape } of [k, v]) {
        const width = shape[3]!;
        data.fill(NaN, (h * n + 6) * width, (h * n + 9) * width);
      }
    }
    const row = ({ data, shape }: Tensor, i: number): Tensor => {
      const width = shape[3]!;
      return floats(
        [2, 1, width],
        ...[0, 1].flatMap((h) => [...data.slice((h * n + i) * width, (h * n + i + 1) * width)]),
      );
    };
    const want = attention(headsOf(q), headsOf(k), headsOf(v), { sees: (_b, _h, i, j) => j <= i && j > i - window });
    const cache = KvCache.create({ numKvHeads: 2, headDim: 3, vHeadDim: 4, window, runtime });
    for (let i = 0; i < n; ++i) {
      cache.append(row(k, i), row(v, i));
      const { output } = scaledDotProductAttention(row(q, i), { cache, causal: true, runtime });
      if (i >= 6 && i < 13) expect(output.data.every(Number.isNaN), `query ${i}`).toBe(true);
      else
        expectClose(
          output.data,
          [0, 1].flatMap((h) => want.output[0]![h]![i]!),
          1e-6,
        );
    }
  });

  test('five tokens into a capacity of four: an error, and the cache is as it was (K-10)', () => {
    const make = (): KvCache => KvCache.create({ numKvHeads: 1, headDim: 1, capacity: 4, runtime });
    const expected = {
      type: HeadwiseRangeError,
      code: 'out-of-range',
      call: 'KvCache.append()',
      argument: 'cache entry 0',
      wanted: 'at most 4, the capacity',
    } as const;
    const five = values(1, 2, 3, 4, 5);
    const empty = make();
    expectError(() => empty.append(five, five), { ...expected, got: '0 and 5 more' });
    expect(empty.save()).toEqual(make().save());
    const held = make();
    held.append(values(7, 8, 9), values(7, 8, 9));
    const before = held.save();
    expectError(() => held.append(values(1, 2), values(1, 2)), { ...expected, got: '3 and 2 more' });
    expect([held.save(), held.length]).toEqual([before, 3]);
  });
});
