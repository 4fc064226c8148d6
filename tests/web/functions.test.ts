// rotaryEmbedding(), mergeAttention(), relativePositionBias(), alibiSlopes(): against float64, and their bad arguments.
import {
  HeadwiseRangeError,
  HeadwiseTypeError,
  type RopeScaling,
  type Tensor,
  alibiSlopes,
  load,
  mergeAttention,
  relativePositionBias,
  rotaryEmbedding,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { type ExpectedError, Random, expectClose, expectError, expectSameBits, zeros } from './helpers.js';
import { headsOf, rotate } from './reference.js';

beforeAll(async () => {
  await load();
});
const RANGE = { type: HeadwiseRangeError, code: 'out-of-range' } as const;
const SHAPE = { ...RANGE, code: 'wrong-shape' } as const;
const TYPE = { type: HeadwiseTypeError, code: 'wrong-type' } as const;
const CONFLICT = { ...TYPE, code: 'conflict' } as const;

describe('rotaryEmbedding()', () => {
  const [B, H, L, D] = [2, 3, 5, 8];
  const x = new Random(33).tensor(B, H, L, D);
  const positions = Int32Array.from({ length: B * L }, (_, i) => (7 * i) % 23);
  const at = (b: number, i: number): number => positions[b * L + i]!;

  test.each([false, true])('interleaved %s, against float64', (interleaved) => {
    for (const dim of [8, 6, 2]) {
      const got = rotaryEmbedding(x, { positions, interleaved, dim, base: 500 });
      expect(got.shape).toEqual(x.shape);
      expectClose(got.data, rotate(headsOf(x), { interleaved, dim, base: 500 }, at).flat(3));
    }
  });

  test('tables do the same as base', () => {
    const table = (f: (angle: number) => number): Tensor => ({
      data: Float32Array.from({ length: 23 * 4 }, (_, i) => f(Math.floor(i / 4) * 10000 ** (-(i % 4) / 4))),
      shape: [23, 4],
    });
    const [cos, sin] = [table(Math.cos), table(Math.sin)];
    expectClose(rotaryEmbedding(x, { cos, sin, positions }).data, rotaryEmbedding(x, { positions }).data, 1e-6);
    expectClose(
      rotaryEmbedding(x, { cos, sin, offset: [0, 9], interleaved: true }).data,
      rotaryEmbedding(x, { offset: [0, 9], interleaved: true }).data,
      1e-6,
    );
    const call = 'rotaryEmbedding()';
    expectError(() => rotaryEmbedding(x, { cos, sin, offset: 20 }), {
      ...RANGE,
      call,
      argument: 'the position of row 3',
      got: '23',
      wanted: '0 to 22',
    });
    expectError(() => rotaryEmbedding(x, { cos }), {
      ...CONFLICT,
      call,
      argument: 'cos',
      got: 'given alone',
      wanted: 'sin',
    });
    expectError(() => rotaryEmbedding(x, { cos, sin, base: 5 }), {
      ...CONFLICT,
      call,
      argument: 'base',
      got: 'given with cos and sin',
      wanted: 'left away',
    });
    expectError(() => rotaryEmbedding(x, { cos, sin: zeros(3, 4) }), {
      ...SHAPE,
      call,
      argument: 'cos.shape',
      got: '[3, 4]',
      wanted: 'as sin',
    });
  });

  test('layouts, ranks, out', () => {
    const one = { data: x.data.slice(0, L * D), shape: [L, D] };
    const want = rotaryEmbedding(one).data;
    expectSameBits(rotaryEmbedding({ ...one, shape: [1, L, D] }).data, want);
    expectSameBits(rotaryEmbedding({ ...one, shape: [1, L, 1, D] }, { layout: 'BLHD' }).data, want);
    const out = new Float32Array(L * D);
    expect(rotaryEmbedding(one, { out }).data).toBe(out);
    expectSameBits(out, want);
    expect(rotaryEmbedding(zeros(2, 0, 8)).shape).toEqual([2, 0, 8]);
  });

  /** Frequencies as the papers and model code define them. */
  const frequency = (s: RopeScaling, i: number): { f: number; m: number } => {
    const plain = 10000 ** (-i / 4);
    if (s.type === 'linear') return { f: plain / s.factor, m: 1 };
    if (s.type === 'ntk') return { f: (10000 * s.factor ** (8 / 6)) ** (-i / 4), m: 1 };
    const wave = (2 * Math.PI) / plain;
    const length = s.originalLength!;
    if (s.type === 'llama3') {
      if (wave < length / 4) return { f: plain, m: 1 };
      if (wave > length) return { f: plain / s.factor, m: 1 };
      const smooth = (length / wave - 1) / 3;
      return { f: (1 - smooth) * (plain / s.factor) + smooth * plain, m: 1 };
    }
    const bound = (beta: number): number => (8 * Math.log(length / (beta * 2 * Math.PI))) / (2 * Math.log(10000));
    const [low, high] = [Math.max(0, Math.floor(bound(32))), Math.min(7, Math.ceil(bound(1)))];
    const ramp = Math.min(1, Math.max(0, (i - low) / Math.max(high - low, 0.001)));
    return { f: (plain / s.factor) * ramp + plain * (1 - ramp), m: 0.1 * Math.log(s.factor) + 1 };
  };
  test.each<RopeScaling>([
    { type: 'linear', factor: 4 },
    { type: 'ntk', factor: 2 },
    { type: 'yarn', factor: 4, originalLength: 2048 },
    { type: 'llama3', factor: 8, originalLength: 100 },
  ])('scaling $type', (scaling) => {
    const row = { data: Float32Array.from({ length: 8 }, (_, d) => d + 1), shape: [1, 8] };
    const got = rotaryEmbedding(row, { offset: 5, scaling }).data;
    const want = Array.from({ length: 8 }, (_, d) => {
      const i = d % 4;
      const { f, m } = frequency(scaling, i);
      const [a, b] = [row.data[i]!, row.data[i + 4]!];
      return m * (d < 4 ? a * Math.cos(5 * f) - b * Math.sin(5 * f) : a * Math.sin(5 * f) + b * Math.cos(5 * f));
    });
    expectClose(got, want);
  });

  test.each<[string, object, Omit<ExpectedError, 'call'>]>([
    ['dim', { dim: 3 }, { ...RANGE, argument: 'dim', got: '3', wanted: 'even' }],
    [
      'positions and offset',
      { positions, offset: 1 },
      { ...CONFLICT, argument: 'offset', got: 'given with positions', wanted: 'left away' },
    ],
    [
      'positions',
      { positions: new Int32Array(2) },
      { ...SHAPE, argument: 'positions', got: '2 long', wanted: '10 long' },
    ],
    ['a name', { theta: 1 }, { ...TYPE, code: 'unknown-option', argument: '"theta"', got: 'unknown', wanted: 'base' }],
    ['layout', { layout: 'HBLD' }, { ...RANGE, argument: 'layout', got: '"HBLD"', wanted: "'BHLD'" }],
  ])('bad %s', (_name, options, expected) => {
    expectError(() => rotaryEmbedding(x, options), { ...expected, call: 'rotaryEmbedding()' });
  });
  test('bad x', () => {
    expectError(() => rotaryEmbedding(zeros(8)), {
      ...SHAPE,
      call: 'rotaryEmbedding()',
      argument: 'x.shape',
      got: '[8]',
      wanted: '[L, D] for one head',
    });
  });
});

describe('mergeAttention()', () => {
  const random = new Random(41);
  const [q, k, v] = [random.tensor(2, 3, 4, 6), random.tensor(2, 3, 30, 6), random.tensor(2, 3, 30, 5)];
  const cut = (t: Tensor, begin: number, end: number): Tensor => {
    const [b, h, s, d] = t.shape as [number, number, number, number];
    const parts = Array.from({ length: b * h }, (_, i) => [...t.data.slice((i * s + begin) * d, (i * s + end) * d)]);
    return { data: Float32Array.from(parts.flat()), shape: [b, h, end - begin, d] };
  };
  test('parts of any size give the whole', () => {
    const whole = scaledDotProductAttention(q, k, v, { returnLse: true });
    const cuts = [0, 1, 1, 14, 30];
    const parts = cuts
      .slice(1)
      .map((end, i) => scaledDotProductAttention(q, cut(k, cuts[i]!, end), cut(v, cuts[i]!, end), { returnLse: true }));
    const merged = mergeAttention(parts);
    expect([merged.output.shape, merged.lse.shape]).toEqual([
      [2, 3, 4, 5],
      [2, 3, 4],
    ]);
    expectClose(merged.output.data, whole.output.data, 1e-6);
    expectClose(merged.lse.data, whole.lse!.data, 1e-6);
  });
  const call = 'mergeAttention()';
  test.each<[string, unknown, Omit<ExpectedError, 'call'>]>([
    ['no list', { output: 1 }, { ...TYPE, argument: 'parts', got: 'keys {output}', wanted: 'an Array' }],
    ['no parts', [], { ...RANGE, argument: 'parts', got: '0 long', wanted: '1 to 256' }],
    ['no lse', [{ output: zeros(2, 3) }], { ...TYPE, argument: 'parts[0].lse', got: 'undefined', wanted: 'a tensor' }],
    ['nothing', [null], { ...TYPE, argument: 'parts[0]', got: 'null', wanted: '{ output, lse }' }],
    ['no output', [{}], { ...TYPE, argument: 'parts[0].output', got: 'undefined', wanted: 'a tensor' }],
    [
      'another lse',
      [{ output: zeros(2, 3), lse: zeros(3) }],
      { ...SHAPE, argument: 'parts[0].lse.shape', got: '[3]', wanted: '[2]' },
    ],
    [
      'another output',
      [
        { output: zeros(2, 3), lse: zeros(2) },
        { output: zeros(3, 2), lse: zeros(3) },
      ],
      { ...SHAPE, argument: 'parts[1].output.shape', got: '[3, 2]', wanted: '[2, 3]' },
    ],
  ])('%s', (_name, parts, expected) => {
    expectError(() => mergeAttention(parts as never), { ...expected, call });
  });
});

describe('relativePositionBias()', () => {
  /** The bucket of each relative position, as the T5 paper's code assigns it: 32 buckets, distances to 128. */
  const table = (buckets: number): Tensor => ({
    data: Float32Array.from({ length: buckets * 2 }, (_, i) => (i % 2 === 0 ? i / 2 : -i)),
    shape: [buckets, 2],
  });
  const buckets = (options: object, relative: readonly number[]): number[] => {
    const bias = relativePositionBias(table(32), { queryLength: 1, keyLength: 400, queryOffset: 200, ...options });
    expect(bias.shape).toEqual([1, 2, 1, 400]);
    return relative.map((r) => bias.data[200 + r]!);
  };
  test('T5 encoder', () => {
    // 16 buckets a side: 8 exact ones, then 8, 12, 16, 23, 32, 46, 64, 91 begin a new one.
    const begins = [
      0, -1, -7, -8, -11, -12, -15, -16, -22, -23, -31, -32, -45, -46, -63, -64, -90, -91, -127, -128, -199,
    ];
    expect(buckets({}, begins)).toEqual([0, 1, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 15, 15]);
    expect(buckets({}, [1, 8, 128, 199])).toEqual([17, 24, 31, 31]);
  });
  test('T5 decoder', () => {
    expect(buckets({ bidirectional: false }, [5, 0, -1, -15, -16, -113, -199])).toEqual([0, 0, 1, 15, 16, 31, 31]);
  });
  test('tables of other sizes', () => {
    for (const [size, maxDistance] of [
      [4, 100],
      [10, 64],
      [64, 500],
      [128, 4096],
    ] as const) {
      const perSide = size / 2;
      const exact = Math.floor(perSide / 2);
      const { data } = relativePositionBias(table(size), { queryLength: 1, keyLength: 10_000, maxDistance });
      const wrong = [];
      for (let distance = 1; distance < 10_000; ++distance) {
        const share = (Math.log(distance / exact) / Math.log(maxDistance / exact)) * (perSide - exact);
        // On a border, rounding decides.
        if (distance > exact && Math.abs(share - Math.round(share)) < 1e-5) continue;
        const want = distance < exact ? distance : Math.min(perSide - 1, exact + Math.floor(share));
        if (data[distance] !== perSide + want) wrong.push([size, distance, data[distance], perSide + want]);
      }
      expect(wrong).toEqual([]);
    }
  });
  test('Swin', () => {
    const [h, w] = [2, 3];
    const rows = (2 * h - 1) * (2 * w - 1);
    const entries = { data: Float32Array.from({ length: rows }, (_, i) => i), shape: [rows, 1] };
    const bias = relativePositionBias(entries, { window: [h, w] });
    expect(bias.shape).toEqual([1, 1, 6, 6]);
    for (let i = 0; i < 6; ++i)
      for (let j = 0; j < 6; ++j) {
        const [dy, dx] = [Math.floor(i / w) - Math.floor(j / w), (i % w) - (j % w)];
        expect(bias.data[i * 6 + j]).toBe((dy + h - 1) * (2 * w - 1) + dx + w - 1);
      }
    const x = new Random(1).tensor(1, 1, 6, 4);
    expect(scaledDotProductAttention(x, x, x, { attnBias: bias }).output.shape).toEqual([1, 1, 6, 4]);
  });
  const call = 'relativePositionBias()';
  test.each<[string, Tensor, unknown, Omit<ExpectedError, 'call'>]>([
    [
      'rank',
      zeros(32),
      { queryLength: 1 },
      { ...SHAPE, argument: 'table.shape', got: '[32]', wanted: '[entries, heads]' },
    ],
    [
      'odd buckets',
      zeros(31, 2),
      { queryLength: 1 },
      { ...SHAPE, argument: 'table.shape', got: '[31, 2]', wanted: 'even' },
    ],
    ['no length', zeros(32, 2), {}, { ...TYPE, argument: 'queryLength', got: 'undefined', wanted: 'a whole number' }],
    [
      'a window of another size',
      zeros(16, 2),
      { window: [2, 3] },
      { ...SHAPE, argument: 'table.shape', got: '[16, 2]', wanted: '[15, heads]' },
    ],
    [
      'a window as a number',
      zeros(9, 2),
      { window: 2 },
      { ...TYPE, argument: 'window', got: '2', wanted: '[height, width]' },
    ],
    [
      'maxDistance',
      zeros(32, 2),
      { queryLength: 1, maxDistance: 8 },
      { ...RANGE, argument: 'maxDistance', got: '8', wanted: 'from 9' },
    ],
    [
      'a name',
      zeros(9, 2),
      { window: [2, 2], queryLength: 4 },
      { ...TYPE, code: 'unknown-option', argument: '"queryLength"', got: 'unknown', wanted: 'window' },
    ],
  ])('%s', (_name, given, options, expected) => {
    expectError(() => relativePositionBias(given, options as never), { ...expected, call });
  });
});

test('alibiSlopes() of many heads', () => {
  // 2^(-8 i / n) for a power of two, and every other one of twice that for what is above it.
  for (const n of [1, 2, 4, 16, 32, 64, 256, 4096]) {
    const slopes = Float32Array.from({ length: n }, (_, i) => 2 ** ((-8 * (i + 1)) / n));
    expectSameBits(alibiSlopes(n), slopes);
    const more = Float32Array.from({ length: n }, (_, i) => 2 ** ((-4 * (2 * i + 1)) / n));
    expectSameBits(alibiSlopes(2 * n - 1), Float32Array.from([...slopes, ...more.slice(0, n - 1)]));
  }
});

test('alibiSlopes() of a bad number', () => {
  expectError(() => alibiSlopes(0), {
    ...RANGE,
    call: 'alibiSlopes()',
    argument: 'numHeads',
    got: '0',
    wanted: 'a whole number from 1',
  });
});

test.each<[string, object, Omit<ExpectedError, 'call'>]>([
  [
    'extraKey alone',
    { extraKey: zeros(2, 1, 4) },
    { ...CONFLICT, argument: 'extraKey', got: 'given alone', wanted: 'extraValue' },
  ],
  [
    'extraKey of other heads',
    { extraKey: zeros(3, 1, 4), extraValue: zeros(3, 1, 5) },
    { ...SHAPE, argument: 'extraKey.shape', got: '[3, 1, 4]', wanted: '[2, n, 4]' },
  ],
  [
    'extraValue of another length',
    { extraKey: zeros(2, 1, 4), extraValue: zeros(2, 2, 5) },
    { ...SHAPE, argument: 'extraValue.shape', got: '[2, 2, 5]', wanted: '[2, n, 5]' },
  ],
  [
    'too many',
    { extraKey: zeros(2, 129, 4), extraValue: zeros(2, 129, 5) },
    { ...SHAPE, argument: 'extraKey.shape', got: '129', wanted: 'n up to 128' },
  ],
])('scaledDotProductAttention(): %s', (_name, options, expected) => {
  const [q, k, v] = [zeros(1, 4, 3, 4), zeros(1, 2, 3, 4), zeros(1, 2, 3, 5)];
  expectError(() => scaledDotProductAttention(q, k, v, options), { ...expected, call: 'scaledDotProductAttention()' });
});
