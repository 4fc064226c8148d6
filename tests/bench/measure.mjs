// Timing: the machine is shared and noisy, so things to compare are run in turns and reported by their medians.

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Milliseconds of `task`, repeated inside until it takes about `atLeast` ms, per call. */
function timeOnce(task, repeats) {
  const begun = performance.now();
  for (let i = 0; i < repeats; i += 1) task();
  return (performance.now() - begun) / repeats;
}

/**
 * Times named tasks in turns and returns { name: median milliseconds }. Each is warmed up for `warmUp` ms first, so that
 * the engine has its optimised code, and each turn takes about `turn` ms.
 */
export function interleave(tasks, { turns = 15, turn = 60, warmUp = 400 } = {}) {
  const names = Object.keys(tasks);
  const repeats = {};
  for (const name of names) {
    const begun = performance.now();
    let calls = 0;
    let last = 0;
    while (performance.now() - begun < warmUp) {
      last = timeOnce(tasks[name], 1);
      calls += 1;
    }
    repeats[name] = Math.max(1, Math.round(turn / Math.max(last, 1e-3)));
  }
  const times = Object.fromEntries(names.map((name) => [name, []]));
  for (let i = 0; i < turns; i += 1) {
    for (const name of names) times[name].push(timeOnce(tasks[name], repeats[name]));
  }
  return Object.fromEntries(names.map((name) => [name, median(times[name])]));
}
