// The small steps of a transformer that are not attention or a projection, in plain TypeScript. Sums run in float64
// (JavaScript's numbers); results are stored as float32.

/** Each row of `x` (rows of `weight.length`), in place: to mean 0 and variance 1, then times weight plus bias. */
export function layerNorm(x: Float32Array, weight: Float32Array, bias: Float32Array, epsilon: number): void {
  const width = weight.length;
  for (let row = 0; row < x.length; row += width) {
    let sum = 0;
    for (let i = 0; i < width; ++i) sum += x[row + i]!;
    const mean = sum / width;
    let squares = 0;
    for (let i = 0; i < width; ++i) squares += (x[row + i]! - mean) ** 2;
    const scale = 1 / Math.sqrt(squares / width + epsilon);
    for (let i = 0; i < width; ++i) x[row + i] = (x[row + i]! - mean) * scale * weight[i]! + bias[i]!;
  }
}

/** x += y. */
export function add(x: Float32Array, y: Float32Array): void {
  for (let i = 0; i < x.length; ++i) x[i] = x[i]! + y[i]!;
}

/** The error function by formula 7.1.26 of Abramowitz and Stegun: at most 1.5e-7 off, far below what a map shows. */
export function erf(x: number): number {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const y = 1 - series * Math.exp(-x * x);
  return x < 0 ? -y : y;
}

/** x · Φ(x) with the error function (not the tanh approximation), in place. */
export function gelu(x: Float32Array): void {
  for (let i = 0; i < x.length; ++i) x[i] = 0.5 * x[i]! * (1 + erf(x[i]! * Math.SQRT1_2));
}

export interface Candidate {
  readonly id: number;
  readonly probability: number;
}

/** The `count` likeliest entries of softmax(logits), likeliest first. */
export function topOfSoftmax(logits: Float32Array, count: number): Candidate[] {
  let largest = -Infinity;
  for (const logit of logits) if (logit > largest) largest = logit;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - largest);
  return Array.from(logits, (logit, id) => ({ id, logit }))
    .sort((a, b) => b.logit - a.logit)
    .slice(0, count)
    .map(({ id, logit }) => ({ id, probability: Math.exp(logit - largest) / sum }));
}
