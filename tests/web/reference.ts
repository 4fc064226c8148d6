// Attention in float64, as plain loops that read like the formulas. It shares nothing with the package but names.
import type { Tensor } from 'headwise';

export interface ReferenceOptions {
  scale?: number;
  /** Whether query (b, h, i) may see key j; masks, lengths and causality all go here. */
  sees?: (b: number, h: number, i: number, j: number) => boolean;
  bias?: (b: number, h: number, i: number, j: number) => number;
  softcap?: number;
  /** A score of each head that joins its softmaxes. */
  sinks?: ArrayLike<number>;
  /** Factor of each head's output. */
  headMask?: ArrayLike<number>;
  emptyRows?: 'zero' | 'nan';
}

/** [batch][head][row][column] */
export type Heads = number[][][][];

export interface ReferenceResult {
  output: Heads;
  weights: Heads;
  /** [batch][head][row] */
  lse: number[][][];
}

const make = <T>(n: number, f: (i: number) => T): T[] => Array.from({ length: n }, (_, i) => f(i));

/** softmax(scale * q k^T + bias) v for each head; query head h reads key/value head floor(h / (H / Hkv)). */
export function attention(q: Heads, k: Heads, v: Heads, options: ReferenceOptions = {}): ReferenceResult {
  const { sees = () => true, bias = () => 0, emptyRows = 'zero', softcap = 0 } = options;
  const cap = (score: number): number => (softcap === 0 ? score : softcap * Math.tanh(score / softcap));
  const gate = (h: number): number => options.headMask?.[h] ?? 1;
  const heads = q[0]?.length ?? 0;
  const group = heads / (k[0]?.length ?? 1);
  const empty = emptyRows === 'nan' ? NaN : 0;
  const result: ReferenceResult = { output: [], weights: [], lse: [] };
  q.forEach((batchEntry, b) => {
    const output: number[][][] = [];
    const weights: number[][][] = [];
    const lse: number[][] = [];
    batchEntry.forEach((rows, h) => {
      const keys = k[b]![Math.floor(h / group)]!;
      const values = v[b]![Math.floor(h / group)]!;
      const width = values[0]?.length ?? v.flat(3).length;
      const scale = options.scale ?? 1 / Math.sqrt(rows[0]?.length ?? 1);
      const perRow = rows.map((row, i) => {
        const visible = keys.map((_, j) => sees(b, h, i, j));
        const dot = (key: number[]): number => row.reduce((sum, x, d) => sum + x * key[d]!, 0);
        const scores = keys.map((key, j) => cap(scale * dot(key)) + bias(b, h, i, j));
        const sink = options.sinks?.[h] ?? -Infinity;
        const most = Math.max(sink, ...scores.filter((_, j) => visible[j]));
        const exps = scores.map((score, j) => (visible[j] && score !== -Infinity ? Math.exp(score - most) : 0));
        const sum = exps.reduce((a, x) => a + x, sink === -Infinity ? 0 : Math.exp(sink - most));
        const p = sum === 0 ? exps.map(() => empty) : exps.map((x) => x / sum);
        const out = make(width, (c) =>
          sum === 0 ? empty : gate(h) * values.reduce((a, value, j) => a + (p[j] === 0 ? 0 : p[j]! * value[c]!), 0),
        );
        return { p, out, lse: sum === 0 ? -Infinity : most + Math.log(sum) };
      });
      output.push(perRow.map((row) => row.out));
      weights.push(perRow.map((row) => row.p));
      lse.push(perRow.map((row) => row.lse));
    });
    result.output.push(output);
    result.weights.push(weights);
    result.lse.push(lse);
  });
  return result;
}

/** x [B, L, in] times weight [out, in], plus bias, as heads [B][H][L][out / H]. */
export function project(x: Tensor, weight: Tensor, bias: Tensor | undefined, heads: number): Heads {
  const [batch, length, inputs] = x.shape as [number, number, number];
  const outputs = weight.shape[0]!;
  const width = outputs / heads;
  return make(batch, (b) =>
    make(heads, (h) =>
      make(length, (i) =>
        make(width, (d) => {
          const o = h * width + d;
          let sum = bias ? bias.data[o]! : 0;
          for (let c = 0; c < inputs; ++c) sum += x.data[(b * length + i) * inputs + c]! * weight.data[o * inputs + c]!;
          return sum;
        }),
      ),
    ),
  );
}

/** Concatenates the heads of each row and applies the output projection: flat [B, L, out]. */
export function combine(heads: Heads, weight: Tensor, bias: Tensor | undefined): number[] {
  const [outputs, inputs] = weight.shape as [number, number];
  return heads.flatMap((entry) =>
    make(entry[0]?.length ?? 0, (i) => {
      const row = entry.flatMap((head) => head[i]!);
      return make(outputs, (o) => {
        let sum = bias ? bias.data[o]! : 0;
        for (let c = 0; c < inputs; ++c) sum += row[c]! * weight.data[o * inputs + c]!;
        return sum;
      });
    }).flat(),
  );
}

/** The mean of [B][H][L][S] over the heads: flat [B, L, S]. */
export function meanOverHeads(weights: Heads): number[] {
  return weights.flatMap((entry) =>
    make(entry[0]?.length ?? 0, (i) =>
      make(entry[0]![i]!.length, (j) => entry.reduce((sum, head) => sum + head[i]![j]!, 0) / entry.length),
    ).flat(),
  );
}

/** A tensor [B, H, L, D] as nested arrays. */
export function headsOf(x: Tensor): Heads {
  const [batch, heads, length, width] = x.shape as [number, number, number, number];
  return make(batch, (b) =>
    make(heads, (h) => make(length, (i) => make(width, (d) => x.data[((b * heads + h) * length + i) * width + d]!))),
  );
}

/** x [B][H][L][D] turned in pairs: (i, i + half), or (2i, 2i + 1) when interleaved. */
export function rotate(
  x: Heads,
  { base = 10000, interleaved = false, dim }: { base?: number; interleaved?: boolean; dim?: number },
  position: (b: number, i: number) => number,
): Heads {
  return x.map((entry, b) =>
    entry.map((head) =>
      head.map((row, i) => {
        const width = dim ?? row.length;
        const out = [...row];
        for (let pair = 0; pair < width / 2; ++pair) {
          const [one, two] = interleaved ? [2 * pair, 2 * pair + 1] : [pair, pair + width / 2];
          const angle = position(b, i) * base ** ((-2 * pair) / width);
          out[one] = row[one]! * Math.cos(angle) - row[two]! * Math.sin(angle);
          out[two] = row[one]! * Math.sin(angle) + row[two]! * Math.cos(angle);
        }
        return out;
      }),
    ),
  );
}
