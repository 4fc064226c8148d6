// A position in a little-endian file. Reading past its end throws.
import type { Tensor } from 'headwise';
import { size } from '../helpers.js';
import { float32 } from './shared-models.js';

export class ByteReader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  u8(): number {
    return this.#view.getUint8(this.#advance(1));
  }
  u16(): number {
    return this.#view.getUint16(this.#advance(2), true);
  }
  u32(): number {
    return this.#view.getUint32(this.#advance(4), true);
  }
  i32(): number {
    return this.#view.getInt32(this.#advance(4), true);
  }
  f32(): number {
    return this.#view.getFloat32(this.#advance(4), true);
  }
  bytes(n: number): Uint8Array {
    const at = this.#advance(n);
    return this.#bytes.subarray(at, at + n);
  }
  tensor(...shape: number[]): Tensor {
    return { data: float32(this.bytes(4 * size(shape))), shape };
  }

  #advance(n: number): number {
    if (n > this.left) throw new RangeError(`the file ends ${n - this.left} bytes too early`);
    const at = this.#at;
    this.#at += n;
    return at;
  }
}
