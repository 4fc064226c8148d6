// What a call from JavaScript costs over the same layer called in a loop inside WASM (tiny.cc).
import { makeInputs } from '../inputs.mjs';
import { interleave } from '../measure.mjs';
import { openBare } from '../meters.mjs';
import { openOurs, variantsOf } from '../ours.mjs';
import { workload } from '../workloads.mjs';

const ROUNDS = 100;

/** { build: { call, inside } }, microseconds. */
export async function tiny(env) {
  const w8 = workload('W8');
  const inputs = makeInputs(w8);
  const result = {};
  for (const variant of variantsOf(env.headwise)) {
    const ours = openOurs(env.headwise, await env.headwise.load({ variant }), w8, inputs);
    const { Tiny } = await openBare(env.readBytes, variant, 'tiny');
    if (!Number.isFinite(Tiny(1))) throw new Error('the layer inside WASM failed');
    const times = interleave({ call: ours.run, inside: () => Tiny(ROUNDS) }, env.effort);
    ours.close();
    result[variant] = { call: 1000 * times.call, inside: (1000 * times.inside) / ROUNDS };
  }
  return result;
}
