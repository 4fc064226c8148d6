import { HeadwiseRangeError, HeadwiseTypeError, Linear, StateDictError, load } from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { type ExpectedError, Random, expectClose, expectError, expectSameBits, size, zeros } from './helpers.js';

beforeAll(async () => {
  await load();
});

test.each([
  ['a vector', [7]],
  ['rows', [5, 7]],
  ['a batch', [3, 5, 7]],
  ['rank 5', [2, 1, 3, 2, 7]],
  ['no rows', [0, 7]],
])('x Wᵀ + b of %s', (_name, shape) => {
  const random = new Random(1);
  const linear = new Linear({ inFeatures: 7, outFeatures: 11 });
  const [weight, bias] = [random.tensor(11, 7), random.tensor(11)];
  linear.loadStateDict({ weight, bias });
  const x = random.tensor(...shape);
  const got = linear.forward(x);
  expect(got.shape).toEqual([...shape.slice(0, -1), 11]);
  const want = Array.from({ length: size(got.shape) }, (_, at) => {
    const [row, o] = [Math.floor(at / 11), at % 11];
    return weight.data.slice(7 * o, 7 * o + 7).reduce((sum, w, c) => sum + w * x.data[7 * row + c]!, bias.data[o]!);
  });
  expectClose(got.data, want);
  const out = new Float32Array(want.length);
  expect(linear.forward(x, { out }).data).toBe(out);
  expectSameBits(out, got.data);
});

test("weights start as PyTorch's, from the seed, and come back as they went in", () => {
  const linear = new Linear({ inFeatures: 100, outFeatures: 50, seed: 3 });
  const { weight, bias } = linear.stateDict();
  for (const data of [weight!.data, bias!.data]) {
    const most = Math.max(...data.map(Math.abs));
    expect(most).toBeLessThanOrEqual(0.1);
    expect(most).toBeGreaterThan(0.08);
  }
  const twin = new Linear({ inFeatures: 100, outFeatures: 50, seed: 4 });
  expect(twin.stateDict()['weight']!.data).not.toEqual(weight!.data);
  twin.loadStateDict({ 'a.weight': weight!, 'a.bias': bias!, 'b.weight': zeros(1) }, { prefix: 'a.' });
  expectSameBits(twin.stateDict({ prefix: 'a.' })['a.weight']!.data, weight!.data);
  const plain = new Linear({ inFeatures: 100, outFeatures: 50, bias: false });
  expect(Object.keys(plain.stateDict())).toEqual(['weight']);
  expect(plain.loadStateDict({ weight: weight!, bias: bias! }, { strict: false })).toEqual({
    missing: [],
    unexpected: ['bias'],
  });
});

describe('bad arguments', () => {
  const call = 'Linear.forward()';
  const NEW = 'new Linear()';
  const TYPE = { type: HeadwiseTypeError, code: 'wrong-type', call } as const;
  const RANGE = { type: HeadwiseRangeError, code: 'wrong-shape', call } as const;
  const forward =
    (...args: unknown[]) =>
    (linear: Linear): unknown =>
      (linear.forward as (...args: unknown[]) => unknown).apply(linear, args);
  const make = (options: unknown) => (): unknown => new Linear(options as never);
  test.each<[string, (linear: Linear) => unknown, ExpectedError]>([
    ['no x', forward(), { ...TYPE, argument: 'x', got: 'undefined', wanted: 'a tensor' }],
    ['the wrong width', forward(zeros(2, 6)), { ...RANGE, argument: 'x.shape', got: '[2, 6]', wanted: 'inFeatures 7' }],
    ['rank 0', forward(zeros()), { ...RANGE, argument: 'x.shape', got: '[]', wanted: 'rank 1 or more' }],
    [
      'a wrong out',
      forward(zeros(2, 7), { out: new Float32Array(3) }),
      { ...RANGE, argument: 'out', got: '3 long', wanted: '22 long' },
    ],
    [
      'an unknown option',
      forward(zeros(2, 7), { into: 1 }),
      { ...TYPE, code: 'unknown-option', argument: '"into"', got: 'unknown', wanted: 'out' },
    ],
    [
      'no inFeatures',
      make({ outFeatures: 2 }),
      { ...TYPE, call: NEW, argument: 'inFeatures', got: 'undefined', wanted: 'whole number' },
    ],
    [
      'no options',
      make(undefined),
      { ...TYPE, call: NEW, argument: 'inFeatures', got: 'undefined', wanted: 'whole number' },
    ],
    [
      'outFeatures of 0',
      make({ inFeatures: 2, outFeatures: 0 }),
      { ...RANGE, code: 'out-of-range', call: NEW, argument: 'outFeatures', got: '0', wanted: 'whole number' },
    ],
    [
      'bias as text',
      make({ inFeatures: 2, outFeatures: 2, bias: 'yes' }),
      { ...TYPE, call: NEW, argument: 'bias', got: '"yes"', wanted: 'true or false' },
    ],
    [
      'a seed of NaN',
      make({ inFeatures: 2, outFeatures: 2, seed: NaN }),
      { ...RANGE, code: 'out-of-range', call: NEW, argument: 'seed', got: 'NaN', wanted: 'whole number' },
    ],
    [
      'an option too many',
      make({ inFeatures: 2, outFeatures: 2, numHeads: 2 }),
      { ...TYPE, code: 'unknown-option', call: NEW, argument: '"numHeads"', got: 'unknown', wanted: 'inFeatures' },
    ],
    [
      'a weight beyond the address space',
      make({ inFeatures: 2 ** 20, outFeatures: 2 ** 20 }),
      {
        ...RANGE,
        code: 'too-large',
        call: NEW,
        argument: '[1048576, 1048576]',
        got: '4398046511104 bytes',
        wanted: 'less than',
      },
    ],
    [
      'a state dict of other shapes',
      (l) => l.loadStateDict({ weight: zeros(7, 11), bias: zeros(7) }),
      {
        type: StateDictError,
        code: 'state-dict',
        call: 'Linear.loadStateDict()',
        argument: '"weight"',
        got: '[7, 11]',
        wanted: '[11, 7]',
      },
    ],
    [
      'a layout',
      (l) => l.loadStateDict({}, { layout: 'keras' } as object),
      {
        ...TYPE,
        code: 'unknown-option',
        call: 'Linear.loadStateDict()',
        argument: '"layout"',
        got: '"keras"',
        wanted: 'left away',
      },
    ],
  ])('%s', (_name, f, expected) => {
    const linear = new Linear({ inFeatures: 7, outFeatures: 11 });
    const x = new Random(2).tensor(3, 7);
    const before = linear.forward(x).data;
    expectError(() => f(linear), expected);
    expectSameBits(linear.forward(x).data, before);
  });
});
