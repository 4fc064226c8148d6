// Tensors as files hold them: a type name, a shape, and numbers or bits.
import { describe, showShape, typedArrayName } from './describe.js';
import { bfloat16ToFloat32, float16ToFloat32 } from './half.js';
import type { Tensor } from './tensor.js';

/** The arrays that hold each type. F16 and BF16 are bits, whether or not the engine knows Float16Array. */
export interface StoredArrays {
  F64: Float64Array;
  F32: Float32Array;
  F16: Uint16Array;
  BF16: Uint16Array;
  I64: BigInt64Array;
  I32: Int32Array;
  I16: Int16Array;
  I8: Int8Array;
  U64: BigUint64Array;
  U32: Uint32Array;
  U16: Uint16Array;
  U8: Uint8Array;
  BOOL: Uint8Array;
}
export type DType = keyof StoredArrays;

/** One tensor of a file. */
export type StoredTensor = {
  [T in DType]: { readonly dtype: T; readonly shape: readonly number[]; readonly data: StoredArrays[T] };
}[DType];

/** The bits of a Float16Array, or the Uint16Array itself; undefined for anything else. */
function halfBits(data: unknown): Uint16Array | undefined {
  const name = typedArrayName(data);
  if (name === 'Uint16Array') return data as Uint16Array;
  if (name !== 'Float16Array') return undefined;
  const view = data as ArrayBufferView;
  return new Uint16Array(view.buffer, view.byteOffset, view.byteLength / 2);
}

/** What can be read as float32: reads into `out` of `length` numbers. */
export interface FloatSource {
  readonly shape: readonly number[];
  readonly length: number;
  read(out: Float32Array): void;
}

/**
 * A Tensor (float32), or a stored tensor of type F32, F16 or BF16. Returns a sentence when it is none of these or its
 * sizes disagree, so that all faults of a state dict can be told at once.
 */
export function floatSource(name: string, value: unknown): FloatSource | string {
  const wanted = 'it must be { data: Float32Array, shape } or a stored tensor of dtype F32, F16 or BF16';
  if (typeof value !== 'object' || value === null) return `${name} is ${describe(value)}; ${wanted}`;
  const { dtype = 'F32', data, shape } = value as { dtype?: unknown; data?: unknown; shape?: unknown };
  if (!Array.isArray(shape) || !shape.every((size) => Number.isSafeInteger(size) && (size as number) >= 0)) {
    return `${name}.shape is ${Array.isArray(shape) ? showShape(shape) : describe(shape)}; ${wanted}`;
  }
  const source = sourceOf(dtype, data);
  if (source === undefined) {
    return `${name} has dtype ${describe(dtype)} with data ${describe(data)}; ${wanted}; convert it first`;
  }
  const count = (shape as number[]).reduce((a, b) => a * b, 1);
  if (source.length !== count) {
    return `${name}.data is ${source.length} long; it must be ${count} long, the product of its shape ${showShape(shape)}`;
  }
  return { shape: shape as number[], ...source };
}

function sourceOf(dtype: unknown, data: unknown): Omit<FloatSource, 'shape'> | undefined {
  if (dtype === 'F32') {
    if (typedArrayName(data) !== 'Float32Array') return undefined;
    const floats = data as Float32Array;
    return { length: floats.length, read: (out) => out.set(floats) };
  }
  const bits = halfBits(data);
  if (bits === undefined) return undefined;
  if (dtype === 'F16') return { length: bits.length, read: (out) => void float16ToFloat32(bits, out) };
  if (dtype === 'BF16' && typedArrayName(data) === 'Uint16Array') {
    return { length: bits.length, read: (out) => void bfloat16ToFloat32(bits, out) };
  }
  return undefined;
}

/** Names to tensors: an object, or a Map. */
export type StateDict = Readonly<Record<string, Tensor | StoredTensor>> | ReadonlyMap<string, Tensor | StoredTensor>;
