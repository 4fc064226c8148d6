// Rows of the right result in float64, for what is verified before it is timed. A row of a long sequence costs little
// without projecting all keys and values: q · (W x + b) = (Wᵀ q) · x + q · b, and a weighted sum of projected rows is
// the projection of the weighted sum.
import { keyLength } from './workloads.mjs';

function softmaxInPlace(scores) {
  let max = -Infinity;
  for (const score of scores) max = Math.max(max, score);
  let sum = 0;
  for (let j = 0; j < scores.length; j += 1) sum += scores[j] = Math.exp(scores[j] - max);
  for (let j = 0; j < scores.length; j += 1) scores[j] /= sum;
  return scores;
}

/** W x + b of rows `from` to `to` of W [E, E]. */
function project(weight, bias, x, from = 0, to = bias.length) {
  const width = x.length;
  return Float64Array.from({ length: to - from }, (_, i) => {
    let sum = bias[from + i];
    for (let c = 0; c < width; c += 1) sum += weight[(from + i) * width + c] * x[c];
    return sum;
  });
}

function dot(a, b, at = 0) {
  let sum = 0;
  for (let c = 0; c < a.length; c += 1) sum += a[c] * b[at + c];
  return sum;
}

function addScaled(sum, factor, b, at) {
  for (let c = 0; c < sum.length; c += 1) sum[c] += factor * b[at + c];
}

function attentionRow(w, inputs, row) {
  const { numHeads, embedDim, length } = w;
  const width = embedDim / numHeads;
  const [b, i] = [Math.floor(row / length), row % length];
  const result = new Float64Array(embedDim);
  for (let h = 0; h < numHeads; h += 1) {
    const start = (b * numHeads + h) * length * width;
    const query = inputs.query.subarray(start + i * width, start + (i + 1) * width);
    const scores = Float64Array.from({ length }, (_, j) => dot(query, inputs.key, start + j * width) / Math.sqrt(width));
    const sum = result.subarray(h * width, (h + 1) * width);
    softmaxInPlace(scores).forEach((p, j) => addScaled(sum, p, inputs.value, start + j * width));
  }
  return result;
}

function layerRow(w, inputs, row) {
  const { numHeads, embedDim, length } = w;
  const { x, weights, biases, pastKey, pastValue } = inputs;
  const width = embedDim / numHeads;
  const [b, i] = [Math.floor(row / length), row % length];
  const past = w.cached === undefined ? 0 : w.cached - 1;
  const seen = w.causal ? past + i + 1 : keyLength(w);
  const sequence = b * length * embedDim;
  const heads = new Float64Array(embedDim);
  for (let h = 0; h < numHeads; h += 1) {
    const [from, to] = [h * width, (h + 1) * width];
    const token = x.subarray(sequence + i * embedDim, sequence + (i + 1) * embedDim);
    const query = project(weights.query, biases.query, token, from, to);
    const turned = new Float64Array(embedDim); // Wᵀ q of this head
    for (let d = 0; d < width; d += 1) addScaled(turned, query[d], weights.key, (from + d) * embedDim);
    const constant = dot(query, biases.key, from);
    const headStart = h * past * width;
    const scores = Float64Array.from({ length: seen }, (_, j) => (j < past
      ? dot(query, pastKey, headStart + j * width)
      : dot(turned, x, sequence + (j - past) * embedDim) + constant) / Math.sqrt(width));
    softmaxInPlace(scores);
    const mean = new Float64Array(embedDim);
    const pastSum = heads.subarray(from, to);
    let share = 0;
    scores.forEach((p, j) => {
      if (j < past) {
        addScaled(pastSum, p, pastValue, headStart + j * width);
      } else {
        share += p;
        addScaled(mean, p, x, sequence + (j - past) * embedDim);
      }
    });
    const own = project(weights.value, biases.value, mean, from, to);
    for (let d = 0; d < width; d += 1) pastSum[d] += own[d] + (share - 1) * biases.value[from + d];
  }
  return project(weights.out, biases.out, heads);
}

/** At most `count` rows of the output, the first and the last among them, by their index in B · L. */
export function sampleRows({ batch, length }, count = 8) {
  const last = batch * length - 1;
  // An odd step meets every position in a tile.
  const between = Array.from({ length: count }, (_, i) => Math.round((i * last) / Math.max(1, count - 1)));
  return [...new Set(between.map((row, i) => Math.min(last, i % 2 && row < last ? row + (i % 4) : row)))];
}

export function referenceRows(w, inputs, rows = sampleRows(w)) {
  return new Map(rows.map((row) => [row, w.kind === 'attention' ? attentionRow(w, inputs, row)
    : layerRow(w, inputs, row)]));
}

/** Relative L2 distance of `output` from the reference's rows. NaN when there is one; Infinity for a wrong size. */
export function relativeError(w, output, reference) {
  const { batch, length, embedDim, numHeads } = w;
  if (output.length !== batch * length * embedDim) return Infinity;
  const width = embedDim / numHeads;
  let [difference, norm] = [0, 0];
  for (const [row, values] of reference) {
    values.forEach((value, e) => {
      const [b, i, h] = [Math.floor(row / length), row % length, Math.floor(e / width)];
      const at = w.kind === 'attention' ? ((b * numHeads + h) * length + i) * width + (e % width) : row * embedDim + e;
      difference += (output[at] - value) ** 2;
      norm += value ** 2;
    });
  }
  return Math.sqrt(difference / norm);
}
