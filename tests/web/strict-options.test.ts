// Options that are no plain objects, limits of the core, and what a failed call leaves behind.
import {
  type ForwardOptions,
  HeadwiseLoadError,
  HeadwiseMemoryError,
  HeadwiseRangeError,
  HeadwiseTypeError,
  Linear,
  MultiHeadAttention,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { SafetensorsError, parseSafetensors, serializeSafetensors } from 'headwise/safetensors';
import { beforeAll, describe, expect, test } from 'vitest';
import { expectError, expectRejection, zeros } from './helpers.js';

let mha: MultiHeadAttention;
beforeAll(async () => {
  await load();
  mha = new MultiHeadAttention({ embedDim: 8, numHeads: 2, seed: 3 });
});
const x = zeros(3, 8);
const NEW = 'new MultiHeadAttention()';

describe('options are named values', () => {
  const wrong = { type: HeadwiseTypeError, code: 'wrong-type', argument: 'options', wanted: 'an object' } as const;
  const others: [string, unknown][] = [
    ['a Map', new Map([['causal', true]])],
    ['a Date', new Date(0)],
    ['a Set', new Set()],
    ['an ArrayBuffer', new ArrayBuffer(8)],
    ['a RegExp', /x/],
    ['a Promise', Promise.resolve({})],
  ];
  test.each(others)('%s', async (got, options) => {
    const given = options as Record<string, never>;
    expectError(() => mha.forward(x, given), { ...wrong, call: 'MultiHeadAttention.forward()', got });
    const call = 'scaledDotProductAttention()';
    expectError(() => scaledDotProductAttention(x, x, x, given), { ...wrong, call, got });
    expectError(() => new MultiHeadAttention(given as never), { ...wrong, call: NEW, got });
    await expectRejection(load(given), { ...wrong, call: 'load()', got });
  });
  test('null and an Array for Linear.create()', async () => {
    for (const [got, options] of [
      ['null', null],
      ['an Array of 0', []],
    ] as const) {
      await expectRejection(Linear.create(options as never), { ...wrong, call: 'Linear.create()', got });
    }
  });
  test('inherited names are checked, too', () => {
    const options = Object.create({ dropuot: 1 }) as object;
    expectError(() => mha.forward(x, options), {
      ...wrong,
      code: 'unknown-option',
      call: 'MultiHeadAttention.forward()',
      argument: '"dropuot"',
      got: 'unknown',
      wanted: 'one of',
    });
  });
  test("the names of a model's configuration are told theirs here", () => {
    const hint = (options: object): string => {
      try {
        new MultiHeadAttention({ embedDim: 8, numHeads: 2, ...options });
      } catch (error) {
        return (error as Error).message.split('; ').at(-1)!;
      }
      return 'nothing was thrown';
    };
    const scaling = (name: string): string =>
      hint({ rope: { scaling: { type: 'yarn', factor: 4, originalLength: 64, [name]: 1 } } });
    expect(hint({ num_key_value_heads: 1 })).toBe('use numKvHeads');
    expect(hint({ kdim: 1 })).toBe('use kDim');
    expect(hint({ rope_theta: 1e6 })).toBe('use rope: { base }');
    expect(hint({ rope: { theta: 1e6 } })).toBe('use base');
    expect(scaling('original_max_position_embeddings')).toBe('use originalLength');
    expect(scaling('beta_fast')).toBe('use betaFast');
    expect(scaling('low_freq_factor')).toBe('use lowFrequencyFactor');
    expect(scaling('toString2')).toBe('correct or remove it');
  });
  test('inherited values, instances of a class and objects without prototype count', () => {
    class Options {
      returnLse = true;
      get causal(): boolean {
        return true;
      }
    }
    const bare = Object.assign(Object.create(null) as object, { returnLse: true, causal: true });
    const inherited = Object.create({ returnLse: true, causal: true }) as object;
    for (const options of [new Options(), bare, inherited]) {
      expect(mha.forward(x, options).lse).toEqual(mha.forward(x, { returnLse: true, causal: true }).lse);
    }
    expect(mha.forward(x).lse).toBeUndefined();
  });
  test('create() takes inherited sizes', async () => {
    const made = await MultiHeadAttention.create(Object.create({ embedDim: 8, numHeads: 4 }) as never);
    expect(made.config.numHeads).toBe(4);
  });
});

describe('limits of the core', () => {
  const most = 2 ** 24;
  const wrong = { type: HeadwiseRangeError, code: 'out-of-range', wanted: `${most}` } as const;
  const layer = { embedDim: 8, numHeads: 2 };
  const names = ['embedDim', 'numHeads', 'numKvHeads', 'headDim', 'vHeadDim', 'kDim', 'vDim', 'outDim'] as const;
  test.each(names)('%s', (name) => {
    const options = { ...layer, [name]: most + 1 };
    expectError(() => new MultiHeadAttention(options), { ...wrong, call: NEW, argument: name, got: `${most + 1}` });
  });
  test('all heads together', () => {
    for (const name of ['headDim', 'vHeadDim'] as const) {
      const options = { embedDim: 1, numHeads: 2 ** 13, headDim: 1, [name]: 2 ** 12 };
      const got = `4096 with numHeads 8192, ${2 ** 25} in all heads`;
      expectError(() => new MultiHeadAttention(options), { ...wrong, call: NEW, argument: name, got });
    }
  });
  test('Linear', () => {
    const call = 'new Linear()';
    const got = `${most + 1}`;
    for (const [argument, options] of [
      ['inFeatures', { inFeatures: most + 1, outFeatures: 1 }],
      ['outFeatures', { inFeatures: 1, outFeatures: most + 1 }],
    ] as const) {
      expectError(() => new Linear(options), { ...wrong, call, argument, got });
    }
    expect(new Linear({ inFeatures: most, outFeatures: 1, bias: false }).inFeatures).toBe(most);
  });
  test('a layer too large is told to be smaller', () => {
    for (const f of [
      () => new Linear({ inFeatures: 2 ** 20, outFeatures: 2 ** 20 }),
      () => new MultiHeadAttention({ embedDim: 2 ** 16, numHeads: 1 }),
    ]) {
      expect(f).toThrow(/; use a smaller layer$/);
    }
  });
});

describe('an asynchronous callback of withBuffers()', () => {
  test('its rejection ends nothing', async () => {
    const unhandled: unknown[] = [];
    const listen = (error: unknown): void => void unhandled.push(error);
    process.on('unhandledRejection', listen);
    try {
      expect(() => mha.withBuffers({ queryLength: 1 }, () => Promise.reject(new Error('late')))).toThrow(/a promise/);
      await new Promise((resolve) => setTimeout(resolve, 20));
      expect(unhandled).toEqual([]);
    } finally {
      process.off('unhandledRejection', listen);
    }
  });
  test('something else with a then() is refused without calling it', () => {
    let called = false;
    const lazy = { then: () => (called = true) };
    expect(() => mha.withBuffers({ queryLength: 1 }, () => lazy)).toThrow(HeadwiseTypeError);
    expect(called).toBe(false);
  });
});

// Of 66 million rows inputs and outputs fit the address space, the scratch does not; of 24 million the scratch fits, and
// then inputs and outputs do not. Each time what fits takes nearly all.
test.each([66_000_000, 24_000_000])(
  'a call of %i rows, for which memory is too short, keeps none of it',
  async (rows) => {
    const wasmUrl = new URL('../../web/dist/wasm/headwise.simd.wasm', import.meta.url);
    const own = await load({ wasmUrl: `${wasmUrl.href}?${rows}`, variant: 'simd' });
    const layer = new MultiHeadAttention({ embedDim: 8, numHeads: 2, runtime: own });
    const want = layer.forward(x).output.data;
    expect(() => layer.withBuffers({ queryLength: rows }, () => 0)).toThrow(HeadwiseMemoryError);
    // Twice 128 MiB, dense and packed.
    const linear = new Linear({ inFeatures: 2 ** 22, outFeatures: 8, runtime: own });
    expect(linear.disposed).toBe(false);
    expect(layer.forward(x).output.data).toEqual(want);
    own.dispose();
  },
);

describe('messages', () => {
  const TYPE = { type: HeadwiseTypeError, code: 'wrong-type' } as const;
  test('a bias of an Array', () => {
    const options = { embedDim: 8, numHeads: 2, bias: [] as never };
    expectError(() => new MultiHeadAttention(options), {
      ...TYPE,
      call: NEW,
      argument: ': bias is',
      got: 'an Array of 0',
      wanted: 'true, false or an object of query, key, value, out',
    });
  });
  test('other arrays, and a Proxy of the right one', () => {
    const call = { ...TYPE, call: 'MultiHeadAttention.forward()', argument: 'query.data', wanted: 'a Float32Array' };
    const shape = [3, 8];
    const f = (data: unknown) => () => mha.forward({ data: data as Float32Array, shape });
    expectError(f(new Int32Array(24)), { ...call, got: 'is an Int32Array of 24' });
    expectError(f(new Proxy(new Float32Array(24), {})), { ...call, got: 'a Proxy or imitation of a Float32Array' });
  });
  test('a .wasm of something else', async () => {
    await expectRejection(load({ wasmBinary: new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]) }), {
      type: HeadwiseLoadError,
      code: 'instantiate',
      call: 'load()',
      argument: 'wasmBinary',
      got: 'none of this package',
      wanted: 'was wanted',
    });
  });
});

