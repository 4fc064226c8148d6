// What public test suites demand of key/value caches.
import {
  HeadwiseRangeError,
  HeadwiseTypeError,
  KvCache,
  MultiHeadAttention,
  type Runtime,
  type Tensor,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { parseSafetensors } from 'headwise/safetensors';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectClose, expectError, zeros } from '../helpers.js';
import { type Heads, attention, combine, project, rotate } from '../reference.js';

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });
  const [E, H, Hkv, D, n] = [24, 6, 2, 4, 9];
  const part = ({ data, shape }: Tensor, begin: number, end: number): Tensor => {
    const width = shape[1] ?? 1;
    return { data: data.slice(begin * width, end * width), shape: [end - begin, ...shape.slice(1)] };
  };
  /** A layer with random weights and biases, and its projections of x in float64. */
  function layer(options: object): {
    mha: MultiHeadAttention;
    projected: (x: Tensor) => Heads[];
    out: (h: Heads) => number[];
  } {
    const mha = new MultiHeadAttention({ embedDim: E, numHeads: H, numKvHeads: Hkv, ...options, runtime });
    const own = new Random(5);
    const dict = Object.fromEntries(
      Object.entries(mha.stateDict()).map(([name, { shape }]) => [name, own.tensor(...shape)]),
    );
    mha.loadStateDict(dict);
    const [w, b] = [dict['in_proj_weight']!, dict['in_proj_bias']!];
    const cuts = [0, H * D, (H + Hkv) * D, (H + 2 * Hkv) * D];
    return {
      mha,
      projected: (x) =>
        [H, Hkv, Hkv].map((heads, i) =>
          project(x, part(w, cuts[i]!, cuts[i + 1]!), part(b, cuts[i]!, cuts[i + 1]!), heads),
        ),
      out: (heads) => combine(heads, dict['out_proj.weight']!, dict['out_proj.bias']),
    };
  }
  const rows = ({ data, shape }: Tensor, begin: number, end: number): Tensor => {
    const [batch, length] = [shape[0]!, shape[1]!];
    const cut = Array.from({ length: batch }, (_, b) => [
      ...data.slice((b * length + begin) * E, (b * length + end) * E),
    ]);
    return { data: Float32Array.from(cut.flat()), shape: [batch, end - begin, E] };
  };

  test('token by token equals one causal pass of the reference (cache/steps)', () => {
    const { mha, projected, out } = layer({});
    const x = new Random(6).tensor(2, n, E);
    const [q, k, v] = projected(x) as [Heads, Heads, Heads];
    const want = out(attention(q, k, v, { sees: (_b, _h, i, j) => j <= i }).output);
    const cache = mha.createCache({ batch: 2, capacity: n });
    for (let t = 0; t < n; ++t) {
      const { data } = mha.forward(rows(x, t, t + 1), { cache, causal: true }).output;
      for (const b of [0, 1]) {
        expectClose(data.slice(b * E, (b + 1) * E), want.slice((b * n + t) * E, (b * n + t + 1) * E), 2e-5);
      }
    }
    expectClose(mha.forward(x, { causal: true }).output.data, want, 2e-5);
  });

  test('memory for the whole capacity and the key/value heads; its length counts the tokens (cache/size)', () => {
    const { mha } = layer({});
    const cache = mha.createCache({ batch: 2, capacity: 512 });
    expect(cache.config).toMatchObject({ batch: 2, numKvHeads: Hkv, headDim: D, vHeadDim: D, capacity: 512 });
    const { bytes } = cache;
    // Keys and values of Hkv heads, not of H; rows may be padded, but not to three times their size.
    expect(bytes).toBeGreaterThanOrEqual(2 * 512 * Hkv * (D + D) * 4);
    expect(bytes).toBeLessThan(2 * 512 * H * (D + D) * 4);
    expect(cache.lengths).toEqual([0, 0]);
    mha.forward(zeros(2, 3, E), { cache });
    expect(cache.lengths).toEqual([3, 3]);
    mha.forward(zeros(2, 1, E), { cache });
    expect(cache.lengths).toEqual([4, 4]);
    expect(cache.bytes).toBe(bytes);
  });

  test.each([false, true])('holds past and new rows behind bias and rotation, rope %s (cache/present)', (rope) => {
    const { mha, projected } = layer({ rope });
    const x = new Random(7).tensor(1, n, E);
    const cache = mha.createCache({ capacity: 16 });
    mha.forward(rows(x, 0, 4), { cache });
    const past = parseSafetensors(cache.save()).tensors;
    mha.forward(rows(x, 4, n), { cache });
    const present = parseSafetensors(cache.save()).tensors;
    const [, k, v] = projected(x) as [Heads, Heads, Heads];
    const turned = rope ? rotate(k, {}, (_b, i) => i) : k;
    for (const [name, want] of [
      ['key.0', turned],
      ['value.0', v],
    ] as const) {
      const [before, after] = [past[name]!, present[name]!];
      expect([before.shape, after.shape]).toEqual([
        [Hkv, 4, D],
        [Hkv, n, D],
      ]);
      expectClose(after.data as Float32Array, want.flat(3), 1e-5);
      for (let h = 0; h < Hkv; ++h) {
        const kept = (after.data as Float32Array).slice(h * n * D, (h * n + 4) * D);
        expect(kept).toEqual((before.data as Float32Array).slice(h * 4 * D, (h + 1) * 4 * D));
      }
    }
  });

  test('keys without values, values without keys, and lengths beside a cache (cache/halves)', () => {
    const cache = KvCache.create({ numKvHeads: 2, headDim: 4, capacity: 8, runtime });
    const good = zeros(2, 3, 4);
    const none = undefined as unknown as Tensor;
    const call = 'KvCache.append()';
    const wrong = { type: HeadwiseTypeError, code: 'wrong-type', call, got: 'undefined', wanted: 'a tensor' } as const;
    expectError(() => cache.append(good, none), { ...wrong, argument: 'value' });
    expectError(() => cache.append(none, good), { ...wrong, argument: 'key' });
    expect(() => cache.append(good, zeros(2, 2, 4))).toThrow(HeadwiseRangeError);
    expect(cache.length).toBe(0);
    cache.append(good, good);
    expectError(() => scaledDotProductAttention(zeros(1, 2, 1, 4), { cache, keyLengths: 2, runtime }), {
      type: HeadwiseTypeError,
      code: 'conflict',
      call: 'scaledDotProductAttention()',
      argument: 'keyLengths',
      got: 'given with a cache',
      wanted: 'left away',
    });
  });

  test('lengths from 0 to the whole buffer; others are refused, with entry and value (cache/lengths)', () => {
    const random = new Random(8);
    const [q, k, v] = [random.tensor(2, 2, 3, 4), random.tensor(2, 2, 7, 4), random.tensor(2, 2, 7, 5)];
    const attend = (keyLengths: number[]): Float32Array =>
      scaledDotProductAttention(q, k, v, { keyLengths, runtime }).output.data;
    const all = scaledDotProductAttention(q, k, v, { runtime }).output.data;
    const [full, empty] = [attend([7, 7]), attend([0, 7])];
    expect(full).toEqual(all);
    expect(empty.slice(0, 30)).toEqual(new Float32Array(30));
    expect(empty.slice(30)).toEqual(all.slice(30));
    for (const bad of [-1, 8]) {
      expectError(() => attend([7, bad]), {
        type: HeadwiseRangeError,
        code: 'out-of-range',
        call: 'scaledDotProductAttention()',
        argument: 'keyLengths[1]',
        got: String(bad),
        wanted: 'from 0 to 7',
      });
    }
  });
});
