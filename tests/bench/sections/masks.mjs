// Time with a mask over time without: what nobody sees must cost nothing.
import { makeInputs } from '../inputs.mjs';
import { interleave } from '../measure.mjs';
import { openOurs, variantsOf } from '../ours.mjs';
import { workload } from '../workloads.mjs';

const HEADS = { kind: 'attention', batch: 1, embedDim: 256, numHeads: 4 };
const WINDOW = 128;
const DOCUMENTS = 8;
const LENGTHS = [1024, 2048, 4096];

/** For attention of our own sizes: { run } with these options. */
function attend({ headwise, runtime }, inputs, length, options) {
  const shape = [1, HEADS.numHeads, length, HEADS.embedDim / HEADS.numHeads];
  const [query, key, value] = ['query', 'key', 'value'].map((name) => ({ data: inputs[name], shape }));
  return () => headwise.scaledDotProductAttention(query, key, value, { runtime, ...options });
}

/** Causal over full: attention of W5, and its whole layer. */
function causal(env) {
  const w5 = env.quick ? { ...workload('W5'), length: 128 } : workload('W5');
  const layerInputs = makeInputs(w5);
  const attention = { ...w5, kind: 'attention', causal: false };
  const inputs = makeInputs(attention);
  const { headwise, runtime } = env;
  const shape = [1, w5.numHeads, w5.length, w5.embedDim / w5.numHeads];
  const [query, key, value] = ['query', 'key', 'value'].map((name) => ({ data: inputs[name], shape }));
  const full = openOurs(headwise, runtime, w5, layerInputs, {});
  const hiding = openOurs(headwise, runtime, w5, layerInputs);
  const times = interleave({
    full: () => headwise.scaledDotProductAttention(query, key, value, { runtime }),
    causal: () => headwise.scaledDotProductAttention(query, key, value, { runtime, causal: true }),
    layerFull: full.run,
    layerCausal: hiding.run,
  }, env.effort);
  full.close();
  hiding.close();
  return { attention: times.causal / times.full, layer: times.layerCausal / times.layerFull };
}

/** Full, a window and documents over growing lengths. */
function growing(env) {
  return (env.quick ? [256] : LENGTHS).map((length) => {
    const inputs = makeInputs({ ...HEADS, length });
    const documents = Int32Array.from({ length }, (_, i) => Math.floor((i * DOCUMENTS) / length));
    const blockMask = env.headwise.BlockMask.fromDocuments(documents, { runtime: env.runtime });
    const times = interleave({
      full: attend(env, inputs, length, {}),
      window: attend(env, inputs, length, { window: [WINDOW, 0] }),
      documents: attend(env, inputs, length, { blockMask }),
    }, env.effort);
    blockMask.dispose();
    return { length, ...times };
  });
}

/** { build: { causal: { attention, layer }, growing: [{ length, full, window, documents }, …] } }, ratios and ms. */
export async function masks({ effort, ...more }) {
  const env = { ...more, effort: { ...effort, most: 3500 } };
  const builds = {};
  for (const variant of variantsOf(env.headwise)) {
    const inside = { ...env, runtime: await env.headwise.load({ variant }) };
    builds[variant] = { causal: causal(inside), growing: growing(inside) };
  }
  return { window: WINDOW, documents: DOCUMENTS, builds };
}
