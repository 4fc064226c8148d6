// Our builds on the workloads, the engine's peak beside each, and beside decoding the memory's bandwidth.
import { makeInputs } from '../inputs.mjs';
import { interleave } from '../measure.mjs';
import { peakOf, peakTasks, readTask } from '../meters.mjs';
import { openOurs, variantsOf } from '../ours.mjs';
import { referenceRows, relativeError } from '../reference.mjs';
import { WORKLOADS, decodeBytes, flop, workload } from '../workloads.mjs';

/** float32 against float64: as many roundings as the sums are long, and no more. */
const MAX_RELATIVE_ERROR = 1e-5;

async function measureWorkload({ headwise, readBytes, effort }, w) {
  const inputs = makeInputs(w);
  const reference = referenceRows(w, inputs);
  const tasks = await peakTasks(readBytes, variantsOf(headwise));
  const opened = [];
  try {
    for (const variant of variantsOf(headwise)) {
      const ours = openOurs(headwise, await headwise.load({ variant }), w, inputs);
      opened.push(ours);
      const error = relativeError(w, ours.run(), reference);
      if (!(error < MAX_RELATIVE_ERROR)) {
        throw new Error(`${w.id} in the ${variant} build is wrong: relative error ${error}`);
      }
      tasks[variant] = ours.run;
    }
    if (w.kind === 'decode') tasks.read = await readTask(readBytes, decodeBytes(w));
    const times = interleave(tasks, effort);
    const builds = Object.fromEntries(variantsOf(headwise).map((variant) => {
      const ms = times[variant];
      return [variant, { ms, gflops: flop(w) / ms / 1e6, gbps: w.kind === 'decode' ? decodeBytes(w) / ms / 1e6 : null }];
    }));
    const read = w.kind === 'decode' ? decodeBytes(w) / times.read / 1e6 : null;
    return { peak: peakOf(times), read, builds };
  } finally {
    for (const ours of opened) ours.close();
  }
}

/** { W1: { peak, read, builds: { simd: { ms, gflops, gbps }, … } }, … }; GFLOP/s and GB/s. */
export async function workloads(env) {
  const result = {};
  for (const w of env.ids ? env.ids.map(workload) : WORKLOADS) result[w.id] = await measureWorkload(env, w);
  return result;
}
