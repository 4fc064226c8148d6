// Orders of numbers that peers want, made before anything is timed.

/** [rows, columns] → [columns, rows]. */
export function transposed(data, rows, columns) {
  const result = new Float32Array(data.length);
  for (let i = 0; i < rows; i += 1) for (let j = 0; j < columns; j += 1) result[j * rows + i] = data[i * columns + j];
  return result;
}

/** [A, M, N, D] → [A, N, M, D]: heads before positions or behind them. */
export function swapped(data, outer, middle, inner, width) {
  const result = new Float32Array(data.length);
  for (let a = 0; a < outer; a += 1) {
    for (let m = 0; m < middle; m += 1) {
      for (let n = 0; n < inner; n += 1) {
        const from = ((a * middle + m) * inner + n) * width;
        result.set(data.subarray(from, from + width), ((a * inner + n) * middle + m) * width);
      }
    }
  }
  return result;
}

/** 0 where a query may look and `hidden` behind it, [L, L]. */
export function causalBias(length, hidden = -1e9) {
  const bias = new Float32Array(length * length);
  for (let i = 0; i < length; i += 1) bias.fill(hidden, i * length + i + 1, (i + 1) * length);
  return bias;
}

export const scaled = (data, factor) => data.map((value) => value * factor);

export const sizesOf = ({ batch, length, embedDim, numHeads, cached }) => ({
  B: batch, L: length, S: cached ?? length, E: embedDim, H: numHeads, D: embedDim / numHeads,
});
