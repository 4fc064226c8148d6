// What others got wrong with numbers: empty rows, poison, large scores, sinks. Results are the list's, worked out by
// hand, within 1e-6 of their size.
import {
  type CacheDType,
  HeadwiseTypeError,
  KvCache,
  type Runtime,
  type Tensor,
  load,
  mergeAttention,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { VARIANTS, expectError, expectSameBits, zeros } from '../helpers.js';
import { attendIn, column, expectNear, floats, mask } from '../lists.js';

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });
  const attend = attendIn(() => runtime);

  test('a row with every key hidden is 0, not NaN (N-01)', () => {
    const attendMask = mask([2, 2], 0, 0, 1, 1);
    const options = { runtime, attendMask, needWeights: 'perHead', returnLse: true, returnMax: true } as const;
    const got = scaledDotProductAttention(column(1, 1), column(1, 2), column(10, 20), options);
    expectNear(got.output.data, [0, 17.310586]);
    expectNear(got.weights.data.slice(0, 2), [0, 0]);
    expectNear(got.lse!.data, [-Infinity, 2.313262]);
    expectNear(got.rowMax!.data, [-Infinity, 2]);
  });

  test.each([NaN, Infinity, -Infinity])('%d behind a mask has no effect (N-04)', (bad) => {
    const [q, k, v] = [column(1), column(1, bad), column(10, bad)];
    expect(attend(q, k, v, { attendMask: mask([1, 2], 1, 0) })).toEqual([10]);
    expect(attend(q, k, v, { attnBias: floats([1, 2], 0, -Infinity) })).toEqual([10]);
    expect(attend(q, k, v, { keyPaddingMask: mask([2], 0, 1) })).toEqual([10]);
    expect(attend(q, k, v, { keyLengths: 1 })).toEqual([10]);
    expect(attend(q, k, v, { causal: true })).toEqual([10]);
    expect(attend(q, k, v, { window: [0, 0] })).toEqual([10]);
    expect(attend(q, k, v, { attentionChunk: 1 })).toEqual([10]);
  });

  test('low scores are no masks (N-07), high ones no infinities (N-09)', () => {
    const options = { runtime, returnLse: true, scale: 1 };
    const low = scaledDotProductAttention(column(1), column(-100000, -100001), column(10, 20), options);
    expectNear(low.output.data, [12.689414]);
    expect(Math.abs(low.lse!.data[0]! + 99999.687)).toBeLessThanOrEqual(0.01);
    const high = scaledDotProductAttention(column(1), column(1000, 1001), column(10, 20), options);
    expectNear(high.output.data, [17.310586]);
    expectNear(high.lse!.data, [1001.313262]);
  });

  test('products of 16-bit numbers do not overflow, in a width no kernel was made for (N-11)', () => {
    for (const dtype of ['f32', 'f16', 'bf16'] as CacheDType[]) {
      const cache = KvCache.create({ numKvHeads: 1, headDim: 6, capacity: 2, dtype, runtime });
      const values = floats([1, 2, 6], 10, 10, 10, 10, 10, 10, 20, 20, 20, 20, 20, 20);
      cache.append(floats([1, 2, 6], ...Array<number>(12).fill(150)), values);
      const query = floats([1, 1, 6], ...Array<number>(6).fill(150));
      const got = scaledDotProductAttention(query, { cache, runtime, scale: 1, needScores: 'raw' });
      expect(Array.from(got.scores!.data)).toEqual([135000, 135000]);
      expectNear(got.output.data, Array<number>(6).fill(15));
      cache.dispose();
    }
  });

  test('float64 inputs are refused with the way to convert them, so no constant of theirs is cast (N-12)', () => {
    const query = { data: Float64Array.of(1, 1), shape: [2, 1] } as unknown as Tensor;
    expectError(() => attend(query, column(1, 2), column(10, 20)), {
      type: HeadwiseTypeError,
      code: 'wrong-type',
      call: 'scaledDotProductAttention()',
      argument: 'query.data',
      got: 'a Float64Array of 2',
      wanted: /a Float32Array.*Float32Array\.from/,
    });
  });

  test('the cap comes before the mask: nothing leaks (N-13)', () => {
    const attnBias = floats([1, 2], 0, -Infinity);
    expect(attend(column(1), column(1, 1), column(10, 20), { softcap: 2, attnBias })).toEqual([10]);
    const attendMask = mask([1, 2], 1, 0);
    expect(attend(column(1), column(1, 1), column(10, 20), { softcap: 2, attendMask })).toEqual([10]);
    // And there is a cap.
    const options = { runtime, scale: 1, softcap: 2, attnBias, needScores: 'biased' } as const;
    const { scores } = scaledDotProductAttention(column(1), column(5, 1), column(10, 20), options);
    expectNear(scores!.data, [2 * Math.tanh(2.5), -Infinity]);
  });

  test('a sink takes its share, of any size, and none at -Infinity (N-38)', () => {
    const sink = (x: number): number[] => attend(column(0), column(0, 0), column(3, 6), { sinks: Float32Array.of(x) });
    expectNear(sink(0), [3]);
    expectNear(sink(20), [1.855038e-8]);
    expectNear(sink(-Infinity), [4.5]);
    const none = { runtime, sinks: Float32Array.of(1.5), returnLse: true, attendMask: mask([1, 2], 0, 0) };
    const got = scaledDotProductAttention(column(0), column(0, 0), column(3, 6), none);
    expectNear([got.output.data[0]!, got.lse!.data[0]!], [0, 1.5]);
  });

  test('a sink is shifted by the maximum as every score (N-40)', () => {
    expectNear(attend(column(1000), column(1, 1), column(3, 6), { sinks: Float32Array.of(0) }), [4.5]);
  });

  test('parts of a call merge to the whole, empty ones too (N-41)', () => {
    const [q, k, v] = [column(1), [0, 1, 2, 3], [1, 2, 3, 4]];
    const part = (begin: number, end: number): { output: Tensor; lse: Tensor } => {
      const [keys, values] = [column(...k.slice(begin, end)), column(...v.slice(begin, end))];
      const { output, lse } = scaledDotProductAttention(q, keys, values, { runtime, returnLse: true });
      return { output, lse: lse! };
    };
    const numbers = ({ output, lse }: { output: Tensor; lse: Tensor }): number[] => [output.data[0]!, lse.data[0]!];
    const [a, b, all, none] = [part(0, 2), part(2, 4), part(0, 4), part(4, 4)];
    expectNear(numbers(a), [1.731059, 1.313262]);
    expectNear(numbers(b), [3.731059, 3.313262]);
    expectNear(numbers(none), [0, -Infinity]);
    const merged = mergeAttention([a, b], { runtime });
    expectNear(numbers(merged), [3.492653, 3.44019]);
    expectNear(numbers(mergeAttention([all, none], { runtime })), [3.492653, 3.44019]);
    const more = mergeAttention([none, a, none, b], { runtime });
    expectSameBits(more.output.data, merged.output.data);
    expectSameBits(more.lse.data, merged.lse.data);
    expectNear(numbers(mergeAttention([none, none], { runtime })), [0, -Infinity]);
  });

  test('the exponential is good to 2e-7, all the way to the smallest normal weight (N-46)', () => {
    const x = Float32Array.from({ length: 104 * 64 + 1 }, (_, n) => -n / 64);
    const attnBias = { data: Float32Array.from([...x].flatMap((score) => [0, score])), shape: [x.length, 2] };
    const { weights } = scaledDotProductAttention(zeros(x.length, 1), zeros(2, 1), zeros(2, 1), {
      runtime,
      attnBias,
      needWeights: 'perHead',
    });
    x.forEach((score, i) => {
      const want = Math.exp(score) / (1 + Math.exp(score));
      const got = weights.data[2 * i + 1]!;
      // Below the normal numbers a weight may be less exact, but not large.
      if (want < 2 ** -126) expect(got).toBeLessThanOrEqual(2 ** -126);
      // From -17 on the sum is exactly 1; before, it and the division round, by half of 2^-23 each.
      else expect(Math.abs(got / want - 1), `e^${score}`).toBeLessThanOrEqual(2e-7 + (score < -17 ? 0 : 2 ** -23));
    });
  });

  test('an infinite score makes its row NaN, and no other (N-47)', () => {
    const attendMask = mask([4, 2], 0, 1, 1, 1, 1, 0, 0, 1);
    const [k, v] = [column(Infinity, 0), column(10, 20)];
    expect(attend(column(1, 1, 1, 1), k, v, { attendMask })).toEqual([20, NaN, NaN, 20]);
    expect(attend(column(1), k, v)).toEqual([NaN]);
  });

  test('hidden keys have weight 0, not little (N-51)', () => {
    const options = { runtime, needWeights: 'perHead', scale: 1 } as const;
    const weights = (...seen: number[]): number[] => {
      const attendMask = mask([1, 3], ...seen);
      const [k, v] = [column(10000, 0, -10000), column(1, 2, 3)];
      return Array.from(scaledDotProductAttention(column(1), k, v, { ...options, attendMask }).weights.data);
    };
    expect(weights(0, 1, 1)).toEqual([0, 1, 0]);
    expect(weights(0, 0, 1)).toEqual([0, 0, 1]);
    expect(weights(1, 0, 0)).toEqual([1, 0, 0]);
  });
});
