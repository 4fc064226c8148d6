// Every bad argument of forward(): class, code, and a message with call, argument, got, wanted and a way out. After
// each the layer gives the same bits as before.
import { HeadwiseRangeError, HeadwiseTypeError, MultiHeadAttention, load } from 'headwise';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type ExpectedError, Random, expectError, expectSameBits, zeros } from './helpers.js';

const CALL = 'MultiHeadAttention.forward()';
const random = new Random(1);
const x = random.tensor(2, 5, 12);
const y = random.tensor(2, 7, 12);
let mha: MultiHeadAttention;
let before: Float32Array;

beforeAll(async () => {
  await load();
  mha = new MultiHeadAttention({ embedDim: 12, numHeads: 4 });
  before = mha.forward(x, y, { causal: true }).output.data;
});
afterEach(() => expectSameBits(mha.forward(x, y, { causal: true }).output.data, before));

const RANGE = { type: HeadwiseRangeError, call: CALL } as const;
const TYPE = { type: HeadwiseTypeError, call: CALL } as const;
type Case = [name: string, args: unknown[], expected: ExpectedError];
const withOptions = (options: unknown): unknown[] => [x, y, options];

const TENSORS: Case[] = [
  ['no query', [], { ...TYPE, code: 'wrong-type', argument: 'query', got: 'undefined', wanted: 'a tensor' }],
  ['null', [null], { ...TYPE, code: 'wrong-type', argument: 'query', got: 'null', wanted: 'a tensor' }],
  [
    'a bare array',
    [x.data],
    { ...TYPE, code: 'wrong-type', argument: 'query', got: 'Float32Array of 120', wanted: 'a tensor' },
  ],
  [
    'data of an Array',
    [{ data: [1, 2], shape: [1, 2] }],
    { ...TYPE, code: 'wrong-type', argument: 'query.data', got: 'an Array of 2', wanted: 'a Float32Array' },
  ],
  [
    'data of doubles',
    [x, { data: new Float64Array(24), shape: [2, 1, 12] }],
    { ...TYPE, code: 'wrong-type', argument: 'key.data', got: 'Float64Array of 24', wanted: 'a Float32Array' },
  ],
  [
    'no shape',
    [{ data: new Float32Array(12) }],
    { ...TYPE, code: 'wrong-type', argument: 'query.shape', got: 'undefined', wanted: 'an Array of sizes' },
  ],
  [
    'a size as text',
    [{ data: new Float32Array(12), shape: ['1', 12] }],
    { ...TYPE, code: 'wrong-type', argument: 'query.shape[0]', got: '"1"', wanted: 'a number' },
  ],
  [
    'a negative size',
    [{ data: new Float32Array(12), shape: [-1, 12] }],
    { ...RANGE, code: 'out-of-range', argument: 'query.shape[0]', got: '-1', wanted: 'a whole number' },
  ],
  [
    'a fractional size',
    [{ data: new Float32Array(12), shape: [1.5, 12] }],
    { ...RANGE, code: 'out-of-range', argument: 'query.shape[0]', got: '1.5', wanted: 'a whole number' },
  ],
  [
    'a size of NaN',
    [{ data: new Float32Array(12), shape: [NaN, 12] }],
    { ...RANGE, code: 'out-of-range', argument: 'query.shape[0]', got: 'NaN', wanted: 'a whole number' },
  ],
  [
    'a size of 2^53',
    [{ data: new Float32Array(0), shape: [0, 2 ** 53, 12] }],
    { ...RANGE, code: 'out-of-range', argument: 'query.shape[1]', got: '9007199254740992', wanted: '2147483647' },
  ],
  [
    'data too short',
    [{ data: new Float32Array(11), shape: [1, 12] }],
    { ...RANGE, code: 'wrong-shape', argument: 'query.data', got: '11 long', wanted: '12 long' },
  ],
  [
    'rank 1',
    [zeros(12)],
    { ...RANGE, code: 'wrong-shape', argument: 'query.shape', got: '[12]', wanted: '[B, L, 12]' },
  ],
  [
    'rank 4',
    [zeros(1, 1, 1, 12)],
    { ...RANGE, code: 'wrong-shape', argument: 'query.shape', got: '[1, 1, 1, 12]', wanted: '[B, L, 12]' },
  ],
  [
    'the wrong width',
    [zeros(2, 5, 10)],
    { ...RANGE, code: 'wrong-shape', argument: 'query.shape', got: '[2, 5, 10]', wanted: 'embedDim 12' },
  ],
  [
    'a key of the wrong width',
    [x, zeros(2, 7, 11)],
    { ...RANGE, code: 'wrong-shape', argument: 'key.shape', got: '[2, 7, 11]', wanted: 'kDim 12' },
  ],
  [
    'a value of the wrong width',
    [x, y, zeros(2, 7, 13)],
    { ...RANGE, code: 'wrong-shape', argument: 'value.shape', got: '[2, 7, 13]', wanted: 'vDim 12' },
  ],
  [
    'an unbatched key',
    [x, zeros(7, 12)],
    { ...RANGE, code: 'wrong-shape', argument: 'key.shape', got: '[7, 12]', wanted: 'rank 3' },
  ],
  [
    'an unbatched value',
    [x, y, zeros(7, 12)],
    { ...RANGE, code: 'wrong-shape', argument: 'value.shape', got: '[7, 12]', wanted: 'rank 3' },
  ],
  [
    'an unbatched query',
    [zeros(5, 12), y],
    { ...RANGE, code: 'wrong-shape', argument: 'key.shape', got: '[2, 7, 12]', wanted: 'rank 2' },
  ],
  [
    'another batch size',
    [x, zeros(3, 7, 12)],
    { ...RANGE, code: 'wrong-shape', argument: 'key.shape', got: '[3, 7, 12]', wanted: 'batch size 2' },
  ],
  [
    'another batch size of the value',
    [x, y, zeros(1, 7, 12)],
    { ...RANGE, code: 'wrong-shape', argument: 'value.shape', got: '[1, 7, 12]', wanted: 'batch size 2' },
  ],
  [
    'a value of another length',
    [x, y, zeros(2, 6, 12)],
    { ...RANGE, code: 'wrong-shape', argument: 'value.shape', got: '[2, 6, 12]', wanted: 'length 7' },
  ],
  ['a key of null', [x, null], { ...TYPE, code: 'wrong-type', argument: 'key', got: 'null', wanted: 'a tensor' }],
  [
    'something after the options',
    [x, {}, y],
    {
      ...TYPE,
      code: 'wrong-type',
      argument: 'argument 3',
      got: 'an object with keys {data, shape}',
      wanted: 'left away after the options',
    },
  ],
];

