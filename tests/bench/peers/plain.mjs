// Plain loops over Float32Array, as one writes them who wants no package: rows against rows, four sums at a time.
import { sizesOf } from './layouts.mjs';

/** y[i, o] = x[i] · weight[o] + bias[o] for all rows. */
export function dense(x, weight, bias, rows, width, y) {
  const outputs = bias.length;
  for (let i = 0; i < rows; i += 1) {
    const row = i * width;
    for (let o = 0; o < outputs; o += 4) {
      // One by one: destructuring is slow in the first, unoptimised calls.
      let s0 = bias[o];
      let s1 = bias[o + 1];
      let s2 = bias[o + 2];
      let s3 = bias[o + 3];
      const w0 = o * width;
      const w1 = w0 + width;
      const w2 = w1 + width;
      const w3 = w2 + width;
      for (let c = 0; c < width; c += 1) {
        const value = x[row + c];
        s0 += value * weight[w0 + c];
        s1 += value * weight[w1 + c];
        s2 += value * weight[w2 + c];
        s3 += value * weight[w3 + c];
      }
      y[i * outputs + o] = s0;
      y[i * outputs + o + 1] = s1;
      y[i * outputs + o + 2] = s2;
      y[i * outputs + o + 3] = s3;
    }
  }
}

/** One query against `count` keys; addresses and strides in numbers. */
function attendRow(query, q, keys, k, values, v, stride, count, width, scores, y, to) {
  const scale = 1 / Math.sqrt(width);
  let max = -Infinity;
  for (let j = 0; j < count; j += 1) {
    let sum = 0;
    const at = k + j * stride;
    for (let d = 0; d < width; d += 1) sum += query[q + d] * keys[at + d];
    scores[j] = sum * scale;
    if (scores[j] > max) max = scores[j];
  }
  let total = 0;
  for (let j = 0; j < count; j += 1) total += scores[j] = Math.exp(scores[j] - max);
  for (let d = 0; d < width; d += 1) y[to + d] = 0;
  for (let j = 0; j < count; j += 1) {
    const p = scores[j] / total;
    const at = v + j * stride;
    for (let d = 0; d < width; d += 1) y[to + d] += p * values[at + d];
  }
}

function attention(w, { query, key, value }) {
  const { B, L, H, D } = sizesOf(w);
  const scores = new Float32Array(L);
  return () => {
    const y = new Float32Array(query.length);
    for (let head = 0; head < B * H * L * D; head += L * D) {
      for (let i = 0; i < L * D; i += D) {
        attendRow(query, head + i, key, head, value, head, D, L, D, scores, y, head + i);
      }
    }
    return y;
  };
}

function layer(w, { x, weights, biases }) {
  const { B, L, E, H, D } = sizesOf(w);
  const [query, key, value, heads] = [0, 1, 2, 3].map(() => new Float32Array(B * L * E));
  const scores = new Float32Array(L);
  return () => {
    dense(x, weights.query, biases.query, B * L, E, query);
    dense(x, weights.key, biases.key, B * L, E, key);
    dense(x, weights.value, biases.value, B * L, E, value);
    for (let b = 0; b < B; b += 1) {
      for (let h = 0; h < H; h += 1) {
        const base = b * L * E + h * D;
        for (let i = 0; i < L; i += 1) {
          const at = base + i * E;
          attendRow(query, at, key, base, value, base, E, w.causal ? i + 1 : L, D, scores, heads, at);
        }
      }
    }
    const y = new Float32Array(B * L * E);
    dense(heads, weights.out, biases.out, B * L, E, y);
    return y;
  };
}

function decode(w, { x, weights, biases, pastKey, pastValue }) {
  const { S, E, H, D } = sizesOf(w);
  const [query, own, heads, scores] = [E, E, E, S].map((size) => new Float32Array(size));
  const caches = [['key', pastKey], ['value', pastValue]].map(([name, past]) => {
    const cache = new Float32Array(H * S * D);
    for (let h = 0; h < H; h += 1) cache.set(past.subarray(h * (S - 1) * D, (h + 1) * (S - 1) * D), h * S * D);
    return { name, cache };
  });
  return () => {
    dense(x, weights.query, biases.query, 1, E, query);
    for (const { name, cache } of caches) {
      dense(x, weights[name], biases[name], 1, E, own);
      for (let h = 0; h < H; h += 1) cache.set(own.subarray(h * D, (h + 1) * D), (h * S + S - 1) * D);
    }
    const [{ cache: keys }, { cache: values }] = caches;
    for (let h = 0; h < H; h += 1) {
      attendRow(query, h * D, keys, h * S * D, values, h * S * D, D, S, D, scores, heads, h * D);
    }
    const y = new Float32Array(E);
    dense(heads, weights.out, biases.out, 1, E, y);
    return y;
  };
}

const KINDS = { attention, layer, decode };

export const load = async () => ({
  variants: () => ['loops'],
  open: async (w, inputs) => ({ run: KINDS[w.kind](w, inputs), close() {} }),
});
