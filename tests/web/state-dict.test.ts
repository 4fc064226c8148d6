import { HeadwiseTypeError, MultiHeadAttention, StateDictError, type StoredTensor, type Tensor, load } from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, expectError, expectSameBits, zeros } from './helpers.js';

const CALL = 'MultiHeadAttention.loadStateDict()';
const names = (dict: object): string[] => Object.keys(dict);
const make = (options: object = {}): MultiHeadAttention =>
  new MultiHeadAttention({ embedDim: 12, numHeads: 4, ...options });
const x = new Random(1).tensor(2, 5, 12);

beforeAll(async () => {
  await load();
});

describe("PyTorch's names", () => {
  test('packed when all widths are equal', () => {
    const dict = make().stateDict();
    expect(Object.entries(dict).map(([name, { shape }]) => [name, shape])).toEqual([
      ['in_proj_weight', [36, 12]],
      ['in_proj_bias', [36]],
      ['out_proj.weight', [12, 12]],
      ['out_proj.bias', [12]],
    ]);
  });
  test('separate when they differ', () => {
    const dict = make({ kDim: 10, vDim: 9, numKvHeads: 2, vHeadDim: 5, outDim: 7 }).stateDict();
    expect(Object.entries(dict).map(([name, { shape }]) => [name, shape])).toEqual([
      ['q_proj_weight', [12, 12]],
      ['k_proj_weight', [6, 10]],
      ['v_proj_weight', [10, 9]],
      ['in_proj_bias', [28]],
      ['out_proj.weight', [7, 20]],
      ['out_proj.bias', [7]],
    ]);
  });
  test('without biases, and with some', () => {
    expect(names(make({ bias: false }).stateDict())).toEqual(['in_proj_weight', 'out_proj.weight']);
    expect(names(make({ bias: { key: false } }).stateDict())).toEqual([
      'in_proj_weight',
      'q_proj_bias',
      'v_proj_bias',
      'out_proj.weight',
      'out_proj.bias',
    ]);
  });
  test('packed and separate weights are the same layer', () => {
    const [from, to] = [make({ seed: 1 }), make({ seed: 2 })];
    const { in_proj_weight: packed, ...rest } = from.stateDict();
    const third = (i: number): Tensor => ({ data: packed!.data.slice(144 * i, 144 * (i + 1)), shape: [12, 12] });
    to.loadStateDict({ q_proj_weight: third(0), k_proj_weight: third(1), v_proj_weight: third(2), ...rest });
    expectSameBits(to.forward(x).output.data, from.forward(x).output.data);
  });
});

describe.each([
  ['pytorch', {}],
  ['huggingface', {}],
  ['bert', {}],
  ['keras', {}],
  ['keras', { kDim: 10, vDim: 9, numKvHeads: 2, headDim: 5, vHeadDim: 6, outDim: 7 }],
  ['huggingface', { kDim: 10, vDim: 9, numKvHeads: 2, headDim: 5, vHeadDim: 6, outDim: 7, bias: { key: false } }],
] as const)('layout %s of %o', (layout, options) => {
  test('what stateDict() gives, loadStateDict() takes: the same bits', () => {
    const [from, to] = [make({ ...options, seed: 1 }), make({ ...options, seed: 2 })];
    const dict = from.stateDict({ layout, prefix: 'a.b.' });
    expect(names(dict).every((name) => name.startsWith('a.b.'))).toBe(true);
    expect(to.loadStateDict(dict, { layout, prefix: 'a.b.' })).toEqual({ missing: [], unexpected: [] });
    const { embedDim, kDim, vDim } = from.config;
    const random = new Random(3);
    const inputs = [random.tensor(5, embedDim), random.tensor(6, kDim), random.tensor(6, vDim)] as const;
    expectSameBits(to.forward(...inputs).output.data, from.forward(...inputs).output.data);
    to.loadStateDict(new Map(Object.entries(dict)), { layout, prefix: 'a.b.' });
  });
});

test('names and shapes of the layouts', () => {
  const options = { kDim: 10, vDim: 9, numKvHeads: 2, headDim: 5, vHeadDim: 6, outDim: 7 };
  const shapes = (layout: 'keras' | 'bert' | 'huggingface'): object =>
    Object.fromEntries(Object.entries(make(options).stateDict({ layout })).map(([name, { shape }]) => [name, shape]));
  expect(shapes('keras')).toEqual({
    query_kernel: [12, 4, 5],
    query_bias: [4, 5],
    key_kernel: [10, 2, 5],
    key_bias: [2, 5],
    value_kernel: [9, 2, 6],
    value_bias: [2, 6],
    output_kernel: [4, 6, 7],
    output_bias: [7],
  });
  expect(shapes('huggingface')).toMatchObject({
    'q_proj.weight': [20, 12],
    'k_proj.bias': [10],
    'o_proj.weight': [7, 24],
  });
  expect(shapes('bert')).toMatchObject({ 'self.value.weight': [12, 9], 'output.dense.bias': [7] });
});

