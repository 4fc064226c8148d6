// The goals of the Limit issue that this benchmark measures, as rows { goal, what, want, figure, met }.
import { workload } from './workloads.mjs';

/** "Near" half, linear or one share in eight: a quarter above it at most. */
const NEAR = 1.25;
const COLD_START_MS = { Node: 30, Chromium: 60 };
const MAX_BROTLI = 100 * 1024;

const percent = (ratio) => `${(100 * ratio).toFixed(1)} %`;
const atLeast = (goal, what, ratio, least) =>
  ({ goal, what, want: `≥ ${percent(least)}`, figure: percent(ratio), met: ratio >= least });
const atMost = (goal, what, value, most, text = (x) => x.toFixed(2)) =>
  ({ goal, what, want: `≤ ${text(most)}`, figure: text(value), met: value <= most });

/** Least share of the engine's peak, by workload and build. */
const SHARES = [
  ...['W1', 'W2', 'W3', 'W9'].map((id) => ({ id, relaxed: 0.9, simd: 0.85 })),
  ...['W4', 'W6a', 'W6b'].map((id) => ({ id, relaxed: 0.8, simd: 0.8 })),
];

const peakGoals = (measured) => SHARES.flatMap(({ id, ...least }) => Object.entries(measured[id]?.builds ?? {})
  .map(([build, { gflops }]) =>
    atLeast('1', `${id} ${workload(id).title}, ${build}: of the peak`, gflops / measured[id].peak, least[build])));

const decodeGoals = (measured) => ['W7a', 'W7b'].flatMap((id) => Object.entries(measured[id]?.builds ?? {})
  .map(([build, { gbps }]) =>
    atLeast('4', `${id} ${workload(id).title}, ${build}: of the read bandwidth`, gbps / measured[id].read, 0.85)));

function maskGoals({ window, documents, builds }) {
  return Object.entries(builds).flatMap(([build, { causal, growing }]) => {
    const [first, last] = [growing[0], growing.at(-1)];
    const lengths = last.length / first.length;
    return [
      atMost('1', `W5 attention, ${build}: causal over full`, causal.attention, 0.56),
      atMost('1', `W5 whole layer, ${build}: causal over full`, causal.layer, 0.83),
      atMost('masks', `window of ${window}, ${build}: L = ${last.length} over L = ${first.length}`,
        last.window / first.window, lengths * NEAR),
      atMost('masks', `${documents} documents, L = ${last.length}, ${build}: over full`, last.documents / last.full,
        NEAR / documents),
    ];
  });
}

const tinyGoals = (measured) => Object.entries(measured).map(([build, { call, inside }]) =>
  atMost('6', `W8 tiny layer, ${build}: call over loop inside WASM`, call - inside, 3, (us) => `${us.toFixed(1)} µs`));

/** Below 8 the neighbour is 8 itself, and a vector is wider than the size: those stand apart. */
function oddGoals(measured) {
  const worst = (list) => list.reduce((most, entry) => (entry.ratio > most.ratio ? entry : most));
  return Object.entries(measured).flatMap(([build, { width, length }]) => [['D', width], ['L', length]]
    .flatMap(([letter, list]) => [['', list.filter(({ size }) => size > 8)],
      [' below 8', list.filter(({ size }) => size < 8)]].filter(([, some]) => some.length > 0).map(([title, some]) => {
      const { size, near, ratio } = worst(some);
      return atMost('7', `${build}: worst ${letter}${title} (${size} beside ${near}), time per element`, ratio, 1.5);
    })));
}

const sizeGoals = (sizes) => Object.entries(sizes).map(([build, bytes]) =>
  atMost('9', `JavaScript + .wasm, ${build}, brotli`, bytes, MAX_BROTLI, (n) => `${(n / 1024).toFixed(1)} KB`));

const coldStartGoals = (engine, ms) =>
  [atMost('9', 'cold start: import to first result', ms, COLD_START_MS[engine.split(' ')[0]], (x) => `${x.toFixed(1)} ms`)];

/** Rows of one engine's figures; sections that were not run have none. */
export function goalsOf(engine, figures) {
  return [
    ...(figures.workloads ? peakGoals(figures.workloads) : []),
    ...(figures.masks ? maskGoals(figures.masks) : []),
    ...(figures.workloads ? decodeGoals(figures.workloads) : []),
    ...(figures.tiny ? tinyGoals(figures.tiny) : []),
    ...(figures['odd-sizes'] ? oddGoals(figures['odd-sizes']) : []),
    ...(figures.sizes ? sizeGoals(figures.sizes) : []),
    ...(figures['cold-start'] ? coldStartGoals(engine, figures['cold-start']) : []),
  ];
}
