// The slopes of ALiBi (Press et al. 2021), a penalty that grows with the distance of a key.
import { checkWhole } from './arguments.js';
import { inversePowerOfTwo } from './portable-math.js';

/** 2^(-8/n), 2^(-16/n), … 1/256. n is a power of two. */
const geometric = (n: number): number[] => Array.from({ length: n }, (_, i) => inversePowerOfTwo(8 * (i + 1), n));

/**
 * Slope of each head, as the paper's code has them: a geometric sequence for a power of two; otherwise that of the
 * next lower power, then every other slope of the next higher one.
 */
export function alibiSlopes(numHeads: number): Float32Array {
  const n = checkWhole('alibiSlopes()', 'numHeads', numHeads, { most: 2 ** 20 });
  const power = 1 << (31 - Math.clz32(n));
  const more = geometric(2 * power).filter((_, i) => i % 2 === 0);
  return Float32Array.from([...geometric(power), ...more.slice(0, n - power)]);
}
