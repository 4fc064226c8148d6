import { expect } from 'vitest';

/** |got - want| is at most `tolerance`; infinities are equal, and nothing is NaN. */
export function expectWithin(got: ArrayLike<number>, want: ArrayLike<number>, tolerance: number, name = ''): void {
  expect(got.length, name).toBe(want.length);
  expect(want.length, name).toBeGreaterThan(0);
  let [worst, at] = [0, 0];
  for (let i = 0; i < want.length; ++i) {
    const difference = got[i] === want[i] ? 0 : Math.abs(got[i]! - want[i]!);
    if (!(difference <= worst)) [worst, at] = [Number.isNaN(difference) ? Infinity : difference, i];
  }
  expect(worst, `${name} element ${at}: got ${got[at]}, want ${want[at]}`).toBeLessThanOrEqual(tolerance);
}
