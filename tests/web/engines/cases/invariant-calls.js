// T-12 for scaledDotProductAttention: whatever options shape the scores and hide keys.
import { among, cuts, entry, join, pad, slice } from './blocks.js';
import { difference } from './random.js';

const PER_KEY = ['attendMask', 'attnBias'];
const RESULTS = ['output', 'lse', 'rowMax', 'weights', 'scores'];

/** A sequence on its own: sizes, tensors of batch 1 and options, all drawn. */
function draw(random) {
  const Hkv = random.between(1, 3);
  const H = Hkv * random.between(1, 3);
  const [L, D, Dv] = [random.between(1, 20), random.between(1, 40), random.between(1, 40)];
  const S = random.of(random.between(1, 40), random.between(110, 150), random.between(240, 300));
  const limit = random.of(1, 1, 4);
  const options = { returnLse: true, returnMax: true };
  if (random.chance(90)) options.needWeights = random.of('averaged', 'perHead');
  if (random.chance(60)) options.needScores = random.of('raw', 'capped', 'biased');
  const offset = random.between(0, S);
  if (random.chance(150)) options.causal = true;
  if (random.chance(80)) options.window = [random.between(-1, 160), random.between(-1, 9)];
  if (random.chance(50)) options.alibi = true;
  if (random.chance(50)) options.softcap = random.between(1, 30);
  if (random.chance(50)) options.sinks = random.numbers(H, 4);
  if (random.chance(40)) options.headMask = random.numbers(H, 2);
  if (random.chance(30)) options.emptyRows = 'nan';
  if (random.chance(60)) options.attnBias = random.tensor([1, random.of(1, H), L, S], 2);
  if (random.chance(60)) options.attendMask = random.mask([1, random.of(1, H), L, S], 200);
  const sequence = {
    query: random.tensor([1, H, L, D], limit),
    key: random.tensor([1, Hkv, S, D], limit),
    value: random.tensor([1, Hkv, S, Dv], limit),
    options,
    offset,
    prefix: options.causal && random.chance(60) ? random.between(0, S) : undefined,
    hidden: random.mask([1, S], random.of(0, 0, 40)),
  };
  // Once in a while, numbers that are none.
  if (random.chance(30)) sequence.key.data[random.between(0, sequence.key.data.length - 1)] = random.poison();
  if (random.chance(30)) sequence.value.data[random.between(0, sequence.value.data.length - 1)] = random.poison();
  return sequence;
}

const call = (
  { scaledDotProductAttention, runtime },
  { query, key, value, options, offset, prefix, hidden },
  more = {},
) =>
  scaledDotProductAttention(query, key, value, {
    ...options,
    keyPaddingMask: hidden,
    // Where no position counts, an offset is an error.
    ...(options.causal || options.window || options.alibi ? { queryOffset: offset } : {}),
    prefixLengths: prefix,
    ...more,
    runtime,
  });

/** A sequence whose tensors and masks went through `change(tensor, axis of its keys or undefined)`. */
function changed(sequence, change) {
  const options = { ...sequence.options };
  for (const name of PER_KEY) if (options[name] !== undefined) options[name] = change(options[name], 3);
  return {
    ...sequence,
    query: change(sequence.query),
    key: change(sequence.key, 2),
    value: change(sequence.value, 2),
    hidden: change(sequence.hidden, 1),
    options,
  };
}

/** What differs between results: all of `want`, and of `got` entry b with keys [first, first + S). */
function compare(got, want, b, first, S) {
  for (const name of RESULTS) {
    if (want[name] === undefined) continue;
    const perKey = name === 'weights' || name === 'scores';
    let part = entry(got[name], b);
    if (perKey) part = slice(part, part.shape.length - 1, first, first + S);
    const problem = difference(part.data, want[name].data);
    if (problem) return `${name}: ${problem}`;
  }
  return undefined;
}

const sizeOfKeys = ({ key }) => key.shape[2];

function inABatch(env) {
  const { random } = env;
  const sequence = draw(random);
  const b = random.between(0, 3);
  const poisoned = random.chance(40);
  const other = () => (poisoned && random.chance(20) ? random.poison() : random.number(4));
  const flag = () => Number(random.chance(60));
  const batch = changed(sequence, (tensor) => among(tensor, b, 4, tensor.data instanceof Uint8Array ? flag : other));
  const withOthers = (own, most) => Array.from({ length: 4 }, (_, i) => (i === b ? own : random.between(0, most)));
  batch.offset = withOthers(sequence.offset, 50);
  if (sequence.prefix !== undefined) batch.prefix = withOthers(sequence.prefix, sizeOfKeys(sequence));
  return compare(call(env, batch), call(env, sequence), b, 0, sizeOfKeys(sequence));
}

const padded = (sequence, random, left, right) =>
  changed(sequence, (tensor, axis) => {
    if (axis === undefined) return tensor;
    const isHidden = tensor === sequence.hidden;
    const isMask = tensor.data instanceof Uint8Array;
    return pad(tensor, axis, left, right, () => (isHidden ? 1 : isMask ? Number(random.chance(128)) : random.poison()));
  });

function paddedOnTheLeft(env) {
  const sequence = draw(env.random);
  const longer = padded(sequence, env.random, 7, 0);
  longer.offset += 7;
  if (longer.prefix !== undefined) longer.prefix += 7;
  return compare(call(env, longer), call(env, sequence), 0, 7, sizeOfKeys(sequence));
}

function paddedOnTheRight(env) {
  const sequence = draw(env.random);
  const S = sizeOfKeys(sequence);
  const longer = padded(sequence, env.random, 0, 9);
  const byMask = compare(call(env, longer), call(env, sequence), 0, 0, S);
  longer.hidden = pad(sequence.hidden, 1, 0, 9, () => 0);
  return byMask ?? compare(call(env, longer, { keyLengths: S }), call(env, sequence), 0, 0, S);
}

/** All rows in one call, and the same in blocks of rows. */
function rowByRow(env) {
  const sequence = draw(env.random);
  const whole = call(env, sequence);
  const L = sequence.query.shape[2];
  let first = 0;
  const parts = cuts(env.random, L, 5).map((count) => {
    const options = { ...sequence.options };
    for (const name of PER_KEY) {
      if (options[name] !== undefined) options[name] = slice(options[name], 2, first, first + count);
    }
    const query = slice(sequence.query, 2, first, first + count);
    const offset = sequence.offset + first;
    first += count;
    return call(env, { ...sequence, query, options, offset });
  });
  for (const name of RESULTS) {
    if (whole[name] === undefined) continue;
    const averaged = name === 'weights' && sequence.options.needWeights === 'averaged';
    const problem = difference(
      join(
        parts.map((part) => part[name]),
        averaged ? 1 : 2,
      ).data,
      whole[name].data,
    );
    if (problem) return `${name}: ${problem}`;
  }
  return undefined;
}

export const callInvariances = [
  { title: 'T-12 attention alone and in a batch of 4', trials: 150, check: inABatch },
  { title: 'T-12 attention padded on the left by 7', trials: 150, check: paddedOnTheLeft },
  { title: 'T-12 attention padded on the right by 9, by mask and by length', trials: 150, check: paddedOnTheRight },
  { title: 'T-12 attention in blocks of rows', trials: 100, check: rowByRow },
];
