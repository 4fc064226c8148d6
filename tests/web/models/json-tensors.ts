// A JSON object of tensors, each { shape, dtype, data } with its numbers as base64 of little-endian float32.
import type { Tensor } from 'headwise';
import { size } from '../helpers.js';
import { float32, utf8 } from './shared-models.js';

/** Every tensor by name. `config`, which describes the whole, is left out. */
export function readJsonTensors(bytes: Uint8Array): Map<string, Tensor> {
  const entries = JSON.parse(utf8(bytes)) as Record<string, { shape: number[]; dtype: string; data: string }>;
  const tensors = new Map<string, Tensor>();
  for (const [name, { shape, dtype, data }] of Object.entries(entries)) {
    if (name === 'config') continue;
    const tensor = { data: float32(Buffer.from(data, 'base64')), shape };
    if (dtype !== 'torch.float32' || tensor.data.length !== size(shape)) {
      throw new TypeError(`${name} is ${tensor.data.length} numbers of ${dtype} for [${shape.join(', ')}]`);
    }
    tensors.set(name, tensor);
  }
  return tensors;
}
