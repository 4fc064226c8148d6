// Numbers of stored tensors, for the parts of a model that are not layers of the package (embeddings, LayerNorm).
import type { StoredTensors } from './bert.js';

function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The values of a tensor of type F32 or F16. */
export function toFloat32(tensor: StoredTensors[string]): Float32Array {
  if (tensor.dtype === 'F32') return tensor.data;
  if (tensor.dtype === 'F16') return Float32Array.from(tensor.data, half);
  throw new TypeError(`a tensor of the weight file is of type ${tensor.dtype}; it must be F32 or F16`);
}
