// From rows that hold all heads side by side, as projections make them, to heads one after the other, and back.
import type { Tensor } from 'headwise';

/** Columns [first, first + heads · width) of x [B, L, columns] as [B, H, L, D]. */
export function headsOf({ data, shape }: Tensor, first: number, heads: number, width: number): Tensor {
  const [batch, length, columns] = shape as [number, number, number];
  const out = new Float32Array(batch * heads * length * width);
  for (let b = 0; b < batch; ++b) {
    for (let h = 0; h < heads; ++h) {
      for (let i = 0; i < length; ++i) {
        const from = (b * length + i) * columns + first + h * width;
        out.set(data.subarray(from, from + width), ((b * heads + h) * length + i) * width);
      }
    }
  }
  return { data: out, shape: [batch, heads, length, width] };
}

/** [B, H, L, D] -> [B, L, H · D] */
export function joinHeads({ data, shape }: Tensor): Tensor {
  const [batch, heads, length, width] = shape as [number, number, number, number];
  const out = new Float32Array(data.length);
  for (let b = 0; b < batch; ++b) {
    for (let h = 0; h < heads; ++h) {
      for (let i = 0; i < length; ++i) {
        const from = ((b * heads + h) * length + i) * width;
        out.set(data.subarray(from, from + width), ((b * length + i) * heads + h) * width);
      }
    }
  }
  return { data: out, shape: [batch, length, heads * width] };
}