test('a Keras kernel is the transposed weight', () => {
  const mha = make();
  const torch = mha.stateDict()['in_proj_weight']!.data;
  const kernel = mha.stateDict({ layout: 'keras' })['query_kernel']!.data;
  expect(kernel[3 * 12 + 7]).toBe(torch[7 * 12 + 3]);
});

test('other names of the same tensor, and neighbours that are nobody’s mistake', () => {
  const dict = make().stateDict({ layout: 'huggingface' });
  const { 'o_proj.weight': weight, 'o_proj.bias': bias, ...rest } = dict;
  make().loadStateDict({ ...rest, 'out_proj.weight': weight!, 'out_proj.bias': bias! }, { layout: 'huggingface' });
  const bert = make().stateDict({ layout: 'bert' });
  make().loadStateDict({ ...bert, 'output.LayerNorm.weight': zeros(12) }, { layout: 'bert' });
});

test('F16, BF16 and F32 stored tensors, and Float16Array where there is one', () => {
  const mha = make({ bias: false });
  const ones = (dtype: 'F16' | 'BF16', bits: number, ...shape: [number, number]): StoredTensor => ({
    dtype,
    shape,
    data: new Uint16Array(shape[0] * shape[1]).fill(bits),
  });
  mha.loadStateDict({
    in_proj_weight: ones('F16', 0x3e00, 36, 12),
    'out_proj.weight': ones('BF16', 0xbfc0, 12, 12),
  });
  const dict = mha.stateDict();
  expect(new Set(dict['in_proj_weight']!.data)).toEqual(new Set([1.5]));
  expect(new Set(dict['out_proj.weight']!.data)).toEqual(new Set([-1.5]));
  mha.loadStateDict({
    in_proj_weight: { dtype: 'F32', shape: [36, 12], data: new Float32Array(432).fill(2) },
    'out_proj.weight': dict['out_proj.weight']!,
  });
  expect(mha.stateDict()['in_proj_weight']!.data[5]).toBe(2);
  // An engine's own Float16Array, or one that looks like it.
  class Float16Like extends Uint16Array {
    override get [Symbol.toStringTag](): 'Uint16Array' {
      return 'Float16Array' as 'Uint16Array';
    }
  }
  const data = new Float16Like(432).fill(0x3e00);
  mha.loadStateDict({ ...dict, in_proj_weight: { dtype: 'F16', shape: [36, 12], data } });
  expect(mha.stateDict()['in_proj_weight']!.data[5]).toBe(1.5);
});

