// What a transformer does beside attention and matrix products, as plain loops. Sums run in float64, results are
// float32; each row is computed on its own, so that the bits of a row depend on nothing but the row.
import type { Tensor } from 'headwise';

export interface Norm {
  readonly scale: Tensor;
  readonly shift: Tensor;
  readonly epsilon: number;
}

/** Rows of the table, one for each id: [...ids] -> [ids.length, width]. */
export function lookUp({ data, shape }: Tensor, ids: readonly number[]): Tensor {
  const [count, width] = shape as [number, number];
  const out = new Float32Array(ids.length * width);
  ids.forEach((id, i) => {
    if (!(id >= 0 && id < count)) throw new RangeError(`id ${id} of a table with ${count} rows`);
    out.set(data.subarray(id * width, (id + 1) * width), i * width);
  });
  return { data: out, shape: [ids.length, width] };
}

function mapRows({ data, shape }: Tensor, f: (row: Float32Array) => (x: number, i: number) => number): Tensor {
  const width = shape.at(-1)!;
  const out = new Float32Array(data.length);
  for (let at = 0; at < data.length; at += width) {
    const row = data.subarray(at, at + width);
    out.set(row.map(f(row)), at);
  }
  return { data: out, shape };
}

const sum = (row: Float32Array, f: (x: number) => number): number => row.reduce((total, x) => total + f(x), 0);

export function layerNorm(x: Tensor, { scale, shift, epsilon }: Norm): Tensor {
  return mapRows(x, (row) => {
    const mean = sum(row, (value) => value) / row.length;
    const deviation = Math.sqrt(sum(row, (value) => (value - mean) ** 2) / row.length + epsilon);
    return (value, i) => ((value - mean) / deviation) * scale.data[i]! + shift.data[i]!;
  });
}

export function rmsNorm(x: Tensor, scale: Tensor, epsilon: number): Tensor {
  return mapRows(x, (row) => {
    const root = Math.sqrt(sum(row, (value) => value * value) / row.length + epsilon);
    return (value, i) => (value / root) * scale.data[i]!;
  });
}

export function softmax(x: Tensor): Tensor {
  return mapRows(x, (row) => {
    const largest = Math.max(...row);
    const total = sum(row, (value) => Math.exp(value - largest));
    return (value) => Math.exp(value - largest) / total;
  });
}

const map = ({ data, shape }: Tensor, f: (x: number, i: number) => number): Tensor => ({ data: data.map(f), shape });

export const add = (x: Tensor, y: Tensor): Tensor => map(x, (value, i) => value + y.data[i]!);
export const multiply = (x: Tensor, y: Tensor): Tensor => map(x, (value, i) => value * y.data[i]!);
export const relu = (x: Tensor): Tensor => map(x, (value) => Math.max(0, value));
export const silu = (x: Tensor): Tensor => map(x, (value) => value / (1 + Math.exp(-value)));
/** The approximation with tanh, as GPT-2 has it. */
export const geluTanh = (x: Tensor): Tensor =>
  map(x, (value) => 0.5 * value * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (value + 0.044715 * value ** 3))));

/** Rows [begin, end) of the first axis. */
export function slice({ data, shape }: Tensor, begin: number, end: number): Tensor {
  const row = data.length / shape[0]!;
  return { data: data.slice(begin * row, end * row), shape: [end - begin, ...shape.slice(1)] };
}

/** The last axis of row `row`, counted over all leading axes. */
export const rowOf = ({ data, shape }: Tensor, row: number): Float32Array =>
  data.subarray(row * shape.at(-1)!, (row + 1) * shape.at(-1)!);

/** The first of the largest. */
export const largestAt = (row: Float32Array): number => row.indexOf(Math.max(...row));
