// Kind `keras_mha`: Keras' MultiHeadAttention. The package reads kernels [in, heads, size] as they are.
import { CaseError } from './case-file.mjs';
import { maskOptions } from './masks.mjs';
import { reshape, toRank4 } from './tensor.mjs';

const INPUTS = ['query', 'key', 'value'];

export function runKerasMha(c, api) {
  const ranks = [3];
  const query = c.requiredInput('query', { ranks });
  const value = c.requiredInput('value', { ranks });
  const key = c.input('key', { ranks }) ?? value;

  const [queryKernel, keyKernel, valueKernel] = INPUTS.map((name) => c.requiredParam(`${name}_kernel`, { ranks }));
  const outputKernel = c.requiredParam('output_kernel', { ranks });
  const [embedDim, numHeads, headDim] = queryKernel.shape;
  const [kDim, numKvHeads] = keyKernel.shape;
  const [vDim, , vHeadDim] = valueKernel.shape;
  const outDim = outputKernel.shape[2];
  const said = { num_heads: numHeads, key_dim: headDim, value_dim: vHeadDim, output_dim: outDim };
  for (const [name, size] of Object.entries(said)) {
    if (c.integer(name, size) !== size) throw new CaseError(`attr.${name} is not ${size}, as the kernels say`);
  }

  const state = {
    query_kernel: queryKernel, key_kernel: keyKernel, value_kernel: valueKernel, output_kernel: outputKernel,
  };
  const bias = c.flag('use_bias', true);
  for (const name of [...INPUTS, 'output']) {
    const tensor = c.param(`${name}_bias`, { ranks: [name === 'output' ? 1 : 2] });
    if (tensor) state[`${name}_bias`] = tensor;
  }

  const sizes = { batch: query.shape[0], heads: numHeads, queries: query.shape[1], keys: key.shape[1] };
  const needWeights = c.wants('attention_scores') && 'perHead';
  const options = {
    needWeights,
    ...maskOptions(readMasks(c), sizes, c.fullyMasked, { uniform: -1e9 }),
  };

  const mha = new api.MultiHeadAttention({
    embedDim, numHeads, numKvHeads, headDim, vHeadDim, kDim, vDim, outDim, bias, ...api.options,
  });
  try {
    // Strict: refuses missing, misshapen and superfluous tensors.
    mha.loadStateDict(state, { layout: 'keras' });
    const { output, weights } = mha.forward(query, key, value, options);
    return { output, ...(needWeights ? { attention_scores: weights } : {}) };
  } finally {
    mha.dispose();
  }
}

function readMasks(c) {
  const masks = { causal: c.flag('use_causal_mask', false) };
  const mask = c.input('attention_mask', { dtypes: ['BOOL'], ranks: [2, 3, 4] });
  if (mask) {
    // Rank 3 is [batch, queries, keys].
    const [batch, ...rest] = mask.shape;
    masks.attend = mask.shape.length === 3 ? reshape(mask, [batch, 1, ...rest]) : toRank4(mask);
  }
  return masks;
}
