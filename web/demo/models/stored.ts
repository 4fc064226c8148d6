// Numbers of stored tensors, for the parts of a model that are not layers of the package (embeddings, LayerNorm).
import { float16ToFloat32, type StoredTensor } from 'headwise/safetensors';

/** The values of `tensors[name]`, which must be F32 or F16 and of this shape. */
export function readNumbers(
  tensors: Readonly<Record<string, StoredTensor>>,
  name: string,
  shape: readonly number[],
): Float32Array {
  const tensor = tensors[name];
  const wanted = `[${shape.join(', ')}] of F32 or F16`;
  const wayOut = 'use the weight file that belongs to config.json';
  if (!tensor) throw new Error(`the weight file: ${name} is absent; it must be ${wanted}; ${wayOut}`);
  if (tensor.shape.length === shape.length && tensor.shape.every((size, i) => size === shape[i])) {
    if (tensor.dtype === 'F32') return tensor.data;
    if (tensor.dtype === 'F16') return float16ToFloat32(tensor.data);
  }
  const got = `[${tensor.shape.join(', ')}] of ${tensor.dtype}`;
  throw new Error(`the weight file: ${name} is ${got}; it must be ${wanted}; ${wayOut}`);
}
