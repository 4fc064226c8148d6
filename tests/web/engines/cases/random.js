// Equal inputs for every engine, and one number for all the bits of a result. Nothing here rounds: integers, and
// divisions by powers of two.

/** Numbers and choices, the same for the same seed in every engine (xorshift32). */
export class Random {
  #state;
  constructor(seed) {
    this.#state = (Math.imul(seed + 1, 0x9e3779b1) ^ 0x5bd1e995) | 0 || 1;
    for (let i = 0; i < 8; ++i) this.bits();
  }
  /** 32 bits, as an unsigned number. */
  bits() {
    let x = this.#state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x;
    return x >>> 0;
  }
  /** A whole number from `least` to `most`. */
  between(least, most) {
    return least + ((this.bits() >>> 8) % (most - least + 1));
  }
  /** True in `parts` of 256 cases. */
  chance(parts) {
    return this.bits() >>> 24 < parts;
  }
  of(...choices) {
    return choices[this.between(0, choices.length - 1)];
  }
  /** From -limit to limit, a power of two: exact in float32. */
  number(limit = 1) {
    return ((this.bits() >>> 8) / 8388608 - 1) * limit;
  }
  numbers(count, limit = 1) {
    const numbers = new Float32Array(count);
    for (let i = 0; i < count; ++i) numbers[i] = this.number(limit);
    return numbers;
  }
  tensor(shape, limit = 1) {
    return { data: this.numbers(sizeOf(shape), limit), shape };
  }
  /** 1 in `parts` of 256 places. */
  mask(shape, parts) {
    return { data: Uint8Array.from({ length: sizeOf(shape) }, () => Number(this.chance(parts))), shape };
  }
  /** Something that nobody may look at. */
  poison() {
    return this.of(NaN, Infinity, -Infinity);
  }
}

export const sizeOf = (shape) => shape.reduce((a, b) => a * b, 1);

/** Every array inside a result, in order. */
export function arraysOf(result) {
  if (ArrayBuffer.isView(result)) return [result];
  if (typeof result === 'number') return [Float64Array.of(result)];
  if (typeof result !== 'object' || result === null) return [];
  return (Array.isArray(result) ? result : Object.keys(result).map((key) => result[key])).flatMap(arraysOf);
}

/** Bytes of the elements; every NaN is the same one. */
function bytesOf(array) {
  const isFloat = array instanceof Float32Array || array instanceof Float64Array;
  // A NaN that is written down gets the bits of the constant in some engines and keeps its own in others.
  const bytes = new Uint8Array(array.slice().buffer);
  if (!isFloat) return bytes;
  const size = array.BYTES_PER_ELEMENT;
  array.forEach((x, i) => {
    if (Number.isNaN(x)) bytes.fill(0xff, i * size, (i + 1) * size);
  });
  return bytes;
}

/** { hash, numbers, nans }: 64 bits of FNV-1a kind, two lanes over all bytes and lengths. */
export function hashOf(result) {
  let [a, b, numbers, nans] = [0x811c9dc5 | 0, 0x2f0b4a27 | 0, 0, 0];
  const take = (byte) => {
    a = Math.imul(a ^ byte, 0x01000193);
    b = Math.imul(b ^ byte, 0x0100018d) + 1;
    b ^= b >>> 15;
  };
  for (const array of arraysOf(result)) {
    numbers += array.length;
    if (array instanceof Float32Array) nans += array.reduce((n, x) => n + Number(Number.isNaN(x)), 0);
    for (let n = array.length; n > 0; n >>>= 8) take(n & 0xff);
    bytesOf(array).forEach(take);
  }
  const hex = (x) => (x >>> 0).toString(16).padStart(8, '0');
  return { hash: hex(a) + hex(b), numbers, nans };
}

/** The first place where two arrays have other bits, in words, or undefined. */
export function difference(got, want) {
  if (got.length !== want.length) return `${got.length} numbers instead of ${want.length}`;
  for (let i = 0; i < got.length; ++i) {
    if (!Object.is(got[i], want[i])) return `element ${i} is ${got[i]} instead of ${want[i]}`;
  }
  return undefined;
}