const OPTIONS: Case[] = [
  [
    'options of null',
    withOptions(null),
    { ...TYPE, code: 'wrong-type', argument: 'value', got: 'null', wanted: 'a tensor' },
  ],
  [
    'a number as options',
    [x, y, y, 3],
    { ...TYPE, code: 'wrong-type', argument: 'options', got: '3', wanted: 'an object' },
  ],
  [
    'an unknown option',
    withOptions({ cuasal: true }),
    { ...TYPE, code: 'unknown-option', argument: '"cuasal"', got: 'unknown', wanted: 'causal' },
  ],
  [
    'a name from PyTorch',
    withOptions({ attn_mask: 1 }),
    { ...TYPE, code: 'unknown-option', argument: '"attn_mask"', got: 'unknown', wanted: 'attendMask (1 = may attend)' },
  ],
  [
    'a name from Keras and Hugging Face',
    withOptions({ attention_mask: 1 }),
    {
      ...TYPE,
      code: 'unknown-option',
      argument: '"attention_mask"',
      got: 'unknown',
      wanted: 'keyPaddingMask (1 = padding)',
    },
  ],
  [
    'a name from Hugging Face',
    withOptions({ sliding_window: 4 }),
    { ...TYPE, code: 'unknown-option', argument: '"sliding_window"', got: 'unknown', wanted: 'window: [n - 1, 0]' },
  ],
  [
    'an option to come',
    withOptions({ dropout: 0.1 }),
    { ...TYPE, code: 'unknown-option', argument: '"dropout"', got: 'not in this version', wanted: 'later version' },
  ],
  [
    'causal as a number',
    withOptions({ causal: 1 }),
    { ...TYPE, code: 'wrong-type', argument: 'causal', got: '1', wanted: "'end'" },
  ],
  [
    'causal with a wrong word',
    withOptions({ causal: 'bottom' }),
    { ...RANGE, code: 'out-of-range', argument: 'causal', got: '"bottom"', wanted: "'end'" },
  ],
  [
    'needWeights: true',
    withOptions({ needWeights: true }),
    { ...TYPE, code: 'wrong-type', argument: 'needWeights', got: 'true', wanted: "'averaged' or 'perHead'" },
  ],
  [
    'returnLse as a number',
    withOptions({ returnLse: 1 }),
    { ...TYPE, code: 'wrong-type', argument: 'returnLse', got: '1', wanted: 'true or false' },
  ],
  [
    'scale of NaN',
    withOptions({ scale: NaN }),
    { ...RANGE, code: 'out-of-range', argument: 'scale', got: 'NaN', wanted: 'finite' },
  ],
  [
    'scale beyond float32',
    withOptions({ scale: 1e39 }),
    { ...RANGE, code: 'out-of-range', argument: 'scale', got: '1e+39', wanted: 'finite in float32' },
  ],
  [
    'scale as text',
    withOptions({ scale: '1' }),
    { ...TYPE, code: 'wrong-type', argument: 'scale', got: '"1"', wanted: 'a finite number' },
  ],
  [
    'a wrong emptyRows',
    withOptions({ emptyRows: 'one' }),
    { ...RANGE, code: 'out-of-range', argument: 'emptyRows', got: '"one"', wanted: "'zero' or 'nan'" },
  ],
  [
    'out of the wrong type',
    withOptions({ out: new Float64Array(120) }),
    { ...TYPE, code: 'wrong-type', argument: 'out', got: 'Float64Array of 120', wanted: 'a Float32Array' },
  ],
  [
    'out of the wrong length',
    withOptions({ out: new Float32Array(119) }),
    { ...RANGE, code: 'wrong-shape', argument: 'out', got: '119 long', wanted: '120 long' },
  ],
  [
    'keyLengths too large',
    withOptions({ keyLengths: 8 }),
    { ...RANGE, code: 'out-of-range', argument: 'keyLengths', got: '8', wanted: 'from 0 to 7' },
  ],
  [
    'a negative key length',
    withOptions({ keyLengths: [3, -1] }),
    { ...RANGE, code: 'out-of-range', argument: 'keyLengths[1]', got: '-1', wanted: 'from 0 to 7' },
  ],
  [
    'a fractional key length',
    withOptions({ keyLengths: [3, 0.5] }),
    { ...RANGE, code: 'out-of-range', argument: 'keyLengths[1]', got: '0.5', wanted: 'whole number' },
  ],
  [
    'too few key lengths',
    withOptions({ keyLengths: [3] }),
    { ...RANGE, code: 'wrong-shape', argument: 'keyLengths', got: '1 long', wanted: '2 long' },
  ],
  [
    'key lengths as floats',
    withOptions({ keyLengths: Float32Array.of(1, 2) }),
    { ...TYPE, code: 'wrong-type', argument: 'keyLengths', got: 'Float32Array of 2', wanted: 'Int32Array' },
  ],
  [
    'queryLengths too large',
    withOptions({ queryLengths: [5, 6] }),
    { ...RANGE, code: 'out-of-range', argument: 'queryLengths[1]', got: '6', wanted: 'from 0 to 5' },
  ],
  [
    'queryOffset of NaN',
    withOptions({ causal: true, queryOffset: NaN }),
    { ...RANGE, code: 'out-of-range', argument: 'queryOffset', got: 'NaN', wanted: 'whole number' },
  ],
  [
    'queryOffset beyond 32 bits',
    withOptions({ causal: true, queryOffset: 2 ** 31 }),
    { ...RANGE, code: 'out-of-range', argument: 'queryOffset', got: '2147483648', wanted: 'whole number' },
  ],
  [
    'queryOffset without causal',
    withOptions({ queryOffset: 1 }),
    { ...TYPE, code: 'conflict', argument: 'queryOffset', got: 'causal: false', wanted: "causal: true or 'start'" },
  ],
  [
    "queryOffset with causal: 'end'",
    withOptions({ causal: 'end', queryOffset: 1 }),
    { ...TYPE, code: 'conflict', argument: 'queryOffset', got: 'causal: "end"', wanted: "causal: true or 'start'" },
  ],
];

