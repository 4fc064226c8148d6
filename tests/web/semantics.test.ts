// What other libraries got wrong, one test for each: the numbers are worked out by hand. Every build is tested.
import {
  type Runtime,
  type Tensor,
  alibiSlopes,
  load,
  mergeAttention,
  rotaryEmbedding,
  scaledDotProductAttention,
} from 'headwise';
import { HeadwiseTypeError, MultiHeadAttention } from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, expectClose, expectError, expectSameBits, zeros } from './helpers.js';
import { attention, headsOf } from './reference.js';

const column = (...data: number[]): Tensor => ({ data: Float32Array.from(data), shape: [data.length, 1] });
const floats = (shape: number[], ...data: number[]): Tensor => ({ data: Float32Array.from(data), shape });
const mask = (shape: number[], ...data: number[]): { data: Uint8Array; shape: number[] } => ({
  data: Uint8Array.from(data),
  shape,
});

describe.each(['simd', 'relaxed'] as const)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });

  /** Output numbers of one head. */
  const attend = (q: Tensor, k: Tensor, v: Tensor, options: object = {}): number[] =>
    Array.from(scaledDotProductAttention(q, k, v, { runtime, ...options }).output.data);

  test('N-01 a row with every key hidden is 0, not NaN', () => {
    const attendMask = mask([2, 2], 0, 0, 1, 1);
    const options = { runtime, attendMask, needWeights: 'perHead', returnLse: true, returnMax: true } as const;
    const got = scaledDotProductAttention(column(1, 1), column(1, 2), column(10, 20), options);
    expectClose(got.output.data, [0, 17.310586]);
    expectClose(got.weights!.data.slice(0, 2), [0, 0], 0);
    expectClose(got.lse!.data, [-Infinity, 2.313262]);
    expectClose(got.rowMax!.data, [-Infinity, 2]);
  });

  test.each([NaN, Infinity, -Infinity])('N-04 %d behind a mask has no effect', (bad) => {
    const attendMask = mask([1, 2], 1, 0);
    expect(attend(column(1), column(1, bad), column(10, bad), { attendMask })).toEqual([10]);
    expect(attend(column(1), column(1, bad), column(10, bad), { keyLengths: 1 })).toEqual([10]);
    expect(attend(column(1), column(1, bad), column(10, bad), { causal: true })).toEqual([10]);
    expect(attend(column(1), column(1, bad), column(10, bad), { window: [0, 0] })).toEqual([10]);
    expect(attend(column(1), column(1, bad), column(10, bad), { attentionChunk: 1 })).toEqual([10]);
  });

  test('N-07, N-09 large scores of either sign', () => {
    const low = { runtime, returnLse: true, scale: 1 };
    const got = scaledDotProductAttention(column(1), column(-100000, -100001), column(10, 20), low);
    expectClose(got.output.data, [12.689414]);
    expect(Math.abs(got.lse!.data[0]! + 99999.687)).toBeLessThan(0.01);
    const high = scaledDotProductAttention(column(1), column(1000, 1001), column(10, 20), low);
    expectClose(high.output.data, [17.310586]);
    expectClose(high.lse!.data, [1001.313262]);
  });

  test('N-13 the cap comes before the mask: nothing leaks', () => {
    const attnBias = floats([1, 2], 0, -Infinity);
    expect(attend(column(1), column(1, 1), column(10, 20), { softcap: 2, attnBias })).toEqual([10]);
  });

  test('N-15 causal: start and end', () => {
    const [q, k, v] = [column(0), column(0, 0, 0, 0), column(1, 2, 3, 4)];
    expectClose(attend(q, k, v, { causal: 'end' }), [2.5]);
    expectClose(attend(q, k, v, { causal: 'start' }), [1]);
    expectClose(attend(q, k, v, { causal: true }), [1]);
  });

  test('N-17 a mask means the same through every public entry; names that flip it say so', () => {
    const [q, k, v] = [column(0), column(0, 0), column(10, 20)];
    expect(attend(q, k, v, { attendMask: mask([1, 2], 1, 0) })).toEqual([10]);
    expect(attend(q, k, v, { keyPaddingMask: undefined, attnBias: floats([1, 2], 0, -Infinity) })).toEqual([10]);
    const batched = [q, k, v].map(({ data, shape }) => ({ data, shape: [1, 1, ...shape] })) as unknown as [
      Tensor,
      Tensor,
      Tensor,
    ];
    expect(attend(...batched, { keyPaddingMask: mask([1, 2], 0, 1) })).toEqual([10]);
    const mha = new MultiHeadAttention({ embedDim: 1, numHeads: 1, runtime });
    const one = floats([1, 1], 1);
    mha.loadStateDict({
      in_proj_weight: floats([3, 1], 0, 0, 1),
      in_proj_bias: zeros(3),
      'out_proj.weight': one,
      'out_proj.bias': zeros(1),
    });
    const attendMask = mask([1, 2], 1, 0);
    expect(Array.from(mha.forward(q, k, v, { attendMask }).output.data)).toEqual([10]);
    const inside = mha.withBuffers({ queryLength: 1, keyLength: 2, options: { attendMask } }, (views) => {
      views.value.set([10, 20]);
      views.run();
      return Array.from(views.output);
    });
    expect(inside).toEqual([10]);
  });

  test('N-18 floats where a mask is wanted are an error', () => {
    expectError(() => attend(column(0), column(0, 0), column(10, 20), { attendMask: floats([1, 2], 1, 0) }), {
      type: HeadwiseTypeError,
      code: 'wrong-type',
      call: 'scaledDotProductAttention()',
      argument: 'attendMask.data',
      got: 'a Float32Array of 2',
      wanted: 'a Uint8Array of 0 and 1',
    });
  });

  test('N-19 a mask and causality go together', () => {
    const attendMask = mask([3, 3], 1, 1, 1, 1, 1, 0, 0, 1, 1);
    const [q, v] = [zeros(3, 1), column(1, 2, 3)];
    expectClose(attend(q, q, v, { attendMask, causal: true }), [1, 1.5, 2.5]);
  });

  test('N-21 every shape of the same mask gives the same bits', () => {
    const random = new Random(21);
    const [B, H, L, S] = [2, 4, 3, 5];
    const [q, k, v] = [random.tensor(B, H, L, 6), random.tensor(B, 2, S, 6), random.tensor(B, 2, S, 7)];
    const row = [1, 0, 1, 1, 0];
    const repeat = (...lead: number[]): { data: Uint8Array; shape: number[] } => {
      const count = lead.reduce((a, b) => a * b, 1);
      return mask([...lead, S], ...Array.from({ length: count }, () => row).flat());
    };
    const want = scaledDotProductAttention(q, k, v, { runtime, attendMask: repeat(L) }).output.data;
    for (const attendMask of [repeat(B, 1, L), repeat(B, H, L), repeat(1, H, L), repeat(B, 1, 1)]) {
      expectSameBits(scaledDotProductAttention(q, k, v, { runtime, attendMask }).output.data, want);
    }
  });

  test('N-24 a window counts without a mask, and the same with one that hides nothing', () => {
    const [q, v] = [zeros(4, 1), column(1, 2, 3, 4)];
    const window = [1, 0];
    expectClose(attend(q, q, v, { window }), [1, 1.5, 2.5, 3.5]);
    const attendMask = mask([4, 4], ...Array<number>(16).fill(1));
    expectClose(attend(q, q, v, { window, attendMask }), [1, 1.5, 2.5, 3.5]);
  });

  test('N-25 key lengths count without query lengths', () => {
    const [q, k, v] = [zeros(2, 1), zeros(4, 1), column(1, 3, 100, 100)];
    expectClose(attend(q, k, v, { keyLengths: 2 }), [2, 2]);
    expectClose(attend(q, k, v, { keyLengths: 2, queryLengths: 1 }), [2, 0]);
  });

  test('N-28 a window does not count the query itself', () => {
    const [q, v] = [zeros(4, 1), column(1, 2, 3, 4)];
    expectClose(attend(q, q, v, { causal: true, window: [1, 0] }), [1, 1.5, 2.5, 3.5]);
    expectClose(attend(q, q, v, { causal: true, window: [0, 0] }), [1, 2, 3, 4]);
    expectClose(attend(q, q, v, { window: [-1, 0] }), [1, 1.5, 2, 2.5]);
    expectClose(attend(q, q, v, { window: [0, -1] }), [2.5, 3, 3.5, 4]);
  });

  test('N-31 slopes for any number of heads', () => {
    expectClose(alibiSlopes(3), [0.0625, 0.00390625, 0.25], 0);
    expectClose(alibiSlopes(6), [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125], 0);
    const twelve = alibiSlopes(12);
    expectClose(
      twelve.slice(0, 8),
      [1, 2, 3, 4, 5, 6, 7, 8].map((n) => 2 ** -n),
      0,
    );
    expectClose(twelve.slice(8), [0.70710678, 0.35355339, 0.1767767, 0.08838835], 1e-7);
  });

  test('N-33 both layouts of rotary pairs', () => {
    const x = floats([1, 4], 1, 2, 3, 4);
    const options = { offset: 1, runtime };
    expectClose(rotaryEmbedding(x, options).data, [-1.984111, 1.959901, 2.462378, 4.0198], 1e-6);
    const interleaved = { ...options, interleaved: true };
    expectClose(rotaryEmbedding(x, interleaved).data, [-1.14264, 1.922076, 2.959851, 4.0298], 1e-6);
    expectClose(rotaryEmbedding(x, { ...options, dim: 2 }).data, [-1.14264, 1.922076, 3, 4], 1e-6);
    expect(Array.from(x.data)).toEqual([1, 2, 3, 4]);
  });

  test('N-35 grouped heads: each key/value head serves neighbours', () => {
    const got = attend(zeros(1, 4, 1, 3), zeros(1, 2, 1, 3), floats([1, 2, 1, 1], 10, 20));
    expect(got).toEqual([10, 10, 20, 20]);
  });

  test('N-38 sinks', () => {
    const sink = (x: number): number[] => attend(column(0), column(0, 0), column(3, 6), { sinks: Float32Array.of(x) });
    expectClose(sink(0), [3]);
    expect(sink(20)[0]! / 1.855038e-8).toBeCloseTo(1, 5);
    expectClose(sink(-Infinity), [4.5]);
    const none = { runtime, sinks: Float32Array.of(1.5), returnLse: true, attendMask: mask([1, 2], 0, 0) };
    const got = scaledDotProductAttention(column(0), column(0, 0), column(3, 6), none);
    expectClose([got.output.data[0]!, got.lse!.data[0]!], [0, 1.5]);
  });

  test('N-40 a sink is shifted by the maximum as every score', () => {
    expectClose(attend(column(1000), column(1, 1), column(3, 6), { sinks: Float32Array.of(0) }), [4.5]);
  });

  test('N-41 parts and their merging', () => {
    const [q, k, v] = [column(1), [0, 1, 2, 3], [1, 2, 3, 4]];
    const part = (begin: number, end: number): { output: Tensor; lse: Tensor } => {
      const [keys, values] = [column(...k.slice(begin, end)), column(...v.slice(begin, end))];
      const { output, lse } = scaledDotProductAttention(q, keys, values, { runtime, returnLse: true });
      return { output, lse: lse! };
    };
    const [a, b, none] = [part(0, 2), part(2, 4), part(4, 4)];
    expectClose([a.output.data[0]!, a.lse.data[0]!], [1.731059, 1.313262]);
    expectClose([b.output.data[0]!, b.lse.data[0]!], [3.731059, 3.313262]);
    expect([none.output.data[0], none.lse.data[0]]).toEqual([0, -Infinity]);
    const merged = mergeAttention([a, b], { runtime });
    expectClose([merged.output.data[0]!, merged.lse.data[0]!], [3.492653, 3.44019]);
    const more = mergeAttention([none, a, none, b], { runtime });
    expectSameBits(more.output.data, merged.output.data);
    expectSameBits(more.lse.data, merged.lse.data);
    const nothing = mergeAttention([none, none], { runtime });
    expect([nothing.output.data[0], nothing.lse.data[0]]).toEqual([0, -Infinity]);
  });

  test('N-51 hidden keys have weight 0, not little', () => {
    const options = { runtime, needWeights: 'perHead', attendMask: mask([1, 2], 0, 1), scale: 1 } as const;
    const got = scaledDotProductAttention(column(1), column(10000, 0), column(1, 2), options);
    expect(Array.from(got.weights!.data)).toEqual([0, 1]);
  });

  test('A-01 weights per head and averaged', () => {
    const mha = new MultiHeadAttention({ embedDim: 2, numHeads: 2, scale: 1, bias: false, runtime });
    const identity = [1, 0, 0, 1];
    mha.loadStateDict({
      in_proj_weight: floats([6, 2], ...identity, ...identity, ...identity),
      'out_proj.weight': floats([2, 2], ...identity),
    });
    const x = floats([2, 2], 1, 0, 0, 2);
    const perHead = mha.forward(x, { needWeights: 'perHead' }).weights!;
    expect(perHead.shape).toEqual([2, 2, 2]);
    expectClose(perHead.data, [0.731059, 0.268941, 0.5, 0.5, 0.5, 0.5, 0.017986, 0.982014]);
    const averaged = mha.forward(x, { needWeights: 'averaged' }).weights!;
    expect(averaged.shape).toEqual([2, 2]);
    expectClose(averaged.data, [0.615529, 0.384471, 0.258993, 0.741007]);
  });

  describe('all at once, against float64', () => {
    const random = new Random(77);
    const [B, H, Hkv, L, S, D, Dv] = [2, 6, 2, 9, 13, 6, 7];
    const [q, k, v] = [random.tensor(B, H, L, D), random.tensor(B, Hkv, S, D), random.tensor(B, Hkv, S, Dv)];
    const slopes = alibiSlopes(H);
    const sinks = Float32Array.from({ length: H }, (_, h) => h / 3 - 1);
    const headMask = Float32Array.from({ length: H }, (_, h) => (h === 2 ? 0 : 1 + h / 4));
    const offsets = [3, 1];
    test.each<[string, object, (b: number, i: number, j: number) => boolean]>([
      ['window', { window: [2, 1], queryOffset: offsets }, (b, i, j) => Math.abs(j - offsets[b]! - i + 0.5) <= 1.5],
      ['chunk', { attentionChunk: 4, queryOffset: offsets }, (b, i, j) => (offsets[b]! + i) >> 2 === j >> 2],
      [
        'prefix',
        { causal: true, queryOffset: offsets, prefixLengths: [6, 2] },
        (b, i, j) => j <= offsets[b]! + i || j < [6, 2][b]!,
      ],
    ])('%s with softcap, alibi, sinks and head mask', (_name, options, sees) => {
      const all = { softcap: 0.7, alibi: true, sinks, headMask, needScores: 'biased', needWeights: 'perHead' } as const;
      const got = scaledDotProductAttention(q, k, v, { runtime, ...all, ...options, returnLse: true, returnMax: true });
      const bias = (b: number, h: number, i: number, j: number): number => -slopes[h]! * Math.abs(offsets[b]! + i - j);
      const want = attention(headsOf(q), headsOf(k), headsOf(v), {
        softcap: 0.7,
        sinks,
        headMask,
        bias,
        sees: (b, _h, i, j) => sees(b, i, j),
      });
      expectClose(got.output.data, want.output.flat(3));
      expectClose(got.weights!.data, want.weights.flat(3));
      expectClose(got.lse!.data, want.lse.flat(2));
      // Scores and the largest of them agree with weights = exp(score - lse).
      got.scores!.data.forEach((score, at) => {
        const row = Math.floor(at / S);
        expect(Math.abs(Math.exp(score - got.lse!.data[row]!) - got.weights!.data[at]!)).toBeLessThan(1e-5);
      });
      got.rowMax!.data.forEach((most, row) => {
        const scores = got.scores!.data.slice(row * S, (row + 1) * S);
        expect(most).toBeCloseTo(Math.max(sinks[Math.floor(row / L) % H]!, ...scores), 6);
      });
    });

    test('raw and capped scores are those of every key, hidden or not', () => {
      const options = { runtime, causal: true, softcap: 0.5, scale: 0.3 } as const;
      const scores = (needScores: 'raw' | 'capped'): Float32Array =>
        scaledDotProductAttention(q, k, v, { ...options, needScores }).scores!.data;
      const [Q, K] = [headsOf(q), headsOf(k)];
      const dots = Q.flatMap((entry, b) =>
        entry.flatMap((rows, h) =>
          rows.flatMap((row) =>
            K[b]![Math.floor(h / 3)]!.map((key) => 0.3 * row.reduce((s, x, d) => s + x * key[d]!, 0)),
          ),
        ),
      );
      expectClose(scores('raw'), dots);
      expectClose(
        scores('capped'),
        dots.map((x) => 0.5 * Math.tanh(x / 0.5)),
      );
    });

    test('extra keys are seen by every query', () => {
      const [extraKey, extraValue] = [random.tensor(B, Hkv, 2, D), random.tensor(B, Hkv, 2, Dv)];
      const options = { runtime, causal: true, extraKey, extraValue, needWeights: 'perHead' } as const;
      const got = scaledDotProductAttention(q, k, v, options);
      expect(got.weights!.shape).toEqual([B, H, L, S + 2]);
      const join = (a: Tensor, e: Tensor): number[][][][] =>
        headsOf(a).map((entry, b) => entry.map((rows, h) => [...rows, ...headsOf(e)[b]![h]!]));
      const want = attention(headsOf(q), join(k, extraKey), join(v, extraValue), {
        sees: (_b, _h, i, j) => j <= i || j >= S,
      });
      expectClose(got.output.data, want.output.flat(3));
      expectClose(got.weights!.data, want.weights.flat(3));
      const shared = (t: Tensor): Tensor => ({ data: t.data.slice(0, t.data.length / B), shape: t.shape.slice(1) });
      const one = { ...options, extraKey: shared(extraKey), extraValue: shared(extraValue) };
      const first = scaledDotProductAttention(q, k, v, one).output.data.slice(0, H * L * Dv);
      expectSameBits(first, got.output.data.slice(0, H * L * Dv));
    });
  });
});
