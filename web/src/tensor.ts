// Tensors as they cross the public surface, and the checks every call begins with.
import { describe, showShape, typedArrayName } from './describe.js';
import { rangeError, typeError } from './errors.js';

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

export function checkShape(call: string, argument: string, shape: unknown): asserts shape is readonly number[] {
  if (!Array.isArray(shape)) {
    throw typeError({
      call,
      argument: `${argument}.shape`,
      got: describe(shape),
      wanted: 'an Array of sizes',
      wayOut: 'give { data, shape: [batch, length, width] }',
    });
  }
  for (let i = 0; i < shape.length; ++i) {
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
  }
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
export function checkTensor(call: string, argument: string, value: unknown): asserts value is Tensor {
  if (!looksLikeTensor(value)) {
    throw typeError({
      call,
      argument,
      got: describe(value),
      wanted: 'a tensor { data: Float32Array, shape }',
      wayOut: `give { data, shape } for ${argument}`,
    });
  }
  if (typedArrayName(value.data) !== 'Float32Array') {
    throw typeError({
      call,
      argument: `${argument}.data`,
      got: describe(value.data),
      wanted: 'a Float32Array',
      wayOut: WAY_TO_FLOAT32,
    });
  }
  checkShape(call, argument, value.shape);
  checkLength(call, argument, (value.data as Float32Array).length, value.shape);
}

/** attnBias: as checkTensor, but bytes are taken for a mask in the wrong place. */
export function checkBias(call: string, argument: string, value: unknown): asserts value is Tensor {
  if (looksLikeTensor(value) && (typedArrayName(value.data) === 'Uint8Array' || isBooleans(value.data))) {
    throw typeError({
      call,
      argument: `${argument}.data`,
      got: describe(value.data),
      wanted: 'a Float32Array, which is added to the scores',
      wayOut: 'pass a 0/1 mask as attendMask (1 = may attend)',
    });
  }
  checkTensor(call, argument, value);
}

/** Not every(): it skips the holes of a sparse Array. */
function isBooleans(data: unknown): boolean {
  if (!Array.isArray(data)) return false;
  for (let i = 0; i < data.length; ++i) if (typeof data[i] !== 'boolean') return false;
  return true;
}

/** A { data: Uint8Array of 0 and 1 or booleans, shape }. Floats are refused: they would be added, not applied. */
export function checkMask(call: string, argument: string, value: unknown): asserts value is MaskTensor {
  if (!looksLikeTensor(value)) {
    throw typeError({
      call,
      argument,
      got: describe(value),
      wanted: 'a mask { data: Uint8Array, shape }',
      wayOut: `give { data, shape } for ${argument}`,
    });
  }
  const name = typedArrayName(value.data);
  if (name !== 'Uint8Array' && !isBooleans(value.data)) {
    const floats = name === 'Float32Array' || name === 'Float64Array';
    const wayOut =
      floats && argument === 'attendMask'
        ? 'pass numbers to be added to the scores as attnBias, or convert 0/1 with Uint8Array.from(mask)'
        : 'use Uint8Array.from(mask)';
    throw typeError({
      call,
      argument: `${argument}.data`,
      got: describe(value.data),
      wanted: 'a Uint8Array of 0 and 1, or an Array of booleans',
      wayOut,
    });
  }
  checkShape(call, argument, value.shape);
  const data = value.data as Uint8Array | readonly boolean[];
  checkLength(call, argument, data.length, value.shape);
  if (name !== 'Uint8Array') return;
  const bytes = data as Uint8Array;
  for (let i = 0; i < bytes.length; ++i) {
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
}