const mask = (data: unknown, ...shape: number[]): unknown => ({ data, shape });
const MASKS: Case[] = [
  [
    'floats as attendMask (known failure N-18)',
    withOptions({ attendMask: mask(new Float32Array(35), 5, 7) }),
    {
      ...TYPE,
      code: 'wrong-type',
      argument: 'attendMask.data',
      got: 'Float32Array of 35',
      wanted: /a Uint8Array .* as attnBias/,
    },
  ],
  [
    'bytes as attnBias',
    withOptions({ attnBias: mask(new Uint8Array(35), 5, 7) }),
    {
      ...TYPE,
      code: 'wrong-type',
      argument: 'attnBias.data',
      got: 'Uint8Array of 35',
      wanted: /a Float32Array.* as attendMask/,
    },
  ],
  [
    'booleans as attnBias',
    withOptions({ attnBias: mask([true], 1, 1) }),
    {
      ...TYPE,
      code: 'wrong-type',
      argument: 'attnBias.data',
      got: 'an Array of 1',
      wanted: /a Float32Array.* as attendMask/,
    },
  ],
  [
    'integers as attendMask',
    withOptions({ attendMask: mask(new Int32Array(35), 5, 7) }),
    { ...TYPE, code: 'wrong-type', argument: 'attendMask.data', got: 'Int32Array of 35', wanted: 'a Uint8Array' },
  ],
  [
    'numbers as attendMask',
    withOptions({ attendMask: mask([1, 0], 1, 2) }),
    { ...TYPE, code: 'wrong-type', argument: 'attendMask.data', got: 'an Array of 2', wanted: 'a Uint8Array' },
  ],
  [
    'a mask without a shape',
    withOptions({ attendMask: new Uint8Array(35) }),
    { ...TYPE, code: 'wrong-type', argument: 'attendMask', got: 'Uint8Array of 35', wanted: 'a mask' },
  ],
  [
    'a byte of 255',
    withOptions({ attendMask: mask(Uint8Array.of(1, 0, 255, 1, 1, 1, 1), 1, 7) }),
    { ...RANGE, code: 'out-of-range', argument: 'attendMask.data[2]', got: '255', wanted: '0 or 1' },
  ],
  [
    'attendMask of rank 3 when batched',
    withOptions({ attendMask: mask(new Uint8Array(70), 2, 5, 7) }),
    {
      ...RANGE,
      code: 'wrong-shape',
      argument: 'attendMask.shape',
      got: '[2, 5, 7]',
      wanted: /\[B, 1, L, S\] = \[2, 1, 5, 7\]/,
    },
  ],
  [
    'attnBias of rank 3 when batched',
    withOptions({ attnBias: mask(new Float32Array(140), 4, 5, 7) }),
    {
      ...RANGE,
      code: 'wrong-shape',
      argument: 'attnBias.shape',
      got: '[4, 5, 7]',
      wanted: /\[1, H, L, S\] = \[1, 4, 5, 7\]/,
    },
  ],
  [
    'attendMask of rank 1',
    withOptions({ attendMask: mask(new Uint8Array(7), 7) }),
    { ...RANGE, code: 'wrong-shape', argument: 'attendMask.shape', got: '[7]', wanted: '[L, S]' },
  ],
  [
    'attendMask transposed',
    withOptions({ attendMask: mask(new Uint8Array(35), 7, 5) }),
    { ...RANGE, code: 'wrong-shape', argument: 'attendMask.shape', got: '[7, 5]', wanted: 'L = 5, S = 7' },
  ],
  [
    'attendMask of rank 4 with a wrong head count',
    withOptions({ attendMask: mask(new Uint8Array(210), 2, 3, 5, 7) }),
    { ...RANGE, code: 'wrong-shape', argument: 'attendMask.shape', got: '[2, 3, 5, 7]', wanted: 'H = 4' },
  ],
  [
    'attnBias of the wrong length',
    withOptions({ attnBias: mask(new Float32Array(34), 5, 7) }),
    { ...RANGE, code: 'wrong-shape', argument: 'attnBias.data', got: '34 long', wanted: '35 long' },
  ],
  [
    'keyPaddingMask of rank 1 when batched',
    withOptions({ keyPaddingMask: mask(new Uint8Array(7), 7) }),
    { ...RANGE, code: 'wrong-shape', argument: 'keyPaddingMask.shape', got: '[7]', wanted: '[2, 7]' },
  ],
  [
    'keyPaddingMask of the wrong length',
    withOptions({ keyPaddingMask: mask(new Uint8Array(10), 2, 5) }),
    { ...RANGE, code: 'wrong-shape', argument: 'keyPaddingMask.shape', got: '[2, 5]', wanted: '[2, 7]' },
  ],
  [
    'keyPaddingMask as floats',
    withOptions({ keyPaddingMask: mask(new Float32Array(14), 2, 7) }),
    { ...TYPE, code: 'wrong-type', argument: 'keyPaddingMask.data', got: 'Float32Array of 14', wanted: 'a Uint8Array' },
  ],
];

