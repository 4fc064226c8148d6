// T-12 for whole layers, projections, norms and positions included.
import { among, entry, pad, slice } from './blocks.js';
import { difference } from './random.js';

/** Options of a layer, all drawn. */
export function drawLayer(random) {
  const numKvHeads = random.between(1, 3);
  const numHeads = numKvHeads * random.between(1, 3);
  const headDim = 2 * random.between(1, 12);
  const options = { embedDim: random.between(3, 40), numHeads, numKvHeads, headDim, seed: random.between(0, 1000) };
  if (random.chance(90)) options.vHeadDim = random.between(1, 20);
  if (random.chance(60)) options.outDim = random.between(1, 40);
  if (random.chance(60)) options.bias = false;
  if (random.chance(110)) {
    options.rope = random.of(
      true,
      { interleaved: true },
      { dim: 2, base: 100 },
      { scaling: { type: 'ntk', factor: 2 } },
    );
  }
  if (random.chance(80)) options.qkNorm = true;
  if (random.chance(50)) options.softcap = random.between(1, 20);
  if (random.chance(40)) options.alibi = true;
  if (random.chance(40)) options.sinks = random.numbers(numHeads, 2);
  return options;
}

/** A layer and a sequence [1, L, E] for it. */
function draw({ MultiHeadAttention, runtime, random }) {
  const options = drawLayer(random);
  if (random.chance(40)) options.window = [random.between(0, 140), random.between(-1, 5)];
  const L = random.of(random.between(1, 30), random.between(120, 140));
  const mha = new MultiHeadAttention({ ...options, runtime });
  const causal = random.of(true, true, false);
  const x = random.tensor([1, L, options.embedDim], random.of(1, 4));
  const more = { causal, returnLse: true, needWeights: random.of(false, 'averaged', 'perHead') };
  return { mha, options, x, L, more };
}

/** Rows [first, first + L) of entry b of every result. */
function compare(got, want, b, first, L) {
  const axes = { output: [1], lse: [2] };
  if (want.weights !== undefined) axes.weights = want.weights.shape.length === 3 ? [1, 2] : [2, 3];
  for (const [name, list] of Object.entries(axes)) {
    const part = list.reduce((tensor, axis) => slice(tensor, axis, first, first + L), entry(got[name], b));
    const problem = difference(part.data, want[name].data);
    if (problem) return `${name}: ${problem}`;
  }
  return undefined;
}

function inABatch(env) {
  const { mha, x, L, more } = draw(env);
  const b = env.random.between(0, 3);
  const batch = among(x, b, 4, () => env.random.number(4));
  const problem = compare(mha.forward(batch, more), mha.forward(x, more), b, 0, L);
  mha.dispose();
  return problem;
}

/** Entry b of a batch, with `left` tokens of padding before and `right` behind, which stand at no position. */
const padded = (left, right, byLength) => (env) => {
  const { random } = env;
  const { mha, options, x, L, more } = draw(env);
  const [b, batch, length] = [random.between(0, 2), 3, left + L + right];
  const longer = among(
    pad(x, 1, left, right, () => random.poison()),
    b,
    batch,
    () => random.number(4),
  );
  const given = { ...more };
  const perRow = (f) => Array.from({ length: batch * length }, (_, i) => f(Math.floor(i / length) === b, i % length));
  if (byLength) {
    given.keyLengths = Array.from({ length: batch }, (_, i) => (i === b ? L : length));
  } else {
    const isPadding = (isOurs, row) => Number(isOurs && (row < left || row >= left + L));
    given.keyPaddingMask = { data: Uint8Array.from(perRow(isPadding)), shape: [batch, length] };
  }
  if (options.rope !== undefined) {
    given.positions = Int32Array.from(perRow((isOurs, row) => (isOurs ? Math.max(0, row - left) : row)));
  }
  const problem = compare(mha.forward(longer, given), mha.forward(x, more), b, left, L);
  mha.dispose();
  return problem;
};

function linearRows({ Linear, runtime, random }) {
  const [inFeatures, outFeatures, rows] = [random.between(1, 140), random.between(1, 70), random.between(1, 30)];
  const linear = new Linear({ inFeatures, outFeatures, bias: random.chance(128), seed: rows, runtime });
  const x = random.tensor([rows, inFeatures], 2);
  const whole = linear.forward(x);
  const row = random.between(0, rows - 1);
  const alone = linear.forward(slice(x, 0, row, row + 1));
  linear.dispose();
  return difference(alone.data, slice(whole, 0, row, row + 1).data);
}

export const layerInvariances = [
  { title: 'T-12 a layer alone and in a batch of 4', trials: 60, check: inABatch },
  { title: 'T-12 a layer padded on the left by 7', trials: 60, check: padded(7, 0, false) },
  { title: 'T-12 a layer padded on the right by 9', trials: 40, check: padded(0, 9, false) },
  { title: 'T-12 a layer padded on the right by 9, by length', trials: 40, check: padded(0, 9, true) },
  { title: 'T-12 Linear, one row alone', trials: 60, check: linearRows },
];
