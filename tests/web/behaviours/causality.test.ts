// What public test suites demand of causality and windows. All masks are compared with the one that says it pair by
// pair, to the bit.
import {
  type AttentionOptions,
  KvCache,
  type MaskTensor,
  type Runtime,
  type Tensor,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectClose, expectSameBits } from '../helpers.js';

const [B, H, D] = [2, 4, 6];
const random = new Random(92);

/** Inputs of L queries and S keys. */
const inputs = (L: number, S: number): [Tensor, Tensor, Tensor] => [
  random.tensor(B, H, L, D),
  random.tensor(B, 2, S, D),
  random.tensor(B, 2, S, 3),
];
const pairs = (L: number, S: number, sees: (b: number, i: number, j: number) => boolean): MaskTensor => ({
  data: Uint8Array.from({ length: B * L * S }, (_, at) => {
    const [j, i, b] = [at % S, Math.floor(at / S) % L, Math.floor(at / (S * L))];
    return Number(sees(b, i, j));
  }),
  shape: [B, 1, L, S],
});
const LENGTHS = [
  [7, 7],
  [4, 9],
  [9, 4],
] as const;

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });
  const bits = (qkv: [Tensor, Tensor, Tensor], options: AttentionOptions): Float32Array =>
    scaledDotProductAttention(...qkv, { runtime, ...options }).output.data;

  test.each(LENGTHS)(
    'causal is the lower triangle from the top left, %d queries and %d keys (causal/start)',
    (L, S) => {
      const qkv = inputs(L, S);
      const want = bits(qkv, { attendMask: pairs(L, S, (_b, i, j) => j <= i) });
      expectSameBits(bits(qkv, { causal: true }), want);
      expectSameBits(bits(qkv, { causal: 'start' }), want);
    },
  );

  test.each(LENGTHS)("causal: 'end' is that from the bottom right, %d queries and %d keys (causal/end)", (L, S) => {
    const qkv = inputs(L, S);
    const want = bits(qkv, { attendMask: pairs(L, S, (_b, i, j) => j <= i + S - L) });
    expectSameBits(bits(qkv, { causal: 'end' }), want);
    // Rows before the first key are empty.
    for (let row = 0; row < B * H * L; ++row) {
      expect(want.slice(row * 3, row * 3 + 3).every((x) => x === 0)).toBe((row % L) + S - L < 0);
    }
    if (L !== S) expect(bits(qkv, { causal: true })).not.toEqual(want);
  });

  test('causality and a mask go together (causal/with-mask)', () => {
    const qkv = inputs(5, 7);
    const attendMask = random.mask(0.7, 5, 7);
    const seen = (i: number, j: number): boolean => attendMask.data[i * 7 + j] === 1;
    const want = bits(qkv, { attendMask: pairs(5, 7, (_b, i, j) => j <= i && seen(i, j)) });
    expectSameBits(bits(qkv, { attendMask, causal: true }), want);
    expect(want).not.toEqual(bits(qkv, { attendMask }));
  });

  test.each(LENGTHS)('causality and padding in one call, %d queries and %d keys (causal/with-padding)', (L, S) => {
    const qkv = inputs(L, S);
    const keyPaddingMask = random.mask(0.4, B, S);
    const keyLengths = [S - 1, 2];
    const padded = (b: number, j: number): boolean => keyPaddingMask.data[b * S + j] === 1;
    const masked = pairs(L, S, (b, i, j) => j <= i && !padded(b, j));
    expectSameBits(bits(qkv, { keyPaddingMask, causal: true }), bits(qkv, { attendMask: masked }));
    const short = pairs(L, S, (b, i, j) => j <= i && j < keyLengths[b]!);
    expectSameBits(bits(qkv, { keyLengths, causal: true }), bits(qkv, { attendMask: short }));
  });

  test('a changed token changes its own output and all later ones, and no earlier bit (causal/field)', () => {
    const n = 9;
    const x = random.tensor(1, 2, n, D);
    const before = bits([x, x, x], { causal: true });
    for (let t = 0; t < n; ++t) {
      const changed = { data: x.data.slice(), shape: x.shape };
      for (let h = 0; h < 2; ++h) changed.data.fill(0.5, (h * n + t) * D, (h * n + t + 1) * D);
      const after = bits([changed, changed, changed], { causal: true });
      for (let row = 0; row < 2 * n; ++row) {
        const [was, is] = [before, after].map((all) => all.slice(row * D, (row + 1) * D));
        if (row % n < t) expectSameBits(is!, was!);
        else expect(is, `token ${row % n} with ${t} changed`).not.toEqual(was);
      }
    }
  });

  test('behind P tokens held, query i sees keys 0 to P + i (causal/internal-cache)', () => {
    const [P, n] = [5, 3];
    const [q, k, v] = inputs(n, P + n);
    const want = bits([q, k, v], { attendMask: pairs(n, P + n, (_b, i, j) => j <= P + i) });
    const part = ({ data, shape }: Tensor, begin: number, end: number): Tensor => {
      const [heads, length, width] = [B * 2, P + n, shape[3]!];
      const cut = Array.from({ length: heads }, (_, h) => [
        ...data.slice((h * length + begin) * width, (h * length + end) * width),
      ]);
      return { data: Float32Array.from(cut.flat()), shape: [B, 2, end - begin, width] };
    };
    const cache = KvCache.create({ batch: B, numKvHeads: 2, headDim: D, vHeadDim: 3, capacity: 16, runtime });
    cache.append(part(k, 0, P), part(v, 0, P));
    cache.append(part(k, P, P + n), part(v, P, P + n));
    expectSameBits(scaledDotProductAttention(q, { cache, causal: true, runtime }).output.data, want);
    // The same without a cache, by the offset.
    expectSameBits(bits([q, k, v], { causal: true, queryOffset: P }), want);
  });

  test('with n valid keys of a buffer, query i stands at n - L + i; rows before the first key are 0 (causal/external-cache)', () => {
    const [L, S] = [4, 9];
    const qkv = inputs(L, S);
    const keyLengths = [7, 2];
    const sees = (b: number, i: number, j: number): boolean => j < keyLengths[b]! && j <= keyLengths[b]! - L + i;
    const got = bits(qkv, { keyLengths, causal: 'end' });
    expectSameBits(got, bits(qkv, { attendMask: pairs(L, S, sees) }));
    for (let row = 0; row < B * H * L; ++row) {
      const empty = keyLengths[Math.floor(row / (H * L))]! - L + (row % L) < 0;
      expect(got.slice(row * 3, row * 3 + 3).every((x) => x === 0)).toBe(empty);
    }
  });

  describe('windows', () => {
    test('of w tokens, as Keras counts: [w - 1, 0] causal, [w - 1, w - 1] otherwise (window/keras)', () => {
      const n = 9;
      const qkv = inputs(n, n);
      for (const w of [1, 3, 20]) {
        const both = scaledDotProductAttention(...qkv, { runtime, window: [w - 1, w - 1], needWeights: 'perHead' });
        const near = (_b: number, i: number, j: number): boolean => Math.abs(i - j) < w;
        expectSameBits(both.output.data, bits(qkv, { attendMask: pairs(n, n, near) }));
        both.weights.data.forEach((p, at) => {
          if (Math.abs((Math.floor(at / n) % n) - (at % n)) >= w) expect(p).toBe(0);
        });
        const behind = pairs(n, n, (_b, i, j) => i - w < j && j <= i);
        expectSameBits(bits(qkv, { window: [w - 1, 0], causal: true }), bits(qkv, { attendMask: behind }));
      }
    });

    test('count neighbours, as ONNX and JAX; a cache counts tokens, as onnxruntime (window/units)', () => {
      const n = 9;
      const [q, k, v] = inputs(n, n);
      const left = 3;
      const counted = pairs(n, n, (_b, i, j) => i - left <= j && j <= i);
      const want = bits([q, k, v], { attendMask: counted });
      // Keys that the last query sees: left and itself.
      expect((counted.data as Uint8Array).slice(-n).reduce((a, x) => a + x, 0)).toBe(left + 1);
      expectSameBits(bits([q, k, v], { window: [left, 0] }), want);
      const cache = KvCache.create({ batch: B, numKvHeads: 2, headDim: D, vHeadDim: 3, window: left + 1, runtime });
      cache.append(k, v);
      expectSameBits(scaledDotProductAttention(q, { cache, causal: true, runtime }).output.data, want);
    });

    test('go with causality, with masks of every rank, and with both kinds of cache (window/composes)', () => {
      const [L, S] = [5, 9];
      const qkv = inputs(L, S);
      const window = [2, 1] as const;
      const inside = (i: number, j: number): boolean => i - 2 <= j && j <= i + 1;
      expectSameBits(bits(qkv, { window }), bits(qkv, { attendMask: pairs(L, S, (_b, i, j) => inside(i, j)) }));
      const causal = pairs(L, S, (_b, i, j) => inside(i, j) && j <= i);
      expectSameBits(bits(qkv, { window, causal: true }), bits(qkv, { attendMask: causal }));
      const attendMask = random.mask(0.7, L, S);
      const full = { data: attendMask.data, shape: [1, 1, L, S] };
      const masked = pairs(L, S, (_b, i, j) => inside(i, j) && attendMask.data[i * S + j] === 1);
      const want = bits(qkv, { attendMask: masked });
      expectSameBits(bits(qkv, { window, attendMask }), want);
      expectSameBits(bits(qkv, { window, attendMask: full }), want);
      const [q, k, v] = qkv;
      const one = ({ data, shape }: Tensor): Tensor => ({
        data: data.slice(0, data.length / B),
        shape: shape.slice(1),
      });
      const unbatched = { runtime, window, attendMask: { data: attendMask.data, shape: [1, L, S] } };
      const alone = scaledDotProductAttention(one(q), one(k), one(v), unbatched).output.data;
      expectSameBits(alone, want.slice(0, want.length / B));
      for (const shape of [[S], [1, L, S]]) {
        const data = new Uint8Array(shape.reduce((a, x) => a * x, 1)).fill(1);
        expect(() => bits(qkv, { window, attendMask: { data, shape } })).toThrow(RangeError);
      }

      // A cache that holds all, with a mask; the queries are the last tokens.
      const cache = KvCache.create({ batch: B, numKvHeads: 2, headDim: D, vHeadDim: 3, capacity: S, runtime });
      cache.append(k, v);
      const held = pairs(L, S, (_b, i, j) => inside(S - L + i, j) && attendMask.data[i * S + j] === 1);
      const overCache = scaledDotProductAttention(q, { cache, window, attendMask, runtime }).output.data;
      expectSameBits(overCache, bits(qkv, { attendMask: held }));
      // One that forgets, without.
      const rolling = KvCache.create({ batch: B, numKvHeads: 2, headDim: D, vHeadDim: 3, window: 3, runtime });
      rolling.append(k, v);
      const behind = pairs(L, S, (_b, i, j) => S - L + i - 2 <= j && j <= S - L + i);
      const overRolling = (options: Omit<AttentionOptions, 'cache'>): Float32Array =>
        scaledDotProductAttention(q, { cache: rolling, causal: true, runtime, ...options }).output.data;
      expectClose(overRolling({}), bits(qkv, { attendMask: behind }), 0);
      expectSameBits(overRolling({ window: [2, 0] }), overRolling({}));
      expect(() => overRolling({ attendMask })).toThrow(/attendMask is given with a rolling cache/);
    });
  });
});
