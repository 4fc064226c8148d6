// Options of the functional core all at once, against float64. Every build is tested.
import { type Runtime, type Tensor, alibiSlopes, load, scaledDotProductAttention } from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectClose, expectSameBits } from './helpers.js';
import { attention, headsOf } from './reference.js';

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
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
