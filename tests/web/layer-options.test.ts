// The constructor: bad options, and what the defaults resolve to.
import {
  HeadwiseError,
  HeadwiseMemoryError,
  HeadwiseRangeError,
  HeadwiseTypeError,
  Linear,
  MultiHeadAttention,
  load,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { type ExpectedError, expectError, zeros } from './helpers.js';

const NEW = 'new MultiHeadAttention()';
const RANGE = { type: HeadwiseRangeError, code: 'out-of-range', call: NEW } as const;
const TYPE = { type: HeadwiseTypeError, code: 'wrong-type', call: NEW } as const;
const good = { embedDim: 12, numHeads: 4 };

test('without a loaded runtime the message says what to await', () => {
  for (const [make, call] of [
    [() => new MultiHeadAttention(good), NEW],
    [() => new Linear({ inFeatures: 1, outFeatures: 1 }), 'new Linear()'],
  ] as const) {
    expectError(make, {
      type: HeadwiseError,
      code: 'not-loaded',
      call,
      argument: 'runtime',
      got: 'no runtime is loaded',
      wanted: 'await load()',
    });
  }
});

describe('bad options', () => {
  beforeAll(async () => {
    await load();
  });
  const WHOLE = 'a whole number from 1 to 16777216';
  test.each<[string, unknown, ExpectedError]>([
    ['nothing', undefined, { ...TYPE, argument: 'options', got: 'undefined', wanted: 'embedDim and numHeads' }],
    ['a number', 512, { ...TYPE, argument: 'options', got: '512', wanted: 'an object' }],
    ['no embedDim', { numHeads: 4 }, { ...TYPE, argument: 'embedDim', got: 'undefined', wanted: WHOLE }],
    ['no numHeads', { embedDim: 12 }, { ...TYPE, argument: 'numHeads', got: 'undefined', wanted: WHOLE }],
    ['embedDim of 0', { embedDim: 0, numHeads: 4 }, { ...RANGE, argument: 'embedDim', got: '0', wanted: WHOLE }],
    [
      'a negative numHeads',
      { embedDim: 12, numHeads: -4 },
      { ...RANGE, argument: 'numHeads', got: '-4', wanted: WHOLE },
    ],
    [
      'a fractional numHeads',
      { embedDim: 12, numHeads: 2.5 },
      { ...RANGE, argument: 'numHeads', got: '2.5', wanted: WHOLE },
    ],
    ['embedDim of NaN', { embedDim: NaN, numHeads: 4 }, { ...RANGE, argument: 'embedDim', got: 'NaN', wanted: WHOLE }],
    [
      'embedDim of Infinity',
      { embedDim: Infinity, numHeads: 4 },
      { ...RANGE, argument: 'embedDim', got: 'Infinity', wanted: WHOLE },
    ],
    [
      'embedDim of 2^53',
      { embedDim: 2 ** 53, numHeads: 4 },
      { ...RANGE, argument: 'embedDim', got: '9007199254740992', wanted: WHOLE },
    ],
    [
      'embedDim as text',
      { embedDim: '12', numHeads: 4 },
      { ...TYPE, argument: 'embedDim', got: '"12"', wanted: WHOLE },
    ],
    [
      'embedDim as BigInt',
      { embedDim: 12n, numHeads: 4 },
      { ...TYPE, argument: 'embedDim', got: '12n', wanted: WHOLE },
    ],
    [
      'heads that do not divide',
      { embedDim: 12, numHeads: 5 },
      { ...RANGE, argument: 'embedDim', got: '12 with numHeads 5', wanted: 'a multiple of numHeads' },
    ],
    [
      'key heads that do not divide',
      { ...good, numKvHeads: 3 },
      { ...RANGE, argument: 'numKvHeads', got: '3 with numHeads 4', wanted: 'a divisor of numHeads' },
    ],
    ['headDim of 0', { ...good, headDim: 0 }, { ...RANGE, argument: 'headDim', got: '0', wanted: WHOLE }],
    ['vHeadDim of null', { ...good, vHeadDim: null }, { ...TYPE, argument: 'vHeadDim', got: 'null', wanted: WHOLE }],
    ['kDim of -1', { ...good, kDim: -1 }, { ...RANGE, argument: 'kDim', got: '-1', wanted: WHOLE }],
    ['vDim of 1.5', { ...good, vDim: 1.5 }, { ...RANGE, argument: 'vDim', got: '1.5', wanted: WHOLE }],
    ['outDim of 0', { ...good, outDim: 0 }, { ...RANGE, argument: 'outDim', got: '0', wanted: WHOLE }],
    ['bias as a number', { ...good, bias: 1 }, { ...TYPE, argument: 'bias', got: '1', wanted: 'true, false' }],
    [
      'bias of one projection as text',
      { ...good, bias: { key: 'no' } },
      { ...TYPE, argument: 'bias.key', got: '"no"', wanted: 'true or false' },
    ],
    [
      'bias of an unknown projection',
      { ...good, bias: { q: true } },
      { ...TYPE, code: 'unknown-option', argument: '"q"', got: 'unknown', wanted: 'query' },
    ],
    ['scale of NaN', { ...good, scale: NaN }, { ...RANGE, argument: 'scale', got: 'NaN', wanted: 'finite' }],
    [
      'scale of Infinity',
      { ...good, scale: Infinity },
      { ...RANGE, argument: 'scale', got: 'Infinity', wanted: 'finite' },
    ],
    [
      'a wrong emptyRows',
      { ...good, emptyRows: 0 },
      { ...TYPE, argument: 'emptyRows', got: '0', wanted: "'zero' or 'nan'" },
    ],
    [
      'a negative seed',
      { ...good, seed: -1 },
      { ...RANGE, argument: 'seed', got: '-1', wanted: 'a whole number from 0' },
    ],
    [
      'a runtime of something else',
      { ...good, runtime: {} },
      { ...TYPE, argument: 'runtime', got: 'an object', wanted: 'what load() resolved to' },
    ],
    [
      'an unknown option',
      { ...good, embeddim: 12 },
      { ...TYPE, code: 'unknown-option', argument: '"embeddim"', got: 'unknown', wanted: 'embedDim' },
    ],
    [
      "PyTorch's batch_first",
      { ...good, batchFirst: true },
      { ...TYPE, code: 'unknown-option', argument: '"batchFirst"', got: 'unknown', wanted: '[batch, length, width]' },
    ],
    ...['dropout', 'weightType'].map((name): [string, unknown, ExpectedError] => [
      `${name}, which is to come`,
      { ...good, [name]: 1 },
      { ...TYPE, code: 'unknown-option', argument: `"${name}"`, got: 'not in this version', wanted: 'later version' },
    ]),
    [
      'weights beyond the address space',
      { embedDim: 2 ** 20, numHeads: 4 },
      { ...RANGE, code: 'too-large', argument: 'embedDim 1048576', got: 'bytes', wanted: 'less than 4294967296 bytes' },
    ],
  ])('%s', (_name, options, expected) => {
    expectError(() => new MultiHeadAttention(options as never), expected);
    expect(new MultiHeadAttention(good).forward(zeros(2, 12)).output.shape).toEqual([2, 12]);
  });

  test('memory that cannot be had is an error of its own, and the runtime works on', async () => {
    const runtime = await load();
    const before = runtime.heapBytes;
    // Just below 2^32 bytes of weights: addressable, but not beside what the module itself needs.
    const options = { embedDim: 1, numHeads: 1, vHeadDim: 1072, outDim: 1_001_500 };
    expectError(() => new MultiHeadAttention(options), {
      type: HeadwiseMemoryError,
      code: 'out-of-memory',
      call: NEW,
      argument: 'memory is exhausted',
      got: '[1001500, 1072]',
      wanted: 'smaller layer',
    });
    expect(runtime.heapBytes).toBe(before);
    expect(new MultiHeadAttention(good).forward(zeros(2, 12)).output.shape).toEqual([2, 12]);
  });

  test('create() refuses them by rejecting, before anything is loaded', async () => {
    await expect(MultiHeadAttention.create({ embedDim: 12, numHeads: 5 })).rejects.toBeInstanceOf(RangeError);
    await expect(MultiHeadAttention.create(undefined as never)).rejects.toBeInstanceOf(TypeError);
  });
});

test('defaults', () => {
  expect(new MultiHeadAttention(good).config).toEqual({
    embedDim: 12,
    numHeads: 4,
    numKvHeads: 4,
    headDim: 3,
    vHeadDim: 3,
    kDim: 12,
    vDim: 12,
    outDim: 12,
    bias: { query: true, key: true, value: true, out: true },
    addBiasKv: false,
    addZeroAttn: false,
    scale: 1 / Math.sqrt(3),
    softcap: 0,
    emptyRows: 'zero',
    seed: 0,
  });
});
