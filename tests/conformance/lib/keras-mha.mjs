// Kind `keras_mha`: kernels [in, heads, size] become rows [heads * size, in], biases [heads, size] lie behind one
// another as in_proj_bias does.
import { CaseError } from './case-file.mjs';
import { finiteRule, maskOptions } from './masks.mjs';
import { permute, reshape, sizeOf, stack, toRank4 } from './tensor.mjs';

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
    q_proj_weight: rows(queryKernel),
    k_proj_weight: rows(keyKernel),
    v_proj_weight: rows(valueKernel),
    'out_proj.weight': reshape(permute(outputKernel, [2, 0, 1]), [outDim, numHeads * vHeadDim]),
  };
  const useBias = c.flag('use_bias', true);
  const inBiases = INPUTS.map((name) => c.param(`${name}_bias`, { ranks: [2] }));
  const outBias = c.param('output_bias', { ranks: [1] });
  const count = [...inBiases, outBias].filter(Boolean).length;
  if (count !== (useBias ? 4 : 0)) throw new CaseError(`attr.use_bias=${Number(useBias)}, but it has ${count} biases`);
  if (useBias) {
    state.in_proj_bias = stack(inBiases.map((bias) => reshape(bias, [sizeOf(bias.shape)])));
    state['out_proj.bias'] = outBias;
  }

  const sizes = { batch: query.shape[0], heads: numHeads, queries: query.shape[1], keys: key.shape[1] };
  const needWeights = c.wants('attention_scores') && 'perHead';
  const options = {
    needWeights,
    ...maskOptions(readMasks(c), sizes, c.fullyMasked, finiteRule(c, -1e9)),
  };

  const mha = new api.MultiHeadAttention({
    embedDim, numHeads, numKvHeads, headDim, vHeadDim, kDim, vDim, outDim, bias: useBias, ...api.options,
  });
  try {
    mha.loadStateDict(state);
    const { output, weights } = mha.forward(query, key, value, options);
    return { output, ...(needWeights ? { attention_scores: weights } : {}) };
  } finally {
    mha.dispose();
  }
}

function rows(kernel) {
  const [width, heads, size] = kernel.shape;
  return reshape(permute(kernel, [1, 2, 0]), [heads * size, width]);
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
