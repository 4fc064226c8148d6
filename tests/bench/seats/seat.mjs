// One participant inside an engine: opens a workload, proves its numbers, and takes its turns. Each has a process or a
// page of its own, so that nobody's memory or compiled code is in another's way.
import { makeInputs } from '../inputs.mjs';
import { PEERS } from '../peers/index.mjs';
import { referenceRows, relativeError } from '../reference.mjs';
import { workload } from '../workloads.mjs';

const MAX_RELATIVE_ERROR = 1e-4;
const [WARM_MS, SLOW_MS] = [250, 1500];

async function call(run) {
  const result = run();
  return result instanceof Promise ? await result : result;
}

async function timed(run, repeats) {
  const begun = performance.now();
  for (let i = 0; i < repeats; i += 1) {
    const result = run();
    if (result instanceof Promise) await result;
  }
  return (performance.now() - begun) / repeats;
}

/** Milliseconds per call once it is warm; of the first call when that takes long. */
async function warm(run, first) {
  if (first > SLOW_MS) return first;
  const begun = performance.now();
  let calls = 0;
  let last = first;
  do {
    const at = performance.now();
    await call(run);
    last = performance.now() - at;
    calls += 1;
  } while (performance.now() - begun < WARM_MS);
  // The clock of a page is coarse: short calls by their mean, long ones by the last.
  return last > 20 ? last : (performance.now() - begun) / calls;
}

export class Seat {
  #env;
  #opened = new Map();

  constructor(env) {
    this.#env = env;
  }

  /** [{ variant, ms } | { variant, why }]: what each variant takes, of those that are right. */
  async begin(name, id) {
    const w = workload(id);
    const absent = PEERS[name].absent?.(this.#env, w);
    if (absent) return [{ variant: '', why: absent }];
    const inputs = makeInputs(w);
    const reference = referenceRows(w, inputs);
    const peer = await PEERS[name].load(this.#env);
    const results = [];
    for (const variant of peer.variants(w)) {
      try {
        const opened = await peer.open(w, inputs, variant);
        const begun = performance.now();
        const output = await call(opened.run);
        const first = performance.now() - begun;
        const error = relativeError(w, opened.toHeadsFirst ? opened.toHeadsFirst(output) : output, reference);
        if (!(error < MAX_RELATIVE_ERROR)) {
          results.push({ variant, why: `wrong: relative error ${error.toPrecision(2)}` });
          opened.close();
          continue;
        }
        this.#opened.set(variant, opened);
        results.push({ variant, error, ms: await warm(opened.run, first) });
      } catch (error) {
        results.push({ variant, why: `fails: ${String(error?.message ?? error).split('\n')[0].slice(0, 120)}` });
      }
    }
    return results;
  }

  /** Milliseconds per call of one turn. */
  turn(variant, repeats) {
    return timed(this.#opened.get(variant).run, repeats);
  }
}
