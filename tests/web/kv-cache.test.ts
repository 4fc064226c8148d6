// The key/value cache: equal to attention over the whole sequence, whatever the steps; its life, its files, its errors.
import {
  type CacheDType,
  HeadwiseRangeError,
  HeadwiseTypeError,
  KvCache,
  MultiHeadAttention,
  type Runtime,
  SafetensorsError,
  type Tensor,
  UseAfterDisposeError,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { parseSafetensors, serializeSafetensors } from 'headwise/safetensors';
import { beforeAll, describe, expect, test } from 'vitest';
import { type ExpectedError, Random, expectClose, expectError, expectSameBits, zeros } from './helpers.js';
import { attention, headsOf } from './reference.js';

const E = 24;
const sizes = { embedDim: E, numHeads: 6, numKvHeads: 2 } as const;
let runtime: Runtime;
beforeAll(async () => {
  runtime = await load({ variant: 'simd' });
});

/** Rows [begin, end) of [B, n, E]. */
function rows({ data, shape }: Tensor, begin: number, end: number): Tensor {
  const [batch, n, width] = shape as [number, number, number];
  const parts = Array.from({ length: batch }, (_, b) => [
    ...data.subarray((b * n + begin) * width, (b * n + end) * width),
  ]);
  return { data: Float32Array.from(parts.flat()), shape: [batch, end - begin, width] };
}

/** Feeds x in steps of these lengths; the outputs, joined as [B, n, E]. */
function feed(
  mha: MultiHeadAttention,
  cache: KvCache,
  x: Tensor,
  steps: readonly number[],
  options = {},
): Float32Array {
  const [batch, n] = x.shape as [number, number];
  const out = new Float32Array(batch * n * E);
  let at = 0;
  for (const step of steps) {
    const { data } = mha.forward(rows(x, at, at + step), { cache, causal: true, ...options }).output;
    for (let b = 0; b < batch; ++b) {
      out.set(data.subarray(b * step * E, (b + 1) * step * E), (b * n + at) * E);
    }
    at += step;
  }
  return out;
}

const STEPS = [[7], [3, 4], [1, 1, 1, 1, 1, 1, 1]];
const VARIANTS: [string, object][] = [
  ['plain', {}],
  ['rope and qkNorm', { rope: true, qkNorm: true }],
  [
    'interleaved rope, scaled, of a part',
    { rope: { dim: 2, interleaved: true, scaling: { type: 'linear', factor: 2 } } },
  ],
  [
    'softcap, alibi, sinks, window',
    { softcap: 2, alibi: true, sinks: Float32Array.of(0, 1, -1, 0, 2, -Infinity), window: [3, 0] },
  ],
];

describe.each(VARIANTS)('K-01 %s: the steps do not matter', (_name, options) => {
  test.each([1, 3])('batch %d', (batch) => {
    const mha = new MultiHeadAttention({ ...sizes, ...options, runtime });
    const x = new Random(batch).tensor(batch, 7, E);
    const whole = mha.forward(x, { causal: true }).output.data;
    const saved = STEPS.map((steps) => {
      const cache = mha.createCache({ batch, capacity: 7 });
      expectSameBits(feed(mha, cache, x, steps), whole);
      expect(cache.lengths).toEqual(Array(batch).fill(7));
      return cache.save();
    });
    expect(saved[1]).toEqual(saved[0]);
    expect(saved[2]).toEqual(saved[0]);
    mha.dispose();
  });
});

describe('T-12 one sequence, wherever it stands', () => {
  const random = new Random(12);
  const [L, B] = [21, 4];
  const x = random.tensor(1, L, E);
  const place = (length: number, at: number, batch: number, entry: number): Tensor => {
    const t = random.tensor(batch, length, E);
    t.data.set(x.data, (entry * length + at) * E);
    return t;
  };
  const out = (data: Float32Array, length: number, at: number, entry: number): Float32Array =>
    data.slice((entry * length + at) * E, (entry * length + at + L) * E);

  test.each([false, true])('causal: %s', (causal) => {
    const mha = new MultiHeadAttention({ ...sizes, runtime });
    const alone = mha.forward(x, { causal }).output.data;
    const many = mha.forward(place(L, 0, B, 2), { causal }).output.data;
    expectSameBits(out(many, L, 0, 2), alone);
    const padded = (left: number, right: number): Float32Array => {
      const length = left + L + right;
      const data = Uint8Array.from({ length: B * length }, (_, i) =>
        Number(i % length < left || i % length >= left + L),
      );
      const keyPaddingMask = { data, shape: [B, length] };
      return out(mha.forward(place(length, left, B, 1), { causal, keyPaddingMask }).output.data, length, left, 1);
    };
    expectSameBits(padded(7, 0), alone);
    expectSameBits(padded(0, 9), alone);
    expectSameBits(padded(3, 5), alone);
    const right = mha.forward(place(L + 9, 0, B, 3), { causal, keyLengths: L }).output.data;
    expectSameBits(out(right, L + 9, 0, 3), alone);
    if (!causal) return;
    for (const steps of [Array<number>(L).fill(1), [5, 1, 15], [20, 1]]) {
      expectSameBits(feed(mha, mha.createCache({ capacity: L }), x, steps), alone);
    }
  });
});

test('K-03, K-08 a rolling cache is a window, at every length and however it is fed', () => {
  const mha = new MultiHeadAttention({ ...sizes, rope: true, runtime });
  const x = new Random(3).tensor(2, 40, E);
  const want = mha.forward(x, { causal: true, window: [4, 0] }).output.data;
  const random = new Random(8);
  for (let trial = 0; trial < 4; ++trial) {
    const steps: number[] = [];
    for (let left = 40; left > 0; left -= steps.at(-1)!)
      steps.push(Math.min(left, 1 + random.below(trial === 0 ? 1 : 17)));
    const cache = mha.createCache({ batch: 2, window: 5 });
    expectSameBits(feed(mha, cache, x, steps), want);
    expectSameBits(feed(mha, mha.createCache({ batch: 2, window: 5 }), x, steps, { window: [4, 0] }), want);
  }
});

describe('a rolling cache without causality', () => {
  const [window, sinkTokens, n] = [5, 2, 70];
  /** Whether query i of a call that ends before `appended` sees key j. */
  const sees = (i: number, j: number, appended: number, right: number): boolean =>
    j < appended && (right < 0 || j <= i + right) && (j < sinkTokens || j > i - window);

  test.each([
    [1, -1],
    [7, -1],
    [64, -1],
    [64, 3],
    [70, 0],
  ])('steps of %i, %i to the right: the window reaches back, what follows is seen', (step, right) => {
    const mha = new MultiHeadAttention({ ...sizes, rope: true, runtime });
    const x = new Random(41).tensor(2, n, E);
    const steps = Array.from({ length: Math.ceil(n / step) }, (_, i) => Math.min(step, n - i * step));
    const call = right < 0 ? { causal: false } : { causal: false, window: [-1, right] };
    const got = feed(mha, mha.createCache({ batch: 2, window, sinkTokens }), x, steps, call);
    const data = Uint8Array.from({ length: n * n }, (_, at) => {
      const i = Math.floor(at / n);
      return Number(sees(i, at % n, Math.min(n, (Math.floor(i / step) + 1) * step), right));
    });
    expectSameBits(got, mha.forward(x, { attendMask: { data, shape: [n, n] } }).output.data);
  });

  test('the functional core against float64', () => {
    const random = new Random(42);
    const [q, k, v] = [random.tensor(2, 6, 9, 4), random.tensor(2, 2, 20, 4), random.tensor(2, 2, 20, 3)];
    const cache = KvCache.create({ batch: 2, numKvHeads: 2, headDim: 4, vHeadDim: 3, window, sinkTokens, runtime });
    cache.append(k, v);
    const got = scaledDotProductAttention(q, { cache, runtime, returnLse: true });
    const want = attention(headsOf(q), headsOf(k), headsOf(v), { sees: (_b, _h, i, j) => sees(11 + i, j, 20, -1) });
    expectClose(got.output.data, want.output.flat(3));
    expectClose(got.lse!.data, want.lse.flat(2));
  });

  test('more than 64 queries at once are refused, and nothing has changed', () => {
    const mha = new MultiHeadAttention({ ...sizes, runtime });
    const cache = mha.createCache({ window });
    const x = new Random(43).tensor(1, 65, E);
    for (const options of [{}, { causal: false, window: [-1, 1] }] as const) {
      expectError(() => mha.forward(x, { cache, ...options }), {
        type: HeadwiseTypeError,
        code: 'conflict',
        call: 'MultiHeadAttention.forward()',
        argument: 'causal',
        got: 'false for 65 queries and a rolling cache',
        wanted: 'at most 64',
      });
      expect(cache.length).toBe(0);
    }
    const want = mha.forward(x, { cache, causal: true }).output.data;
    const windowed = new MultiHeadAttention({ ...sizes, window: [-1, 0], runtime });
    expectSameBits(windowed.forward(x, { cache: windowed.createCache({ window }) }).output.data, want);
    // What drops nothing takes all at once.
    expect(mha.forward(x, { cache: mha.createCache({ capacity: 65 }) }).output.shape).toEqual([1, 65, E]);
  });
});

test('K-05 any number of tokens at fixed memory: the first and the last ones are seen', () => {
  const mha = new MultiHeadAttention({ ...sizes, runtime });
  const [n, sinkTokens, window] = [1000, 4, 16];
  const x = new Random(5).tensor(1, n, E);
  const cache = mha.createCache({ window, sinkTokens });
  const { bytes } = cache;
  const got = feed(mha, cache, x, Array<number>(n).fill(1));
  expect(cache.bytes).toBe(bytes);
  expect(cache.length).toBe(n);
  expect(cache.capacity).toBe(Infinity);
  expect([0, 3, 4, 500, n - window, n - 1, n].map((p) => cache.holds(p))).toEqual([
    true,
    true,
    false,
    false,
    true,
    true,
    false,
  ]);
  const attendMask = {
    data: Uint8Array.from({ length: n * n }, (_, at) => {
      const [i, j] = [Math.floor(at / n), at % n];
      return Number(j <= i && (j < sinkTokens || j > i - window));
    }),
    shape: [n, n],
  };
  expectClose(got, mha.forward(x, { attendMask }).output.data, 1e-5);
});

test('K-06 int8: one scale a row, and rows of zeros', () => {
  const cache = KvCache.create({ numKvHeads: 1, headDim: 4, capacity: 2, dtype: 'int8', runtime });
  const row = { data: Float32Array.of(0.1, -0.5, 1.27, -1, 0, 0, 0, 0), shape: [1, 2, 4] };
  cache.append(row, row);
  const { tensors } = parseSafetensors(cache.save());
  expect(Array.from(tensors['key.0']!.data as Int8Array)).toEqual([10, -50, 127, -100, 0, 0, 0, 0]);
  expectClose(tensors['key_scale.0']!.data as Float32Array, [0.01, 0], 1e-7);
  const { output } = scaledDotProductAttention(zeros(1, 1, 4), { cache, runtime });
  expectClose(output.data, [0.05, -0.25, 0.635, -0.5]);
});

test.each<[CacheDType, number]>([
  ['f32', 0],
  ['f16', 2e-3],
  ['bf16', 2e-2],
  ['int8', 2e-2],
])('%s stays near float32', (dtype, tolerance) => {
  const mha = new MultiHeadAttention({ ...sizes, runtime });
  const x = new Random(6).tensor(2, 30, E);
  const want = mha.forward(x, { causal: true }).output.data;
  expectClose(feed(mha, mha.createCache({ batch: 2, capacity: 30, dtype }), x, [10, 20]), want, tolerance);
});

test('K-10 past the capacity: an error, and nothing has changed', () => {
  const mha = new MultiHeadAttention({ ...sizes, runtime });
  const cache = mha.createCache({ capacity: 4 });
  const x = new Random(1).tensor(1, 5, E);
  mha.forward(rows(x, 0, 3), { cache });
  const before = cache.save();
  const expected: ExpectedError = {
    type: HeadwiseRangeError,
    code: 'out-of-range',
    call: 'MultiHeadAttention.forward()',
    argument: 'cache entry 0',
    got: '3 and 2 more',
    wanted: 'at most 4, the capacity',
  };
  expectError(() => mha.forward(rows(x, 3, 5), { cache }), expected);
  expectError(() => cache.append(zeros(2, 2, 4), zeros(2, 2, 4)), { ...expected, call: 'KvCache.append()' });
  expect(cache.save()).toEqual(before);
  expect(cache.length).toBe(3);
});

test('entries of different lengths: padding rows are not stored', () => {
  const mha = new MultiHeadAttention({ ...sizes, rope: true, runtime });
  const random = new Random(2);
  const [x, y] = [random.tensor(2, 5, E), random.tensor(2, 1, E)];
  const cache = mha.createCache({ batch: 2, capacity: 8 });
  const got = mha.forward(x, { cache, causal: true, queryLengths: [5, 2], needWeights: 'averaged' });
  expect(cache.lengths).toEqual([5, 2]);
  expect(got.weights!.shape).toEqual([2, 5, 5]);
  const next = mha.forward(y, { cache, causal: true });
  expect(cache.lengths).toEqual([6, 3]);
  const short = mha.createCache({ capacity: 8 });
  const entry = (t: Tensor, n: number): Tensor => ({
    data: t.data.slice((t.data.length / 2) | 0, t.data.length / 2 + n * E),
    shape: [1, n, E],
  });
  mha.forward(entry(x, 2), { cache: short, causal: true });
  expectSameBits(mha.forward(entry(y, 1), { cache: short, causal: true }).output.data, next.output.data.slice(E));
});

describe('crop, fork, reorder, clear', () => {
  const random = new Random(4);
  const make = (batch: number): KvCache => KvCache.create({ batch, numKvHeads: 2, headDim: 4, capacity: 8, runtime });
  const tokens = (batch: number, n: number): Tensor => random.tensor(batch, 2, n, 4);

  test('a fork goes its own way', () => {
    const cache = make(1);
    cache.append(tokens(1, 3), tokens(1, 3));
    const fork = cache.fork();
    expect(fork.save()).toEqual(cache.save());
    fork.append(tokens(1, 2), tokens(1, 2));
    expect([cache.length, fork.length]).toEqual([3, 5]);
    fork.crop(3);
    expect(fork.save()).toEqual(cache.save());
    cache.dispose();
    expect(fork.length).toBe(3);
  });

  test('reorder', () => {
    const cache = make(3);
    cache.append(tokens(3, 4), tokens(3, 4), [4, 1, 2]);
    const { tensors: before } = parseSafetensors(cache.save());
    cache.reorder([2, 2, 0]);
    expect(cache.lengths).toEqual([2, 2, 4]);
    const { tensors: after } = parseSafetensors(cache.save());
    expect(after['key.0']).toEqual(before['key.2']);
    expect(after['key.1']).toEqual(before['key.2']);
    expect(after['value.2']).toEqual(before['value.0']);
  });

  test('crop one or all, and clear', () => {
    const cache = make(2);
    cache.append(tokens(2, 5), tokens(2, 5));
    cache.crop(2, 1);
    expect(cache.lengths).toEqual([5, 2]);
    expectError(() => cache.crop(3), {
      type: HeadwiseRangeError,
      code: 'out-of-range',
      call: 'KvCache.crop()',
      argument: 'length',
      got: '3',
      wanted: '0 to 2',
    });
    expect(cache.lengths).toEqual([5, 2]);
    cache.crop(1);
    expect(cache.lengths).toEqual([1, 1]);
    cache.clear();
    expect(cache.lengths).toEqual([0, 0]);
  });

  test('a rolling cache cannot go back to what it has dropped', () => {
    const cache = KvCache.create({ numKvHeads: 2, headDim: 4, window: 4, sinkTokens: 1, runtime });
    for (let i = 0; i < 200; ++i) cache.append(tokens(1, 1), tokens(1, 1));
    const before = cache.save();
    expectError(() => cache.crop(100), {
      type: HeadwiseRangeError,
      code: 'out-of-range',
      call: 'KvCache.crop()',
      argument: 'length',
      got: '100',
      wanted: 'dropped token 96',
    });
    expect(cache.save()).toEqual(before);
    cache.crop(198);
    expect(cache.length).toBe(198);
    // Cropped as far as it goes, it has no window left for a query before its end.
    let length = 198;
    while (cache.holds(length - 5)) cache.crop(--length);
    expectError(() => scaledDotProductAttention(zeros(1, 2, 3, 4), { cache, runtime }), {
      type: HeadwiseRangeError,
      code: 'out-of-range',
      call: 'scaledDotProductAttention()',
      argument: 'cache',
      got: 'without token',
      wanted: `the query at position ${length - 3} sees`,
    });
    expect(scaledDotProductAttention(zeros(1, 2, 1, 4), { cache, runtime }).output.shape).toEqual([1, 2, 1, 4]);
  });
});

describe('files', () => {
  test.each<[string, object]>([
    ['f32', { capacity: 20 }],
    ['f16', { capacity: 20, dtype: 'f16' }],
    ['int8 rolling', { window: 4, sinkTokens: 2, dtype: 'int8' }],
    ['bf16 rolling', { window: 4, dtype: 'bf16' }],
  ])('%s: what is restored goes on in the same bits', (_name, options) => {
    const mha = new MultiHeadAttention({ ...sizes, rope: true, runtime });
    const x = new Random(9).tensor(2, 18, E);
    const [cache, other] = [mha.createCache({ batch: 2, ...options }), mha.createCache({ batch: 2, ...options })];
    feed(mha, cache, rows(x, 0, 15), [15]);
    const bytes = cache.save();
    other.restore(bytes);
    expect(other.save()).toEqual(bytes);
    const next = rows(x, 15, 18);
    expectSameBits(feed(mha, other, next, [1, 2]), feed(mha, cache, next, [1, 2]));
  });

  test('what does not fit is refused, and nothing has changed', () => {
    const make = (options: object): KvCache =>
      KvCache.create({ numKvHeads: 2, headDim: 4, capacity: 8, runtime, ...options });
    const cache = make({});
    cache.append(zeros(2, 5, 4), zeros(2, 5, 4));
    const bytes = cache.save();
    const call = 'KvCache.restore()';
    const refused = (target: KvCache, file: Uint8Array, argument: string, got: string, wanted: string): void => {
      const before = target.save();
      expectError(() => target.restore(file), {
        type: SafetensorsError,
        code: 'safetensors',
        call,
        argument,
        got,
        wanted,
      });
      expect(target.save()).toEqual(before);
    };
    refused(make({ dtype: 'f16' }), bytes, 'dtype of the file', 'f32', 'f16');
    refused(make({ headDim: 6 }), bytes, 'headDim of the file', '4', '6');
    refused(make({ capacity: 4 }), bytes, 'length of entry 0', '5', 'at most 4');
    const { tensors, metadata } = parseSafetensors(bytes);
    const changed = (t: object, m: object): Uint8Array =>
      serializeSafetensors({ ...tensors, ...t } as never, { ...metadata, ...m });
    refused(cache, changed({}, { format: 'x' }), 'format of the file', '"x"', 'headwise-kv-cache-1');
    refused(cache, changed({}, { lengths: '-1' }), 'lengths of the file', '"-1"', '1 whole numbers');
    refused(cache, changed({}, { lengths: '6' }), 'tensor "key.0"', 'F32 [2, 5, 4]', 'F32 [2, 6, 4]');
    refused(cache, changed({ extra: zeros(1) }, {}), 'tensor "extra"', 'there', 'no part of a cache');
    expect(() => cache.restore(bytes.slice(0, 20))).toThrow(SafetensorsError);
    // A rolling cache whose file claims more rows than there is room for.
    const rolling = KvCache.create({ numKvHeads: 1, headDim: 1, window: 2, runtime });
    const many = { data: new Float32Array(500), shape: [1, 500, 1] };
    const names = { batch: 1, numKvHeads: 1, headDim: 1, vHeadDim: 1, window: 2, sinkTokens: 0, dtype: 'f32' };
    const strings = Object.fromEntries(Object.entries(names).map(([name, value]) => [name, String(value)]));
    const facts = { ...strings, format: 'headwise-kv-cache-1', lengths: '500', firsts: '0' };
    const file = serializeSafetensors({ 'key.0': many, 'value.0': many }, facts);
    refused(rolling, file, 'first token of entry 0', '0', 'have room');
  });
});

describe('errors', () => {
  const call = 'KvCache.create()';
  const good = { numKvHeads: 2, headDim: 4, capacity: 8 };
  test.each<[string, object, Partial<ExpectedError>]>([
    [
      'no capacity',
      { numKvHeads: 2, headDim: 4 },
      { argument: 'capacity', got: 'undefined', wanted: 'a whole number' },
    ],
    [
      'capacity 0',
      { ...good, capacity: 0 },
      { type: HeadwiseRangeError, code: 'out-of-range', argument: 'capacity', got: '0', wanted: '1 to' },
    ],
    [
      'both',
      { ...good, window: 4 },
      { code: 'conflict', argument: 'capacity', got: 'given with a window', wanted: 'left away' },
    ],
    [
      'sinks without a window',
      { ...good, sinkTokens: 1 },
      { code: 'conflict', argument: 'sinkTokens', got: '1 without a window', wanted: 'left away' },
    ],
    [
      'a dtype',
      { ...good, dtype: 'f64' },
      { type: HeadwiseRangeError, code: 'out-of-range', argument: 'dtype', got: '"f64"', wanted: "'int8'" },
    ],
    [
      'a name',
      { ...good, size: 4 },
      { code: 'unknown-option', argument: '"size"', got: 'unknown', wanted: 'capacity' },
    ],
    ['no heads', { headDim: 4, capacity: 8 }, { argument: 'numKvHeads', got: 'undefined', wanted: 'a whole number' }],
  ])('%s', (_name, options, expected) => {
    expectError(() => KvCache.create({ runtime, ...options } as never), {
      type: HeadwiseTypeError,
      code: 'wrong-type',
      call,
      argument: '',
      got: '',
      wanted: '',
      ...expected,
    });
  });

  test('calls that contradict a cache', async () => {
    const mha = new MultiHeadAttention({ ...sizes, runtime });
    const x = zeros(1, 2, E);
    const plain = mha.createCache({ capacity: 8 });
    const rolling = mha.createCache({ window: 4 });
    const conflict = { type: HeadwiseTypeError, code: 'conflict', call: 'MultiHeadAttention.forward()' } as const;
    const mask = { data: new Uint8Array(4).fill(1), shape: [2, 2] };
    const cases: [object, string, string, string][] = [
      [{ cache: plain, keyLengths: 1 }, 'keyLengths', 'given with a cache', 'left away'],
      [{ cache: plain, queryOffset: 1, causal: true }, 'queryOffset', 'given with a cache', 'left away'],
      [
        { cache: plain, keyPaddingMask: { data: new Uint8Array(2), shape: [1, 2] } },
        'keyPaddingMask',
        'given with a cache',
        'left away',
      ],
      [{ cache: rolling, attendMask: mask }, 'attendMask', 'given with a rolling cache', 'left away'],
      [{ cache: rolling, attnBias: zeros(2, 2) }, 'attnBias', 'given with a rolling cache', 'left away'],
      [{ cache: rolling, needWeights: 'perHead' }, 'needWeights', 'given with a rolling cache', 'left away'],
      [{ cache: rolling, needScores: 'raw' }, 'needScores', 'given with a rolling cache', 'left away'],
      [{ cache: rolling, causal: true, prefixLengths: 1 }, 'prefixLengths', 'given with a rolling cache', 'left away'],
      [{ cache: rolling, window: [4, 0] }, 'window', '[4, 0] with a rolling cache of window 4', '[3, 0]'],
    ];
    for (const [options, argument, got, wanted] of cases) {
      expectError(() => mha.forward(x, options), { ...conflict, argument, got, wanted });
    }
    expect([plain.length, rolling.length]).toEqual([0, 0]);
    const windowed = new MultiHeadAttention({ ...sizes, window: [7, 0], runtime });
    const other = windowed.createCache({ window: 4 });
    expectError(() => windowed.forward(x, { cache: other }), {
      ...conflict,
      argument: 'window',
      got: '[7, 0]',
      wanted: '[3, 0]',
    });
    expectError(() => mha.forward(x, zeros(1, 3, E), { cache: plain }), {
      ...conflict,
      type: HeadwiseRangeError,
      code: 'wrong-shape',
      argument: 'key.shape',
      got: 'length 3 with 2 queries',
      wanted: 'length 2',
    });
    expectError(() => mha.forward(zeros(2, 2, E), { cache: plain }), {
      ...conflict,
      type: HeadwiseRangeError,
      code: 'wrong-shape',
      argument: 'cache',
      got: 'batch 1',
      wanted: 'batch 2',
    });
    expectError(() => mha.forward(x, { cache: {} as KvCache }), {
      ...conflict,
      code: 'wrong-type',
      argument: 'cache',
      got: 'an object',
      wanted: 'a KvCache',
    });
    const zero = new MultiHeadAttention({ ...sizes, addZeroAttn: true, runtime });
    expectError(() => zero.forward(x, { cache: zero.createCache({ capacity: 4 }) }), {
      ...conflict,
      argument: 'cache',
      got: 'addZeroAttn',
      wanted: 'left away',
    });
    expectError(() => mha.withBuffers({ queryLength: 1, options: { cache: plain } as never }, () => 0), {
      ...conflict,
      call: 'MultiHeadAttention.withBuffers()',
      argument: 'options.cache',
      got: 'given',
      wanted: 'left away',
    });
    const elsewhere = await load({ variant: 'relaxed' });
    const foreign = KvCache.create({ numKvHeads: 2, headDim: 4, capacity: 4, runtime: elsewhere });
    expectError(() => mha.forward(x, { cache: foreign }), {
      ...conflict,
      argument: 'cache',
      got: 'of another runtime',
      wanted: 'of the runtime of this call',
    });
    const sdpa = { ...conflict, call: 'scaledDotProductAttention()' };
    const q = zeros(1, 6, 1, 4);
    expectError(() => scaledDotProductAttention(q, q, q, { cache: plain, runtime }), {
      ...sdpa,
      argument: 'cache',
      got: 'given with key and value',
      wanted: 'given alone',
    });
    expectError(() => scaledDotProductAttention(q, { cache: plain, extraKey: zeros(2, 1, 4), runtime }), {
      ...sdpa,
      argument: 'extraKey',
      got: 'given with a cache',
      wanted: 'left away',
    });
    expectError(() => scaledDotProductAttention(zeros(1, 5, 1, 4), { cache: plain, runtime }), {
      ...sdpa,
      type: HeadwiseRangeError,
      code: 'wrong-shape',
      argument: 'query.shape',
      got: '[1, 5, 1, 4]',
      wanted: 'a multiple of 2 heads',
    });
    expectError(() => scaledDotProductAttention(zeros(1, 6, 65, 4), { cache: rolling, runtime }), {
      ...sdpa,
      type: HeadwiseRangeError,
      code: 'wrong-shape',
      argument: 'query.shape',
      got: '[1, 6, 65, 4]',
      wanted: 'at most 64',
    });
  });

  test('a disposed cache', () => {
    const cache = KvCache.create({ ...good, runtime });
    cache.dispose();
    cache.dispose();
    expect(cache.disposed).toBe(true);
    const disposed = {
      type: UseAfterDisposeError,
      code: 'disposed',
      argument: 'this KvCache',
      got: 'disposed',
      wanted: 'alive',
    } as const;
    expectError(() => cache.length, { ...disposed, call: 'KvCache.length' });
    expectError(() => cache.save(), { ...disposed, call: 'KvCache.save()' });
    expectError(() => scaledDotProductAttention(zeros(1, 2, 1, 4), { cache, runtime }), {
      ...disposed,
      call: 'scaledDotProductAttention()',
    });
  });
});

test('M-15 the cache of a finished generation is freed', async () => {
  const own = await load({
    variant: 'simd',
    wasmUrl: new URL('../../web/dist/wasm/headwise.simd.wasm', import.meta.url),
  });
  const mha = new MultiHeadAttention({ ...sizes, runtime: own });
  const generate = (): void => {
    const cache = mha.createCache({ capacity: 4096 });
    feed(mha, cache, zeros(1, 40, E), [20, 20]);
    cache.dispose();
  };
  generate();
  const after = own.heapBytes;
  for (let i = 0; i < 20; ++i) generate();
  expect(own.heapBytes).toBe(after);
  own.dispose();
});
