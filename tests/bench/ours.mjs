// Our package on a workload: { run, close }. run() gives a Float32Array of JavaScript.
import { keyLength } from './workloads.mjs';

/** The builds this engine runs. */
export const variantsOf = ({ detectFeatures }) => (detectFeatures().relaxedSimd ? ['simd', 'relaxed'] : ['simd']);

export const stateDictOf = ({ weights, biases }, embedDim) => {
  const packed = new Float32Array(3 * embedDim ** 2);
  const packedBias = new Float32Array(3 * embedDim);
  ['query', 'key', 'value'].forEach((name, i) => {
    packed.set(weights[name], i * embedDim ** 2);
    packedBias.set(biases[name], i * embedDim);
  });
  return {
    in_proj_weight: { data: packed, shape: [3 * embedDim, embedDim] },
    in_proj_bias: { data: packedBias, shape: [3 * embedDim] },
    'out_proj.weight': { data: weights.out, shape: [embedDim, embedDim] },
    'out_proj.bias': { data: biases.out, shape: [embedDim] },
  };
};

function openAttention(headwise, runtime, w, inputs) {
  const shape = [w.batch, w.numHeads, w.length, w.embedDim / w.numHeads];
  const [query, key, value] = ['query', 'key', 'value'].map((name) => ({ data: inputs[name], shape }));
  const options = { runtime, ...(w.causal && { causal: true }) };
  return { run: () => headwise.scaledDotProductAttention(query, key, value, options).output.data, close() {} };
}

/** `options` are those of each forward(). */
export function openOurs(headwise, runtime, w, inputs, options = w.causal ? { causal: true } : {}) {
  if (w.kind === 'attention') return openAttention(headwise, runtime, w, inputs);
  const { batch, length, embedDim, numHeads } = w;
  const mha = new headwise.MultiHeadAttention({ embedDim, numHeads, runtime });
  mha.loadStateDict(stateDictOf(inputs, embedDim));
  const x = { data: inputs.x, shape: [batch, length, embedDim] };
  if (w.kind === 'layer') return { run: () => mha.forward(x, options).output.data, close: () => mha.dispose() };
  const past = w.cached - 1;
  const cache = mha.createCache({ batch, capacity: keyLength(w) });
  const shape = [numHeads, past, embedDim / numHeads];
  cache.append({ data: inputs.pastKey, shape }, { data: inputs.pastValue, shape });
  return {
    run() {
      const { output } = mha.forward(x, { cache, causal: true });
      cache.crop(past); // so that each call is the same step; it moves nothing
      return output.data;
    },
    close() {
      cache.dispose();
      mha.dispose();
    },
  };
}
