// What the tests share: tensors of reproducible numbers, comparison against float64, and the check of an error.
import { type MaskTensor, type Tensor, type Variant, detectFeatures } from 'headwise';
import { expect } from 'vitest';

/** Numbers from -1 to 1 and choices, the same for the same seed (xorshift32). */
export class Random {
  #state: number;
  constructor(seed: number) {
    this.#state = (seed * 2654435761) >>> 0 || 1;
    for (let i = 0; i < 8; ++i) this.next();
  }
  next(): number {
    let x = this.#state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x >>> 0;
    return this.#state / 2 ** 32;
  }
  below(n: number): number {
    return Math.floor(this.next() * n);
  }
  tensor(...shape: number[]): Tensor {
    return { data: Float32Array.from({ length: size(shape) }, () => 2 * this.next() - 1), shape };
  }
  mask(probability: number, ...shape: number[]): MaskTensor {
    return { data: Uint8Array.from({ length: size(shape) }, () => Number(this.next() < probability)), shape };
  }
}

/** The builds this engine runs; vitest.config.mjs switches relaxed SIMD on where Node has it behind a flag. */
export const VARIANTS: Variant[] = detectFeatures().relaxedSimd ? ['simd', 'relaxed'] : ['simd'];

export const size = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
export const zeros = (...shape: number[]): Tensor => ({ data: new Float32Array(size(shape)), shape });

/**
 * Every element of `got` is `want` within `tolerance`, NaN and infinities exactly. The default covers float32 sums of
 * a few hundred terms around 1, and is far below what a wrong mask or head would cause.
 */
export function expectClose(got: ArrayLike<number>, want: ArrayLike<number>, tolerance = 1e-5): void {
  expect(got.length).toBe(want.length);
  let worst = 0;
  let at = -1;
  for (let i = 0; i < want.length; ++i) {
    const [g, w] = [got[i]!, want[i]!];
    const error = Object.is(g, w) || g === w ? 0 : Math.abs(g - w) / (1 + Math.abs(w));
    if (!(error <= worst)) [worst, at] = [Number.isNaN(error) ? Infinity : error, i];
  }
  expect(worst, `element ${at}: got ${got[at]}, want ${want[at]}`).toBeLessThanOrEqual(tolerance);
}

/** Bits, not values: 0 and -0 differ, NaN equals NaN. */
export function expectSameBits(got: Float32Array, want: Float32Array): void {
  expect(got.length).toBe(want.length);
  const differ = got.findIndex((value, i) => !Object.is(value, want[i]));
  expect(differ, `first difference: ${got[differ]} is not ${want[differ]}`).toBe(-1);
}

export interface ExpectedError {
  readonly type: new (...args: never[]) => Error;
  readonly code: string;
  /** The message names the call, the argument, what it got, what it wanted; a way out follows. */
  readonly call: string;
  readonly argument: string;
  readonly got: string;
  readonly wanted: string | RegExp;
}

export function checkError(error: unknown, expected: ExpectedError): void {
  expect(error).toBeInstanceOf(expected.type);
  const { code, message } = error as Error & { code: string };
  expect(code).toBe(expected.code);
  expect(message.startsWith(expected.call), message).toBe(true);
  expect(message).toContain(expected.argument);
  expect(message).toContain(expected.got);
  if (typeof expected.wanted === 'string') expect(message).toContain(expected.wanted);
  else expect(message).toMatch(expected.wanted);
  // The way out is what stands after the last semicolon.
  expect(message.split('; ').length, message).toBeGreaterThanOrEqual(3);
}

export function expectError(f: () => unknown, expected: ExpectedError): void {
  let error: unknown = 'nothing was thrown';
  try {
    f();
  } catch (thrown) {
    error = thrown;
  }
  checkError(error, expected);
}

export async function expectRejection(promise: Promise<unknown>, expected: ExpectedError): Promise<void> {
  const error: unknown = await promise.then(
    () => 'nothing was thrown',
    (thrown: unknown) => thrown,
  );
  checkError(error, expected);
}
