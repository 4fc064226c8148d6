// Timing: the machine is shared and noisy, so things to compare are run in turns and reported by their medians.

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Milliseconds per call of `repeats` calls. */
export function timeCalls(task, repeats) {
  const begun = performance.now();
  for (let i = 0; i < repeats; i += 1) task();
  return (performance.now() - begun) / repeats;
}

/** Calls `task` for `warmUp` ms, and returns how often it is to be called in a turn of `turn` ms. */
function warm(task, warmUp, turn) {
  const begun = performance.now();
  let calls = 0;
  let elapsed = 0;
  // Browsers round their clock to 0.1 ms: one short call cannot be timed, many can.
  do {
    task();
    calls += 1;
    elapsed = performance.now() - begun;
  } while (elapsed < warmUp);
  return Math.max(1, Math.round((turn * calls) / elapsed));
}

/** How thorough: `quick` is for the test that the benchmark still runs. */
export const EFFORT = { turns: 15, turn: 60, warmUp: 300 };
export const QUICK = { turns: 1, turn: 1, warmUp: 1 };

/**
 * Times named tasks in turns and returns { name: median milliseconds }. Each is warmed up first, so that the engine has
 * its optimised code. Slow tasks get fewer turns: all of them together take at most about `most` ms, but 3 turns.
 */
export function interleave(tasks, { turns, turn, warmUp, most = 20_000 } = EFFORT) {
  const names = Object.keys(tasks);
  const repeats = Object.fromEntries(names.map((name) => [name, warm(tasks[name], warmUp, turn)]));
  const times = Object.fromEntries(names.map((name) => [name, []]));
  const begun = performance.now();
  for (let i = 0; i < turns && (i < 3 || performance.now() - begun < most); i += 1) {
    for (const name of names) times[name].push(timeCalls(tasks[name], repeats[name]));
  }
  return Object.fromEntries(names.map((name) => [name, median(times[name])]));
}
