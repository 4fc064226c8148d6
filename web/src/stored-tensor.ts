// Tensors as files hold them: a type name, a shape, and numbers or bits.
import { describe, showShape } from './describe.js';
import { bfloat16ToFloat32, float16ToFloat32 } from './half.js';
import type { Tensor } from './tensor.js';
import { checkedView, trueLength, typedArrayName } from './typed-arrays.js';

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

/** What can be read as float32: reads into `out` of `length` numbers, if it still has them. */
export interface FloatSource {
  readonly shape: readonly number[];
  readonly length: number;
  read(call: string, out: Float32Array): void;
}

/**
 * A Tensor (float32), or a stored tensor of type F32, F16 or BF16. Returns a sentence when it is none of these or its
 * sizes disagree, so that all faults of a state dict can be told at once.
 */
export function floatSource(name: string, value: unknown): FloatSource | string {
  const wanted = 'it must be { data: Float32Array, shape } or a stored tensor of dtype F32, F16 or BF16';
  if (typeof value !== 'object' || value === null) return `${name} is ${describe(value)}; ${wanted}`;
  const { dtype = 'F32', data, shape } = value as { dtype?: unknown; data?: unknown; shape?: unknown };
  const sizes: unknown[] | undefined = Array.isArray(shape) ? Array.from(shape as unknown[]) : undefined;
  if (sizes === undefined || !sizes.every((size) => Number.isSafeInteger(size) && (size as number) >= 0)) {
    return `${name}.shape is ${sizes === undefined ? describe(shape) : showShape(sizes.map(describe))}; ${wanted}`;
  }
  const source = sourceOf(`${name}.data`, dtype, data);
  if (source === undefined) {
    return `${name} has dtype ${describe(dtype)} with data ${describe(data)}; ${wanted}; convert it first`;
  }
  const count = (sizes as number[]).reduce((a, b) => a * b, 1);
  if (source.length !== count) {
    return `${name}.data is ${source.length} long; it must be ${count} long, the product of its shape ${showShape(sizes)}`;
  }
  return { shape: sizes as number[], ...source };
}

function sourceOf(name: string, dtype: unknown, data: unknown): Omit<FloatSource, 'shape'> | undefined {
  const array = typedArrayName(data);
  const view = data as ArrayBufferView;
  const length = array === undefined ? 0 : trueLength(view);
  if (dtype === 'F32' && array === 'Float32Array') {
    return { length, read: (call, out) => out.set(checkedView(call, name, Float32Array, view, length)) };
  }
  // F16 comes as numbers, where the engine has them, or as their bits.
  const widen =
    dtype === 'F16' && (array === 'Uint16Array' || array === 'Float16Array')
      ? float16ToFloat32
      : dtype === 'BF16' && array === 'Uint16Array'
        ? bfloat16ToFloat32
        : undefined;
  if (widen === undefined) return undefined;
  return { length, read: (call, out) => void widen(checkedView(call, name, Uint16Array, view, length), out) };
}

/** Names to tensors: an object, or a Map. */
export type StateDict = Readonly<Record<string, Tensor | StoredTensor>> | ReadonlyMap<string, Tensor | StoredTensor>;