describe.each([
  ['tensors', TENSORS],
  ['options', OPTIONS],
  ['masks', MASKS],
])('%s', (_group, cases) => {
  test.each(cases)('%s', (_name, args, expected) => {
    expectError(() => (mha.forward as (...args: unknown[]) => unknown)(...args), expected);
  });
});

test('unbatched: rank 3 masks are [H, L, S], a padding mask is [S]', () => {
  const [q, k] = [zeros(5, 12), zeros(7, 12)];
  const bad = (options: object, argument: string, got: string, wanted: string): void =>
    expectError(() => mha.forward(q, k, options), { ...RANGE, code: 'wrong-shape', argument, got, wanted });
  bad({ attendMask: mask(new Uint8Array(70), 2, 5, 7) }, 'attendMask.shape', '[2, 5, 7]', '[H, L, S]');
  bad({ keyPaddingMask: mask(new Uint8Array(7), 1, 7) }, 'keyPaddingMask.shape', '[1, 7]', '[7]');
});

test('sizes beyond the address space are named before any memory is touched', () => {
  const wide = new MultiHeadAttention({ embedDim: 4, numHeads: 4 });
  const long = zeros(40_000, 4);
  const heap = wide.forward(zeros(1, 4)) && mhaHeap();
  expectError(() => wide.forward(long, { needWeights: 'perHead' }), {
    type: HeadwiseRangeError,
    code: 'too-large',
    call: CALL,
    argument: 'attention weights 4 x 40000 x 40000',
    got: 'bytes',
    wanted: 'less than 4294967296 bytes',
  });
  expect(mhaHeap()).toBe(heap);
  expect(wide.forward(zeros(3, 4)).output.shape).toEqual([3, 4]);
});

test('values of undefined are options left away', () => {
  expect(() =>
    mha.forward(x, y, { causal: undefined, attendMask: undefined, nonsense: undefined } as object),
  ).not.toThrow();
});

function mhaHeap(): number {
  return runtimeHeap();
}
let runtimeHeap: () => number;
beforeAll(async () => {
  const runtime = await load();
  runtimeHeap = () => runtime.heapBytes;
});
