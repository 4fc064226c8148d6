// What public test suites demand of making a layer, and of its inputs' and outputs' shapes.
import {
  HeadwiseRangeError,
  HeadwiseTypeError,
  MultiHeadAttention,
  type MultiHeadAttentionOptions,
  type StateDict,
  StateDictError,
  type Tensor,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { type ExpectedError, Random, expectClose, expectError, expectSameBits, size, zeros } from '../helpers.js';
import { attention, combine, project } from '../reference.js';

beforeAll(async () => {
  await load();
});
const make = (options: MultiHeadAttentionOptions): MultiHeadAttention => new MultiHeadAttention(options);
const NEW = { type: HeadwiseRangeError, code: 'out-of-range', call: 'new MultiHeadAttention()' } as const;
const FORWARD = { type: HeadwiseRangeError, code: 'wrong-shape', call: 'MultiHeadAttention.forward()' } as const;

describe('making a layer', () => {
  test('heads that do not divide the width are refused (construct/divisible)', () => {
    expectError(() => make({ embedDim: 10, numHeads: 4 }), {
      ...NEW,
      argument: 'embedDim',
      got: '10 with numHeads 4',
      wanted: 'a multiple of numHeads',
    });
  });

  test.each(['numHeads', 'headDim', 'vHeadDim'])('%s of 0, below 0 and fractional (construct/sizes)', (argument) => {
    for (const bad of [0, -2, 1.5]) {
      const options = { embedDim: 12, numHeads: 4, [argument]: bad };
      expectError(() => make(options), { ...NEW, argument, got: String(bad), wanted: 'a whole number from 1' });
    }
  });
  test('a value head size left away is that of the keys (construct/sizes)', () => {
    expect(make({ embedDim: 12, numHeads: 4, headDim: 5 }).config.vHeadDim).toBe(5);
  });

  test('without biases: in no projection, and it computes (construct/no-bias)', () => {
    const mha = make({ embedDim: 12, numHeads: 4, bias: false });
    const dict = mha.stateDict();
    expect(Object.keys(dict)).toEqual(['in_proj_weight', 'out_proj.weight']);
    for (const [name, length] of [
      ['in_proj_bias', 36],
      ['out_proj.bias', 12],
    ] as const) {
      expect(() => mha.loadStateDict({ ...dict, [name]: zeros(length) })).toThrow(StateDictError);
    }
    expect([...mha.forward(zeros(2, 5, 12)).output.data].every((x) => x === 0)).toBe(true);
    const { data } = mha.forward(new Random(1).tensor(2, 5, 12)).output;
    expect(data.every((x) => Number.isFinite(x) && x !== 0)).toBe(true);
  });

  test('keys and values of their own widths: three weights, and the reference (construct/own-widths)', () => {
    const random = new Random(2);
    const mha = make({ embedDim: 8, numHeads: 4, kDim: 5, vDim: 7 });
    const dict: StateDict = Object.fromEntries(
      Object.entries(mha.stateDict()).map(([name, { shape }]) => [name, random.tensor(...shape)]),
    );
    const names = [
      'q_proj_weight',
      'k_proj_weight',
      'v_proj_weight',
      'in_proj_bias',
      'out_proj.weight',
      'out_proj.bias',
    ];
    expect(Object.keys(dict)).toEqual(names);
    mha.loadStateDict(dict);
    const part = (name: string): Tensor => dict[name] as Tensor;
    const bias = (n: number): Tensor => ({ data: part('in_proj_bias').data.slice(8 * n, 8 * n + 8), shape: [8] });
    const [q, k, v] = [random.tensor(2, 3, 8), random.tensor(2, 6, 5), random.tensor(2, 6, 7)];
    const heads = attention(
      project(q, part('q_proj_weight'), bias(0), 4),
      project(k, part('k_proj_weight'), bias(1), 4),
      project(v, part('v_proj_weight'), bias(2), 4),
    ).output;
    const want = combine(heads, part('out_proj.weight'), part('out_proj.bias'));
    expectClose(mha.forward(q, k, v).output.data, want);
  });

  const KERNELS = ['query_kernel', 'key_kernel', 'value_kernel', 'output_kernel'];
  test('kernels start different from each other (construct/different-starts)', () => {
    const dict = make({ embedDim: 12, numHeads: 4, seed: 7 }).stateDict({ layout: 'keras' });
    const starts = KERNELS.map((name) => [...dict[name]!.data].sort().join());
    expect(new Set(starts).size).toBe(4);
    expect(starts[0]).not.toMatch(/^(-?[\d.e-]+)(,\1)*$/);
  });

  test('eight parameters, four without biases (construct/parameter-count)', () => {
    const sizes = { embedDim: 12, numHeads: 4 };
    const keras = make(sizes).stateDict({ layout: 'keras' });
    const biases = KERNELS.map((name) => name.replace('kernel', 'bias'));
    expect(Object.keys(keras).sort()).toEqual([...KERNELS, ...biases].sort());
    const plain = make({ ...sizes, bias: false }).stateDict({ layout: 'keras' });
    expect(Object.keys(plain).sort()).toEqual([...KERNELS].sort());
    // PyTorch's names hold the same numbers in four and two.
    const count = (dict: StateDict): number => Object.values(dict).reduce((sum, { shape }) => sum + size(shape), 0);
    expect(Object.keys(make(sizes).stateDict())).toHaveLength(4);
    expect(count(make(sizes).stateDict())).toBe(count(keras));
    expect(count(keras)).toBe(4 * (144 + 12));
  });

  test('heads times head size need not be the width, to which the output returns (construct/any-width)', () => {
    for (const headDim of [2, 7]) {
      const mha = make({ embedDim: 10, numHeads: 4, headDim });
      expect(mha.stateDict()['out_proj.weight']!.shape).toEqual([10, 4 * headDim]);
      expect(mha.forward(zeros(2, 5, 10)).output.shape).toEqual([2, 5, 10]);
    }
  });
});

describe('shapes', () => {
  test('the output has batch and length of the query and the width of the layer (shapes/output)', () => {
    for (const outDim of [undefined, 9]) {
      const mha = make({ embedDim: 12, numHeads: 4, outDim });
      for (const S of [1, 4, 11]) {
        expect(mha.forward(zeros(3, 5, 12), zeros(3, S, 12)).output.shape).toEqual([3, 5, outDim ?? 12]);
      }
    }
  });

  test('the head size of the values changes neither output width nor weights (shapes/value-head)', () => {
    const x = new Random(3).tensor(2, 5, 12);
    const results = [3, 2, 7].map((vHeadDim) => {
      const mha = make({ embedDim: 12, numHeads: 4, headDim: 3, vHeadDim });
      const random = new Random(4);
      const [query, key] = [random.tensor(12, 12), random.tensor(12, 12)];
      const dict = { ...mha.stateDict({ layout: 'huggingface' }), 'q_proj.weight': query, 'k_proj.weight': key };
      mha.loadStateDict(dict, { layout: 'huggingface' });
      return mha.forward(x, { needWeights: 'perHead' });
    });
    for (const { output, weights } of results) {
      expect(output.shape).toEqual([2, 5, 12]);
      expectSameBits(weights.data, results[0]!.weights.data);
    }
  });

  test('keys and values of different lengths (shapes/key-value-length)', () => {
    const mha = make({ embedDim: 12, numHeads: 4 });
    const wanted = 'of length 7, as key.shape [2, 7, 12]';
    expectError(() => mha.forward(zeros(2, 5, 12), zeros(2, 7, 12), zeros(2, 6, 12)), {
      ...FORWARD,
      argument: 'value.shape',
      got: '[2, 6, 12]',
      wanted,
    });
  });

  test.each([
    ['head sizes', [2, 4, 7, 5], 'of the head size D as query.shape [2, 4, 3, 6], namely 6'],
    ['ranks', [4, 7, 6], 'of rank 4'],
    ['batch sizes', [3, 4, 7, 6], 'of the batch size as query.shape [2, 4, 3, 6], namely 2'],
  ])('query and key of different %s (shapes/query-key)', (_name, shape, wanted) => {
    expectError(() => scaledDotProductAttention(zeros(2, 4, 3, 6), zeros(...shape), zeros(2, 4, 7, 6)), {
      ...FORWARD,
      call: 'scaledDotProductAttention()',
      argument: 'key.shape',
      got: `[${shape.join(', ')}]`,
      wanted,
    });
  });

  test('a query of another width: both numbers are named (shapes/embed-dim)', () => {
    const mha = make({ embedDim: 12, numHeads: 4 });
    const expected = { ...FORWARD, argument: 'query.shape', got: '[2, 5, 10]', wanted: 'embedDim 12' };
    expectError(() => mha.forward(zeros(2, 5, 10)), expected);
  });

  const RANKS = [
    [3, 2, 2],
    [3, 3, 2],
    [3, 2, 3],
    [2, 3, 3],
    [2, 2, 3],
    [2, 3, 2],
  ] as const;
  test.each(RANKS)('ranks %d, %d and %d in one call (shapes/mixed-ranks)', (...ranks) => {
    const mha = make({ embedDim: 12, numHeads: 4 });
    const [q, k, v] = ranks.map((rank) => zeros(...(rank === 3 ? [1] : []), 5, 12)) as [Tensor, Tensor, Tensor];
    const odd = k.shape.length === q.shape.length ? v : k;
    const expected: ExpectedError = {
      ...FORWARD,
      argument: odd === k ? 'key.shape' : 'value.shape',
      got: `[${odd.shape.join(', ')}]`,
      wanted: `of rank ${ranks[0]}, as query.shape [${q.shape.join(', ')}]`,
    };
    expectError(() => mha.forward(q, k, v), expected);
  });
});

test('an array of another type is refused with the way to convert it, and results are float32 (dtype/result)', () => {
  const mha = make({ embedDim: 12, numHeads: 4 });
  for (const data of [new Float64Array(60), new Int8Array(60), new Uint16Array(60)]) {
    expectError(() => mha.forward({ data, shape: [5, 12] } as unknown as Tensor), {
      type: HeadwiseTypeError,
      code: 'wrong-type',
      call: 'MultiHeadAttention.forward()',
      argument: 'query.data',
      got: data.constructor.name,
      wanted: /a Float32Array.*Float32Array\.from/,
    });
  }
  const { output, weights, lse } = mha.forward(zeros(5, 12), { needWeights: 'averaged', returnLse: true });
  for (const { data } of [output, weights, lse!]) expect(data).toBeInstanceOf(Float32Array);
});
