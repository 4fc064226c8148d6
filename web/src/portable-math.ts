// Functions whose bits do not depend on the engine. Math.log, Math.pow and the ** operator may differ between engines;
// sums, products, quotients and square roots may not.

const bits = new DataView(new ArrayBuffer(8));
/** ln 2 as a float32, whose product with an exponent is exact, and the rest. */
const LN2_HIGH = Math.fround(Math.LN2);
const LN2_LOW = -1.904654299957768e-9;
/** ln x of a positive, finite, normal number, to a few units in the last place. */
export function naturalLog(x: number): number {
  // x = m 2^exponent, m from 1/√2 to √2.
  bits.setFloat64(0, x);
  const high = bits.getUint32(0);
  let exponent = (high >>> 20) - 1023;
  bits.setUint32(0, (high & 0xfffff) | 0x3ff00000);
  let m = bits.getFloat64(0);
  if (m > Math.SQRT2) {
    m /= 2;
    exponent += 1;
  }
  // ln m = 2 artanh(s) = 2 (s + s³/3 + s⁵/5 + …), |s| up to 0.172: behind s²¹/21 all is below a rounding error.
  const s = (m - 1) / (m + 1);
  const z = s * s;
  const tail = 1 / 13 + z * (1 / 15 + z * (1 / 17 + z * (1 / 19 + z * (1 / 21))));
  const sum = 1 + z * (1 / 3 + z * (1 / 5 + z * (1 / 7 + z * (1 / 9 + z * (1 / 11 + z * tail)))));
  return exponent * LN2_HIGH + (2 * s * sum + exponent * LN2_LOW);
}

/** 2^-(n / steps) for a power of two of steps: a square root for each binary digit behind the point. */
export function inversePowerOfTwo(n: number, steps: number): number {
  const whole = Math.floor(n / steps);
  let result = 1;
  for (let i = 0; i < whole; ++i) result /= 2;
  let rest = n - whole * steps;
  let root = 0.5;
  for (let digit = steps / 2; rest > 0; digit /= 2) {
    root = Math.sqrt(root);
    if (rest < digit) continue;
    rest -= digit;
    result *= root;
  }
  return result;
}
