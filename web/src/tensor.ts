// Tensors as they cross the public surface, and the checks every call begins with.
import { describe, showShape } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { trueLength, typedArrayName } from './typed-arrays.js';

/** Row-major float32 numbers with a shape. Results own their data. */
export interface Tensor {
  readonly data: Float32Array;
  readonly shape: readonly number[];
}

/** A mask: 1 or true where its name says yes, 0 or false elsewhere. */
export interface MaskTensor {
  readonly data: Uint8Array | readonly boolean[];
  readonly shape: readonly number[];
}

/** A tensor after the checks. Each property of the caller's object was read once; this is what was found. */
export interface TensorInput {
  readonly data: Float32Array;
  /** Of data, when it was checked. */
  readonly length: number;
  readonly shape: readonly number[];
}

/** A mask after the checks; booleans have become bytes. */
export interface MaskInput {
  readonly data: Uint8Array;
  readonly length: number;
  readonly shape: readonly number[];
}

/** No axis of WASM memory is longer: sizes and offsets stay exact, and fit the core's 32 bits. */
export const MAX_SIZE = 2 ** 31 - 1;
/** Bytes that 32-bit WASM can address. */
export const ADDRESS_SPACE = 2 ** 32;

export function product(sizes: readonly number[]): number {
  let result = 1;
  for (const size of sizes) result *= size;
  return result;
}

/** What an object must look like to count as a tensor and not as options. */
export const looksLikeTensor = (value: unknown): value is { data: unknown; shape: unknown } =>
  typeof value === 'object' && value !== null && ('data' in value || 'shape' in value);

/** A copy of the sizes, each read once. */
export function readShape(call: string, argument: string, shape: unknown): readonly number[] {
  if (!Array.isArray(shape)) {
    throw typeError({
      call,
      argument: `${argument}.shape`,
      got: describe(shape),
      wanted: 'an Array of sizes',
      wayOut: 'give { data, shape: [batch, length, width] }',
    });
  }
  const sizes: number[] = [];
  const rank = shape.length;
  for (let i = 0; i < rank; ++i) {
    const size: unknown = shape[i];
    if (typeof size !== 'number') {
      throw typeError({
        call,
        argument: `${argument}.shape[${i}]`,
        got: describe(size),
        wanted: 'a number',
        wayOut: 'use Array.from(shape, Number)',
      });
    }
    if (!Number.isInteger(size) || size < 0 || size > MAX_SIZE) {
      throw rangeError({
        call,
        argument: `${argument}.shape[${i}]`,
        got: describe(size),
        wanted: `a whole number from 0 to ${MAX_SIZE}`,
        wayOut: 'give the sizes of the data as they are',
      });
    }
    sizes.push(size);
  }
  return sizes;
}

function checkLength(call: string, argument: string, length: number, shape: readonly number[]): void {
  const wanted = product(shape);
  if (length === wanted) return;
  throw rangeError(
    {
      call,
      argument: `${argument}.data`,
      got: `${length} long`,
      wanted: `${wanted} long, the product of ${argument}.shape ${showShape(shape)}`,
      wayOut: length === 0 ? 'an array whose buffer was transferred is empty: pass a copy' : 'correct shape or data',
    },
    'wrong-shape',
  );
}

const WAY_TO_FLOAT32 = 'use Float32Array.from(values)';

/** A { data: Float32Array, shape } whose sizes agree. */
export function readTensor(call: string, argument: string, value: unknown): TensorInput {
  if (!looksLikeTensor(value)) {
    throw typeError({
      call,
      argument,
      got: describe(value),
      wanted: 'a tensor { data: Float32Array, shape }',
      wayOut: `give { data, shape } for ${argument}`,
    });
  }
  return readFloats(call, argument, value.data, value);
}

function readFloats(call: string, argument: string, data: unknown, value: { shape: unknown }): TensorInput {
  if (typedArrayName(data) !== 'Float32Array') {
    throw typeError({
      call,
      argument: `${argument}.data`,
      got: describe(data),
      wanted: 'a Float32Array',
      wayOut: WAY_TO_FLOAT32,
    });
  }
  const floats = data as Float32Array;
  const shape = readShape(call, argument, value.shape);
  // After the shape, whose reading may run anything.
  const length = trueLength(floats);
  checkLength(call, argument, length, shape);
  return { data: floats, length, shape };
}

/** attnBias: as readTensor, but bytes are taken for a mask in the wrong place. */
export function readBias(call: string, argument: string, value: unknown): TensorInput {
  if (!looksLikeTensor(value)) return readTensor(call, argument, value);
  const { data } = value;
  if (typedArrayName(data) === 'Uint8Array' || (Array.isArray(data) && typeof data[0] === 'boolean')) {
    throw typeError({
      call,
      argument: `${argument}.data`,
      got: describe(data),
      wanted: 'a Float32Array, which is added to the scores',
      wayOut: 'pass a 0/1 mask as attendMask (1 = may attend)',
    });
  }
  return readFloats(call, argument, data, value);
}

/** A { data: Uint8Array of 0 and 1 or booleans, shape }. Floats are refused: they would be added, not applied. */
export function readMask(call: string, argument: string, value: unknown): MaskInput {
  if (!looksLikeTensor(value)) {
    throw typeError({
      call,
      argument,
      got: describe(value),
      wanted: 'a mask { data: Uint8Array, shape }',
      wayOut: `give { data, shape } for ${argument}`,
    });
  }
  const { data } = value;
  const name = typedArrayName(data);
  const wrongType = (): Error => {
    const floats = name === 'Float32Array' || name === 'Float64Array';
    const wayOut =
      floats && argument === 'attendMask'
        ? 'pass numbers to be added to the scores as attnBias, or convert 0/1 with Uint8Array.from(mask)'
        : 'use Uint8Array.from(mask)';
    return typeError({
      call,
      argument: `${argument}.data`,
      got: describe(data),
      wanted: 'a Uint8Array of 0 and 1, or an Array of booleans',
      wayOut,
    });
  };
  if (Array.isArray(data)) {
    const bytes = bytesOfBooleans(data);
    if (bytes === undefined) throw wrongType();
    const shape = readShape(call, argument, value.shape);
    checkLength(call, argument, bytes.length, shape);
    return { data: bytes, length: bytes.length, shape };
  }
  if (name !== 'Uint8Array') throw wrongType();
  const bytes = data as Uint8Array;
  const shape = readShape(call, argument, value.shape);
  const length = trueLength(bytes);
  checkLength(call, argument, length, shape);
  for (let i = 0; i < length; ++i) {
    if ((bytes[i] as number) > 1) {
      throw rangeError({
        call,
        argument: `${argument}.data[${i}]`,
        got: String(bytes[i]),
        wanted: '0 or 1',
        wayOut: `use Uint8Array.from(mask, Boolean)`,
      });
    }
  }
  return { data: bytes, length, shape };
}

/** Booleans as 0 and 1, each read once; undefined when something else is among them, such as a hole. */
function bytesOfBooleans(data: readonly unknown[]): Uint8Array | undefined {
  const count = data.length;
  let bytes = new Uint8Array(0);
  for (let i = 0; i < count; ++i) {
    const on = data[i];
    if (typeof on !== 'boolean') return undefined;
    // Grown as elements are seen: the length of a sparse Array says nothing about what it holds.
    if (i === bytes.length) {
      const more = new Uint8Array(Math.min(count, Math.max(1024, 2 * i)));
      more.set(bytes);
      bytes = more;
    }
    bytes[i] = Number(on);
  }
  return bytes;
}
