// K-01 and K-08: how tokens were cut into steps, and how many sequences take them, leaves no trace.
import { cuts, entry, join, slice } from './blocks.js';
import { drawLayer } from './invariant-layers.js';
import { difference } from './random.js';

/** Feeds x [B, n, E] in steps of these lengths: { output, held }. */
function feed(mha, cacheOptions, x, steps) {
  const cache = mha.createCache({ batch: x.shape[0], ...cacheOptions });
  let first = 0;
  const outputs = steps.map((n) => {
    const { output } = mha.forward(slice(x, 1, first, first + n), { cache, causal: true });
    first += n;
    return output;
  });
  const result = { output: join(outputs, 1), held: cache.save() };
  cache.dispose();
  return result;
}

function named(what, got, want) {
  const problem = difference(got.data, want.data);
  return problem && `${what}: ${problem}`;
}

const differ = (got, want, what) => {
  const output = named(`${what}: output`, got.output, want.output);
  if (output) return output;
  const held = difference(got.held, want.held);
  return held ? `${what}: cache: ${held}` : undefined;
};

const first = (problems) => problems.find((problem) => problem !== undefined);

function drawn({ MultiHeadAttention, runtime, random }) {
  const options = drawLayer(random);
  const mha = new MultiHeadAttention({ ...options, runtime });
  return { mha, options, dtype: random.of('f32', 'f16', 'bf16', 'int8') };
}

/** 7 tokens behind none or many others, as 7, 3 + 4 and 1 x 7, by one sequence and by three. */
function sevenTokens(env) {
  const { random } = env;
  const { mha, options, dtype } = drawn(env);
  const before = random.of([], [random.between(1, 20)], [random.between(110, 135)]);
  const n = before.length ? before[0] + 7 : 7;
  const cacheOptions = { capacity: n + random.between(0, 20), dtype };
  const x = random.tensor([3, n, options.embedDim], 2);
  const ways = [[7], [3, 4], [1, 1, 1, 1, 1, 1, 1]].map((steps) => [...before, ...steps]);
  const problems = [];
  const b = random.between(0, 2);
  const want = feed(mha, cacheOptions, x, ways[0]);
  const wantAlone = feed(mha, cacheOptions, entry(x, b), ways[0]);
  for (const steps of ways.slice(1)) {
    problems.push(differ(feed(mha, cacheOptions, x, steps), want, `batch 3 in steps of ${steps}`));
    problems.push(differ(feed(mha, cacheOptions, entry(x, b), steps), wantAlone, `batch 1 in steps of ${steps}`));
  }
  problems.push(named('batch 1 and 3', wantAlone.output, entry(want.output, b)));
  // Without a cache, where storage does not round.
  if (dtype === 'f32') problems.push(named('cache and none', want.output, mha.forward(x, { causal: true }).output));
  mha.dispose();
  return first(problems);
}

/** Any number of tokens in steps of any size. */
function anySteps(env) {
  const { random } = env;
  const { mha, options, dtype } = drawn(env);
  const n = random.between(2, 160);
  const x = random.tensor([2, n, options.embedDim], 2);
  const want = feed(mha, { capacity: n, dtype }, x, [n]);
  const steps = cuts(random, n, random.of(3, 20, 140));
  const problem = differ(feed(mha, { capacity: n, dtype }, x, steps), want, `steps of ${steps}`);
  mha.dispose();
  return problem;
}

/** A rolling cache, far beyond its window. */
function rolling(env) {
  const { random } = env;
  const { mha, options, dtype } = drawn(env);
  const [window, n] = [random.between(1, 30), random.between(1, 150)];
  const sinkTokens = random.of(0, 0, random.between(1, 5));
  const x = random.tensor([2, n, options.embedDim], 2);
  const cacheOptions = { window, sinkTokens, dtype };
  const want = feed(mha, cacheOptions, x, Array(n).fill(1));
  const problems = [3, 12, 40].map((most) => {
    const steps = cuts(random, n, most);
    return differ(feed(mha, cacheOptions, x, steps), want, `window ${window}, ${sinkTokens} sinks, steps of ${steps}`);
  });
  const b = random.between(0, 1);
  const alone = feed(mha, cacheOptions, entry(x, b), cuts(random, n, 30));
  problems.push(named('batch 1 and 2', alone.output, entry(want.output, b)));
  if (dtype === 'f32' && sinkTokens === 0) {
    const whole = mha.forward(x, { causal: true, window: [window - 1, 0] });
    problems.push(named('cache and none', want.output, whole.output));
  }
  mha.dispose();
  return first(problems);
}

export const cacheInvariances = [
  { title: 'K-01 7 tokens as 7, 3 + 4 and 1 x 7, by 1 sequence and by 3', trials: 60, check: sevenTokens },
  { title: 'T-12 a cache fed in any steps', trials: 40, check: anySteps },
  { title: 'K-08 a rolling cache fed in any steps', trials: 60, check: rolling },
];
