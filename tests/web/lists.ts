// Small inputs as the list of known failures writes them: one head of width 1, plain lists of numbers.
import { type AttentionOptions, type MaskTensor, type Runtime, type Tensor, scaledDotProductAttention } from 'headwise';
import { expect } from 'vitest';

export const column = (...data: number[]): Tensor => ({ data: Float32Array.from(data), shape: [data.length, 1] });
export const floats = (shape: readonly number[], ...data: number[]): Tensor => ({
  data: Float32Array.from(data),
  shape,
});
export const mask = (shape: readonly number[], ...data: number[]): MaskTensor => ({
  data: Uint8Array.from(data),
  shape,
});
export const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

/** Attention of one head with scale 1; the outputs alone. */
export const attendIn =
  (runtime: () => Runtime) =>
  (q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions = {}): number[] =>
    Array.from(scaledDotProductAttention(q, k, v, { scale: 1, runtime: runtime(), ...options }).output.data);

/** Each within 1e-6 of its size; 0 and infinities exactly. */
export function expectNear(got: ArrayLike<number>, want: readonly number[]): void {
  expect(got.length).toBe(want.length);
  want.forEach((w, i) => {
    if (w === 0 || !Number.isFinite(w)) expect(got[i], `element ${i}`).toBe(w);
    else expect(Math.abs(got[i]! / w - 1), `element ${i}: got ${got[i]}, want ${w}`).toBeLessThanOrEqual(1e-6);
  });
}
