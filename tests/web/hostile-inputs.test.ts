// Inputs that answer differently each time they are asked, or whose memory goes away during the call. Every property
// is read once, what was checked is what is copied, and WASM memory is neither read nor written out of place.
import {
  HeadwiseError,
  HeadwiseRangeError,
  HeadwiseTypeError,
  Linear,
  MultiHeadAttention,
  type Runtime,
  type Tensor,
  UseAfterDisposeError,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { parseSafetensors, serializeSafetensors } from 'headwise/safetensors';
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { Random, expectError, expectSameBits } from './helpers.js';

const FORWARD = 'MultiHeadAttention.forward()';
const random = new Random(7);
let runtime: Runtime;
let mha: MultiHeadAttention;
let linear: Linear;
let x: Tensor;
let want: Float32Array;
let state: Record<string, Tensor>;
beforeAll(async () => {
  runtime = await load();
  mha = new MultiHeadAttention({ embedDim: 8, numHeads: 2, seed: 3 });
  linear = new Linear({ inFeatures: 8, outFeatures: 4 });
  x = random.tensor(2, 3, 8);
  want = mha.forward(x).output.data;
  state = mha.stateDict();
});
// Whatever was tried, the layer still holds its weights and gives the same bits.
afterEach(() => {
  expectSameBits(mha.forward(x).output.data, want);
  for (const [name, { data }] of Object.entries(mha.stateDict())) expectSameBits(data, state[name]!.data);
});

/** An object whose properties change at each reading: the first of the list, then the next. */
function changing<T extends object>(lists: { [K in keyof T]: T[K][] }): { object: T; reads: Record<string, number> } {
  const reads: Record<string, number> = {};
  const object = {} as T;
  for (const [name, list] of Object.entries(lists) as [string, unknown[]][]) {
    reads[name] = 0;
    Object.defineProperty(object, name, {
      enumerable: true,
      get: () => list[Math.min(reads[name]!++, list.length - 1)],
    });
  }
  return { object, reads };
}
/** An Array that shows its real elements once, and another value afterwards. */
function onceHonest<T>(elements: T[], later: unknown): T[] {
  const seen = new Set<PropertyKey>();
  return new Proxy(elements, {
    get(target, name, receiver) {
      if (seen.has(name) && name !== 'constructor' && typeof name === 'string') return later;
      seen.add(name);
      return Reflect.get(target, name, receiver) as unknown;
    },
  });
}
const detach = (array: Float32Array): void => void structuredClone(array.buffer, { transfer: [array.buffer] });
const resizable = (length: number, max: number): { array: Float32Array; resize: (n: number) => void } => {
  const Resizable = ArrayBuffer as unknown as new (
    bytes: number,
    options: { maxByteLength: number },
  ) => ArrayBuffer & { resize(bytes: number): void };
  const buffer = new Resizable(4 * length, { maxByteLength: 4 * max });
  return { array: new Float32Array(buffer), resize: (n) => buffer.resize(4 * n) };
};
const changed = (call: string, argument: string, got: string) => ({
  type: HeadwiseRangeError,
  code: 'wrong-shape',
  call,
  argument,
  got,
  wanted: 'as when the call began',
});

describe('properties are read once', () => {
  const big = new Float32Array(100_000).fill(9);
  test('data and shape of inputs', () => {
    const { object, reads } = changing<Tensor>({
      data: [x.data, big],
      shape: [
        [2, 3, 8],
        [2, 30, 8],
      ],
    });
    expectSameBits(mha.forward(object).output.data, want);
    expect(reads).toEqual({ data: 1, shape: 1 });
  });
  test('sizes in a shape', () => {
    const shape = onceHonest([2, 3, 8], 1000);
    const result = mha.forward({ data: x.data, shape }).output;
    expectSameBits(result.data, want);
    expect(result.shape).toEqual([2, 3, 8]);
  });
  test('data of masks, biases, and the elements of boolean masks', () => {
    const options = { keyPaddingMask: { data: new Uint8Array([0, 0, 1, 0, 1, 1]), shape: [2, 3] } };
    const masked = mha.forward(x, options).output.data;
    const bytes = changing({ data: [options.keyPaddingMask.data, new Uint8Array(9999)], shape: [[2, 3]] });
    expectSameBits(mha.forward(x, { keyPaddingMask: bytes.object }).output.data, masked);
    expect(bytes.reads).toEqual({ data: 1, shape: 1 });
    const data = onceHonest([false, false, true, false, true, true], 5000);
    expectSameBits(mha.forward(x, { keyPaddingMask: { data, shape: [2, 3] } }).output.data, masked);
    const bias = changing({ data: [new Float32Array(9), big], shape: [[3, 3]] });
    expectSameBits(mha.forward(x, { attnBias: bias.object }).output.data, want);
    expect(bias.reads).toEqual({ data: 1, shape: 1 });
  });
  test('numbers for each batch entry', () => {
    const lengths = mha.forward(x, { keyLengths: [3, 1] }).output.data;
    expectSameBits(mha.forward(x, { keyLengths: onceHonest([3, 1], 1e6) }).output.data, lengths);
  });
  test('an Int32Array that another option changes after it was checked', () => {
    const keyLengths = new Int32Array([3, 1]);
    const lengths = mha.forward(x, { keyLengths }).output.data;
    const options = {
      keyLengths,
      queryLengths: onceHonest([3, 3], 0),
      attnBias: { data: new Float32Array(9), shape: [3, 3] },
    };
    const queryLengths = new Proxy([3, 3], {
      get(target, name, receiver) {
        keyLengths.fill(1_000_000);
        return Reflect.get(target, name, receiver) as unknown;
      },
    });
    expectSameBits(mha.forward(x, { ...options, queryLengths }).output.data, lengths);
  });
  test('options, out among them', () => {
    const out = new Float32Array(48);
    const { object, reads } = changing({ out: [out, new Float32Array(1)], needWeights: [false as const, 'perHead'] });
    expect(mha.forward(x, object as object).output.data).toBe(out);
    expectSameBits(out, want);
    expect(reads).toEqual({ out: 1, needWeights: 1 });
    const heads = random.tensor(1, 2, 3, 4);
    const sdpa = changing({ layout: ['BHLD' as const, 'BLHD' as const], runtime: [runtime, {} as Runtime] });
    expectSameBits(
      scaledDotProductAttention(heads, heads, heads, sdpa.object).output.data,
      scaledDotProductAttention(heads, heads, heads).output.data,
    );
    expect(sdpa.reads).toEqual({ layout: 1, runtime: 1 });
  });
  test('options of create(), before and after its wait', async () => {
    const layer = changing({ embedDim: [8, -1], numHeads: [2, 0.5], seed: [3, -1] });
    const made = await MultiHeadAttention.create(layer.object);
    expectSameBits(made.forward(x).output.data, want);
    expect(layer.reads).toEqual({ embedDim: 1, numHeads: 1, seed: 1 });
    const flat = changing({ inFeatures: [8, -1], outFeatures: [4, -1] });
    expect((await Linear.create(flat.object)).outFeatures).toBe(4);
  });
  test('Linear and state dicts', () => {
    const input = changing<Tensor>({ data: [x.data, big], shape: [[6, 8], [6000]] });
    expectSameBits(linear.forward(input.object).data, linear.forward({ data: x.data, shape: [6, 8] }).data);
    const weight = state['in_proj_weight']!;
    const entry = changing<Tensor>({ data: [weight.data, big], shape: [[...weight.shape], [1]] });
    mha.loadStateDict({ ...state, in_proj_weight: entry.object });
    expect(entry.reads).toEqual({ data: 1, shape: 1 });
    class Liar extends Map<string, Tensor> {
      override get(): Tensor {
        return { data: big, shape: [...weight.shape] };
      }
    }
    mha.loadStateDict(new Liar(Object.entries(state)));
  });
});

describe('lengths are the true ones', () => {
  class Long extends Float32Array {
    override get length(): 48 {
      return 48;
    }
  }
  const own = (length: number): Float32Array => {
    const array = new Float32Array(length);
    Object.defineProperty(array, 'length', { value: 48 });
    return array;
  };
  const lies: [string, (n: number) => Float32Array][] = [
    ['of a subclass', (n) => new Long(n)],
    ['of an own property', own],
  ];
  for (const [name, make] of lies) {
    for (const length of [3, 4800]) {
      const shape = [2, 3, 8];
      const wrong = { type: HeadwiseRangeError, code: 'wrong-shape', got: `${length} long`, wanted: '48 long' };
      test(`${name}: input ${length} long`, () => {
        const call = { ...wrong, call: FORWARD, argument: 'query.data' };
        expectError(() => mha.forward({ data: make(length), shape }), call);
        const data = make(length);
        expectError(() => linear.forward({ data, shape }), { ...call, call: 'Linear.forward()', argument: 'x.data' });
      });
      test(`${name}: out ${length} long`, () => {
        const out = make(length);
        expectError(() => mha.forward(x, { out }), { ...wrong, call: FORWARD, argument: 'out' });
        expect(out.every((value) => value === 0)).toBe(true);
      });
    }
  }
  test('own buffer and byteOffset do not lead elsewhere', () => {
    const data = Float32Array.from(x.data);
    Object.defineProperties(data, { buffer: { value: new ArrayBuffer(8) }, byteOffset: { value: 4 } });
    const out = new Float32Array(48);
    Object.defineProperties(out, { buffer: { value: new ArrayBuffer(8) }, set: { value: () => undefined } });
    mha.forward({ data, shape: [2, 3, 8] }, { out });
    expectSameBits(out, want);
  });
  test('a Proxy of a Float32Array is none', () => {
    expectError(() => mha.forward({ data: new Proxy(x.data, {}), shape: [2, 3, 8] }), {
      type: HeadwiseTypeError,
      code: 'wrong-type',
      call: FORWARD,
      argument: 'query.data',
      got: 'Float32Array',
      wanted: 'a Float32Array',
    });
  });
});

describe('memory that goes away or grows after the check', () => {
  /** Runs `then` when the options are looked at, which is after the inputs were checked. */
  const later = (then: () => void): object => ({
    get causal() {
      then();
      return false;
    },
  });
  test('a transferred input', () => {
    const data = Float32Array.from(x.data);
    const options = later(() => detach(data));
    expectError(() => mha.forward({ data, shape: [2, 3, 8] }, options), changed(FORWARD, 'query.data', '0 long now'));
  });
  for (const size of [5, 0, 480]) {
    test(`an input resized to ${size}`, () => {
      const { array, resize } = resizable(48, 480);
      const options = later(() => resize(size));
      const f = (): unknown => mha.forward(x, { data: array, shape: [2, 3, 8] }, options);
      expectError(f, changed(FORWARD, 'key.data', `${size} long now`));
    });
    test(`out resized to ${size} by a later argument`, () => {
      const { array, resize } = resizable(48, 480);
      const shape = new Proxy([3, 3], {
        get(target, name, receiver) {
          resize(size);
          return Reflect.get(target, name, receiver) as unknown;
        },
      });
      expectError(() => mha.forward(x, { out: array, attnBias: { data: new Float32Array(9), shape } }), {
        type: HeadwiseRangeError,
        code: 'wrong-shape',
        call: FORWARD,
        argument: 'out',
        got: `${size} long`,
        wanted: '48 long',
      });
    });
    test(`a bias resized to ${size}`, () => {
      const { array, resize } = resizable(9, 480);
      const options = {
        attnBias: { data: array, shape: [3, 3] },
        keyLengths: new Proxy([3, 3], {
          get(target, name, receiver) {
            resize(size);
            return Reflect.get(target, name, receiver) as unknown;
          },
        }),
      };
      expectError(() => mha.forward(x, options), changed(FORWARD, 'attnBias.data', `${size} long now`));
    });
  }
  test('withBuffers()', () => {
    const data = new Float32Array(9);
    const queryLengths = new Proxy([3], {
      get(target, name, receiver) {
        if (data.length > 0) detach(data);
        return Reflect.get(target, name, receiver) as unknown;
      },
    });
    const sizes = { batch: 1, queryLength: 3, options: { attnBias: { data, shape: [3, 3] }, queryLengths } };
    const call = 'MultiHeadAttention.withBuffers()';
    expectError(() => mha.withBuffers(sizes, () => 0), changed(call, 'attnBias.data', '0 long now'));
  });
  test('loadStateDict(): nothing is loaded', () => {
    const first = Float32Array.from(state['in_proj_weight']!.data).fill(1);
    const dict = {
      ...state,
      in_proj_weight: { data: first, shape: state['in_proj_weight']!.shape },
      'out_proj.bias': {
        shape: [8],
        get data() {
          detach(first);
          return new Float32Array(8);
        },
      },
    };
    const call = 'MultiHeadAttention.loadStateDict()';
    expectError(() => mha.loadStateDict(dict), changed(call, '"in_proj_weight".data', '0 long now'));
  });
  test('an array of earlier lent memory, when the memory grows', async () => {
    const own = await load({ wasmUrl: new URL('../../web/dist/wasm/headwise.simd.wasm', import.meta.url) });
    const layer = new MultiHeadAttention({ embedDim: 8, numHeads: 2, runtime: own });
    const stale = layer.withBuffers({ queryLength: 3 }, ({ query }) => query);
    const key = random.tensor(300_000, 8);
    const f = (): unknown => layer.forward({ data: stale, shape: [3, 8] }, key);
    expectError(f, changed(FORWARD, 'query.data', '0 long now'));
  });
  test('serializeSafetensors()', () => {
    const data = new Float32Array(4);
    const tensors = {
      a: { data, shape: [4] },
      b: {
        shape: [1],
        get data() {
          detach(data);
          return new Float32Array(1);
        },
      },
    };
    expectError(
      () => serializeSafetensors(tensors),
      changed('serializeSafetensors()', 'tensor "a" data', '0 long now'),
    );
  });
  test('parseSafetensors() of a resizable buffer: the tensors have a fixed length', () => {
    const file = serializeSafetensors({ a: { data: new Float32Array(4), shape: [4] } });
    const { array, resize } = resizable(file.length / 4, file.length);
    new Uint8Array(array.buffer).set(file);
    const { tensors } = parseSafetensors(array.buffer as ArrayBuffer);
    resize(file.length);
    expect(tensors['a']!.data.length).toBe(4);
  });
});

describe('calls within calls', () => {
  test('a getter that calls forward() disturbs nothing', () => {
    const options = {
      get causal() {
        mha.forward(random.tensor(1, 50, 8), { causal: true, needWeights: 'perHead' });
        return false;
      },
    };
    expectSameBits(mha.forward(x, options).output.data, want);
  });
  test('while data are copied, another call is refused', () => {
    const set = Float32Array.prototype.set;
    let error: unknown;
    const spy = vi.spyOn(Float32Array.prototype, 'set').mockImplementation(function (this: Float32Array, ...args) {
      spy.mockRestore();
      try {
        mha.forward(random.tensor(1, 50, 8));
      } catch (thrown) {
        error = thrown;
      }
      set.apply(this, args);
    });
    expectSameBits(mha.forward(x).output.data, want);
    const thrown = (): never => {
      throw error;
    };
    expectError(thrown, {
      type: HeadwiseError,
      code: 'busy',
      call: FORWARD,
      argument: 'the runtime',
      got: `at work for ${FORWARD}`,
      wanted: 'must be free',
    });
  });
  const disposing = (layer: { dispose(): void }): Tensor => ({
    shape: [2, 3, 8],
    get data() {
      layer.dispose();
      return x.data;
    },
  });
  test.each<[string, () => unknown]>([
    [
      'forward()',
      () => {
        const layer = new MultiHeadAttention({ embedDim: 8, numHeads: 2 });
        return layer.forward(disposing(layer));
      },
    ],
    [
      'Linear.forward()',
      () => {
        const layer = new Linear({ inFeatures: 8, outFeatures: 2 });
        return layer.forward(disposing(layer));
      },
    ],
    [
      'loadStateDict()',
      () => {
        const layer = new MultiHeadAttention({ embedDim: 8, numHeads: 2 });
        const { shape, data } = state['in_proj_weight']!;
        const weight = {
          shape,
          get data() {
            layer.dispose();
            return data;
          },
        };
        return layer.loadStateDict({ ...state, in_proj_weight: weight });
      },
    ],
    [
      'withBuffers()',
      () => {
        const layer = new MultiHeadAttention({ embedDim: 8, numHeads: 2 });
        return layer.withBuffers(
          {
            get queryLength() {
              layer.dispose();
              return 3;
            },
          },
          () => 0,
        );
      },
    ],
  ])('a layer disposed of by a getter of its own arguments: %s', (_name, f) => {
    expect(f).toThrow(UseAfterDisposeError);
  });
});
