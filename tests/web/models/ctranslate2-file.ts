// A model file of CTranslate2, version 2: named variables one after the other.
import type { Tensor } from 'headwise';
import { size } from '../helpers.js';
import { ByteReader } from './byte-reader.js';
import { float32, utf8 } from './shared-models.js';

/** Every variable as float32. int8 weights come with the scale of each row, `…_scale`, by which they are divided. */
export function readCTranslate2File(bytes: Uint8Array): Map<string, Tensor> {
  const reader = new ByteReader(bytes);
  const string = (): string => utf8(reader.bytes(reader.u16())).replace(/\0$/, '');
  const version = reader.u32();
  if (version !== 2) throw new RangeError(`version ${version}; only 2 is read`);
  string(); // The name of the kind of model.
  reader.u32(); // The revision of that kind.
  const stored = new Map<string, Tensor | { readonly int8: Int8Array; readonly shape: number[] }>();
  for (let left = reader.u32(); left > 0; --left) {
    const name = string();
    const shape = Array.from({ length: reader.u8() }, () => reader.u32());
    const itemSize = reader.u8();
    const count = reader.u32();
    const data = reader.bytes(itemSize * count);
    if (count !== size(shape)) throw new RangeError(`${name} has ${count} numbers for [${shape.join(', ')}]`);
    if (itemSize === 4) stored.set(name, { data: float32(data), shape });
    else if (itemSize === 1) stored.set(name, { int8: new Int8Array(data.buffer, data.byteOffset, count), shape });
    else throw new RangeError(`${name} has items of ${itemSize} bytes`);
  }
  if (reader.left !== 0) throw new RangeError(`${reader.left} bytes follow the last variable`);
  const tensors = new Map<string, Tensor>();
  for (const [name, variable] of stored) {
    if ('data' in variable) {
      tensors.set(name, variable);
      continue;
    }
    const scale = stored.get(`${name}_scale`);
    if (scale === undefined || !('data' in scale)) throw new RangeError(`${name} has no scale`);
    const { int8, shape } = variable;
    const width = shape.at(-1)!;
    const data = Float32Array.from(int8, (value, i) => value / scale.data[Math.floor(i / width)]!);
    tensors.set(name, { data, shape });
  }
  return tensors;
}