describe('what does not fit', () => {
  /** Loading `dict` fails with these lists, and the layer is as before. */
  function refused(dict: object, options: object | undefined, lists: Partial<StateDictError>, ...text: string[]): void {
    const mha = make();
    const before = mha.forward(x).output.data;
    let error: unknown;
    try {
      mha.loadStateDict(dict as never, options);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(StateDictError);
    expect(error).toMatchObject({ code: 'state-dict', missing: [], unexpected: [], ...lists });
    const { message } = error as Error;
    for (const part of [CALL, 'stateDict', ...text]) expect(message).toContain(part);
    expect(message.split('; ').length).toBeGreaterThan(1);
    expectSameBits(mha.forward(x).output.data, before);
  }
  const good = (): Record<string, Tensor> => make({ seed: 9 }).stateDict();
  const without = (...gone: string[]): Record<string, Tensor> =>
    Object.fromEntries(Object.entries(good()).filter(([name]) => !gone.includes(name)));

  test('all missing and unexpected names at once', () => {
    const dict = { ...without('in_proj_bias', 'out_proj.bias'), extra: zeros(1), 'more.weight': zeros(2) };
    refused(
      dict,
      undefined,
      { missing: ['in_proj_bias', 'out_proj.bias'], unexpected: ['extra', 'more.weight'] },
      'missing in_proj_bias, out_proj.bias',
      'unexpected extra, more.weight',
      'nothing was loaded',
    );
  });
  test('an empty dict', () => {
    refused({}, undefined, { missing: ['in_proj_weight', 'in_proj_bias', 'out_proj.weight', 'out_proj.bias'] });
  });
  test('a forgotten prefix is found', () => {
    const dict = make().stateDict({ prefix: 'encoder.0.' });
    refused(dict, undefined, { missing: names(good()), unexpected: names(dict) }, 'use prefix: "encoder.0."');
  });
  test('a biased dict for a layer without bias', () => {
    expect(() => make({ bias: false }).loadStateDict(good())).toThrow(/unexpected in_proj_bias, out_proj.bias/);
  });
  test('packed and separate weights together', () => {
    refused({ ...good(), q_proj_weight: zeros(12, 12) }, undefined, { unexpected: ['q_proj_weight'] });
  });
  test('wrong shapes, all at once, strict or not', () => {
    const dict = { ...good(), in_proj_weight: zeros(12, 36), 'out_proj.bias': zeros(11) };
    const mismatched = [
      '"in_proj_weight" has shape [12, 36]; it must be [36, 12]',
      '"out_proj.bias" has shape [11]; it must be [12]',
    ];
    refused(dict, undefined, { mismatched }, ...mismatched);
    refused(dict, { strict: false }, { mismatched }, ...mismatched);
  });
  test('data and shape that disagree', () => {
    refused(
      { ...good(), in_proj_bias: { data: new Float32Array(35), shape: [36] } },
      undefined,
      {},
      '35 long',
      '36 long',
    );
  });
  test.each<[string, unknown, string]>([
    ['null', null, 'null'],
    ['an array', [1, 2], 'undefined'],
    ['doubles', { data: new Float64Array(36), shape: [36] }, 'a Float64Array of 36'],
    ['integers', { dtype: 'I8', data: new Int8Array(36), shape: [36] }, '"I8"'],
    ['16-bit data called F32', { dtype: 'F32', data: new Uint16Array(36), shape: [36] }, 'a Uint16Array of 36'],
    ['a negative size', { data: new Float32Array(36), shape: [-36] }, '[-36]'],
    ['no shape', { data: new Float32Array(36) }, 'undefined'],
  ])('%s for a tensor', (_name, value, got) => {
    refused({ ...good(), in_proj_bias: value }, undefined, {}, '"in_proj_bias"', got, 'F32, F16 or BF16');
  });
  test('bias_k and bias_v are refused even when not strict: ignoring them would change the result', () => {
    refused(
      { ...good(), bias_k: zeros(1, 1, 12) },
      { strict: false },
      { unexpected: ['bias_k'] },
      'addBiasKv',
      'addBiasKv: true',
    );
  });
  test('not strict: what is missing keeps its value, what is too much is told', () => {
    const mha = make({ seed: 1 });
    const before = mha.stateDict();
    const result = mha.loadStateDict({ ...without('in_proj_weight'), extra: zeros(1) }, { strict: false });
    expect(result).toEqual({ missing: ['in_proj_weight'], unexpected: ['extra'] });
    const after = mha.stateDict();
    expectSameBits(after['in_proj_weight']!.data, before['in_proj_weight']!.data);
    expectSameBits(after['out_proj.weight']!.data, good()['out_proj.weight']!.data);
  });
  test('options', () => {
    const TYPE = { type: HeadwiseTypeError, code: 'wrong-type', call: CALL } as const;
    const bad = (
      dict: unknown,
      options: unknown,
      argument: string,
      got: string,
      wanted: string,
      code = 'wrong-type',
    ): void =>
      expectError(() => make().loadStateDict(dict as never, options as never), {
        ...TYPE,
        code,
        argument,
        got,
        wanted,
      });
    bad(undefined, undefined, 'stateDict', 'undefined', 'an object or a Map');
    bad(new Uint8Array(8), undefined, 'stateDict', 'Uint8Array of 8', 'an object or a Map');
    bad(good(), { prefix: 1 }, 'prefix', '1', 'a string');
    bad(good(), { strict: 'no' }, 'strict', '"no"', 'true or false');
    bad(good(), { Prefix: '' }, '"Prefix"', 'unknown', 'prefix, strict, layout', 'unknown-option');
    expect(() => make().loadStateDict(good(), { layout: 'tensorflow' as never })).toThrow(RangeError);
    expect(() => make().stateDict({ layout: 'tensorflow' as never })).toThrow(
      /'pytorch', 'huggingface', 'bert' or 'keras'/,
    );
  });
});