test('the types know of weights where they are asked for', () => {
  // Compiles only if weights cannot be undefined.
  const shapes: (readonly number[])[] = [
    mha.forward(x, { needWeights: 'perHead' }).weights.shape,
    mha.forward(x, x, { needWeights: 'averaged', causal: true }).weights.shape,
    mha.forward(x, x, x, { needWeights: 'averaged' }).weights.shape,
    scaledDotProductAttention(x, x, x, { needWeights: 'perHead' }).weights.shape,
  ];
  const perhaps: ForwardOptions = {};
  // @ts-expect-error: here they can be.
  expect(() => mha.forward(x, perhaps).weights.shape).toThrow(TypeError);
  expect(shapes).toEqual([
    [2, 3, 3],
    [3, 3],
    [3, 3],
    [3, 3],
  ]);
});

describe('serializeSafetensors()', () => {
  const CALL = 'serializeSafetensors()';
  const a = { data: new Float32Array([1, 2]), shape: [2] };
  const TYPE = { type: HeadwiseTypeError, code: 'wrong-type', call: CALL } as const;
  const FILE = { type: SafetensorsError, code: 'safetensors', call: CALL } as const;
  const save = serializeSafetensors as (...args: unknown[]) => Uint8Array;
  test('takes a Map, for tensors and for metadata', () => {
    const file = serializeSafetensors(new Map([['a', a]]), new Map([['by', 'me']]));
    expect(file).toEqual(serializeSafetensors({ a }, { by: 'me' }));
    expect({ ...parseSafetensors(file).metadata }).toEqual({ by: 'me' });
  });
  test('a name of __proto__ is a name', () => {
    const file = serializeSafetensors(new Map([['__proto__', a]]), new Map([['__proto__', 'x']]));
    const { tensors, metadata } = parseSafetensors(file);
    expect([Object.keys(tensors), Object.entries(metadata)]).toEqual([['__proto__'], [['__proto__', 'x']]]);
  });
  test.each<[string, unknown[], Parameters<typeof expectError>[1]]>([
    ['no tensors', [], { ...TYPE, argument: 'tensors', got: 'undefined', wanted: 'an object or a Map' }],
    ['a Date', [new Date(0)], { ...TYPE, argument: 'tensors', got: 'a Date', wanted: 'an object or a Map' }],
    ['a tensor of null', [{ a: null }], { ...TYPE, argument: 'tensor "a"', got: 'null', wanted: '{ data, shape }' }],
    ['a name of a number', [new Map([[1, a]])], { ...TYPE, argument: 'a name', got: '1', wanted: 'a string' }],
    ['half a character', [{ '\ud800': a }], { ...FILE, argument: 'a name', got: 'ud800', wanted: 'well-formed' }],
    [
      'no shape',
      [{ a: { data: a.data } }],
      { ...TYPE, argument: 'tensor "a" shape', got: 'undefined', wanted: 'an Array' },
    ],
    [
      'a fractional shape',
      [{ a: { data: a.data, shape: [0.5, 4] } }],
      { ...FILE, argument: 'tensor "a" shape', got: '[0.5, 4]', wanted: 'whole numbers' },
    ],
    [
      'a negative shape',
      [{ a: { data: a.data, shape: [-1, -2] } }],
      { ...FILE, argument: 'tensor "a" shape', got: '[-1, -2]', wanted: 'whole numbers' },
    ],
    [
      'a shape of a string',
      [{ a: { data: a.data, shape: ['2'] } }],
      { ...FILE, argument: 'tensor "a" shape', got: '["2"]', wanted: 'whole numbers' },
    ],
    [
      'a shape that overflows before its 0',
      [{ a: { data: new Float32Array(0), shape: [2 ** 52, 4, 0] } }],
      { ...FILE, argument: 'tensor "a" shape', got: '4503599627370496', wanted: 'at most 2^53' },
    ],
    ['metadata of a number', [{ a }, { n: 1 }], { ...TYPE, argument: 'metadata "n"', got: '1', wanted: 'a string' }],
    ['metadata of null', [{ a }, null], { ...TYPE, argument: 'metadata', got: 'null', wanted: 'an object or a Map' }],
    [
      'half a character in metadata',
      [{ a }, { n: '\udc00' }],
      { ...FILE, argument: 'metadata "n"', got: 'udc00', wanted: 'well-formed' },
    ],
  ])('%s', (_name, args, expected) => {
    expectError(() => save(...args), expected);
  });
});
