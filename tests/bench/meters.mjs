// What the engine can do at most: multiply-adds on registers (peak.cc), and reading memory (read.cc).
const PEAK_ROUNDS = 20_000;
const PEAK_FLOP = PEAK_ROUNDS * 96; // 12 vectors × 4 lanes × (multiply + add)

export const meterPath = (variant, name) => `build/wasm-${variant}/tests/bench/headwise_${name}.wasm`;

/** A bare module's exports. What it imports is for programs that print and exit, which these do not. */
export async function openBare(readBytes, variant, name) {
  const nothing = new Proxy({}, { get: () => () => 0 });
  const imports = new Proxy({}, { get: () => nothing });
  const { instance } = await WebAssembly.instantiate(await readBytes(meterPath(variant, name)), imports);
  instance.exports._initialize?.();
  return instance.exports;
}

/** { 'peak simd': task, … }. */
export async function peakTasks(readBytes, variants) {
  const tasks = {};
  for (const variant of variants) {
    const { Peak } = await openBare(readBytes, variant, 'peak');
    tasks[`peak ${variant}`] = () => Peak(PEAK_ROUNDS);
  }
  return tasks;
}

/**
 * GFLOP/s out of the times of these tasks. A fused multiply-add is the most an engine does in one instruction, so it is
 * the peak for all builds.
 */
export const peakOf = (times) => Math.max(...Object.entries(times)
  .flatMap(([name, ms]) => (name.startsWith('peak ') ? [PEAK_FLOP / ms / 1e6] : [])));

/** A task that reads `bytes` bytes once. */
export async function readTask(readBytes, bytes) {
  const { Prepare, Read } = await openBare(readBytes, 'simd', 'read');
  const whole = Math.ceil(bytes / 128) * 128;
  const data = Prepare(whole);
  if (data === 0) throw new Error(`no ${whole} bytes of memory to read from`);
  return () => Read(data, whole);
}
