// 16-bit floats. WASM computes in float32; stored weights are widened, which is exact.

const word = new Uint32Array(1);
const float = new Float32Array(word.buffer);

/** The number whose IEEE binary16 bits these are. */
export function float16ToNumber(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return (sign * fraction) / 16777216;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  word[0] = ((bits & 0x8000) << 16) | ((exponent + 112) << 23) | (fraction << 13);
  return float[0] as number;
}

let table: Float32Array | undefined;

/** All 65536 values at once: a lookup is several times faster than taking bits apart, and weights are millions. */
function float16Table(): Float32Array {
  if (table === undefined) {
    table = new Float32Array(65536);
    for (let bits = 0; bits < 65536; ++bits) table[bits] = float16ToNumber(bits);
  }
  return table;
}

/** Widens binary16 bits; writes into `out` when it is given. */
export function float16ToFloat32(bits: Uint16Array, out: Float32Array = new Float32Array(bits.length)): Float32Array {
  const values = float16Table();
  for (let i = 0; i < bits.length; ++i) out[i] = values[bits[i] as number] as number;
  return out;
}

/** Widens bfloat16 bits, the upper halves of float32; writes into `out` when it is given. */
export function bfloat16ToFloat32(bits: Uint16Array, out: Float32Array = new Float32Array(bits.length)): Float32Array {
  for (let i = 0; i < bits.length; ++i) {
    word[0] = (bits[i] as number) << 16;
    out[i] = float[0] as number;
  }
  return out;
}
