// Kind `torch_mha`: torch.nn.MultiheadAttention. Its bool masks hide where true, its inputs are length first unless
// told otherwise, and parameters have the names loadStateDict() knows.
import { CaseError } from './case-file.mjs';
import { finiteRule, maskOptions } from './masks.mjs';
import { addMasks, invert, permute, reshape } from './tensor.mjs';

// Only the functional calls can leave the parameter aside; the note is where such a case says so.
const BIAS_UNUSED = /in_proj_bias .*NOT used/i;
const WEIGHTS = ['in_proj_weight', 'q_proj_weight', 'k_proj_weight', 'v_proj_weight'];

export function runTorchMha(c, api) {
  for (const name of ['add_bias_kv', 'add_zero_attn']) {
    if (c.flag(name, false)) throw new CaseError(`the adapter does not handle attr.${name}=1`);
  }
  for (const name of ['static_k', 'static_v']) {
    if (c.input(name)) throw new CaseError(`the adapter does not handle in.${name}`);
  }
  // How torch was called; the numbers are the same.
  for (const name of ['functional', 'eval_no_grad', 'dropout']) c.attr(name);

  const unbatched = c.flag('unbatched', false);
  const batchFirst = c.flag('batch_first', false) || unbatched;
  const ranks = [unbatched ? 2 : 3];
  const moved = new Map();
  const [query, key, value] = ['query', 'key', 'value'].map((name) => {
    const tensor = c.requiredInput(name, { ranks });
    // One object for one tensor, so that self-attention reaches the package as such.
    if (!moved.has(tensor)) moved.set(tensor, batchFirst ? tensor : permute(tensor, [1, 0, 2]));
    return moved.get(tensor);
  });
  const embedDim = c.integer('embed_dim', query.shape.at(-1));
  const numHeads = c.integer('num_heads') ?? missing('attr.num_heads');
  const sizes = {
    batch: unbatched ? 1 : query.shape[0], heads: numHeads, queries: query.shape.at(-2), keys: key.shape.at(-2),
  };

  const state = {};
  for (const name of WEIGHTS) {
    const weight = c.param(name, { ranks: [2] });
    if (weight) state[name] = weight;
  }
  state['out_proj.weight'] = c.requiredParam('out_proj.weight', { ranks: [2] });
  const biases = c.flag('bias', true);
  const inBias = c.param('in_proj_bias', { ranks: [1] });
  const outBias = c.param('out_proj.bias', { ranks: [1] });
  if (!biases && (inBias || outBias)) throw new CaseError('attr.bias=0, but there is a bias');
  const usesInBias = inBias !== undefined && !BIAS_UNUSED.test(c.note);
  if (usesInBias) state.in_proj_bias = inBias;
  if (outBias) state['out_proj.bias'] = outBias;

  const perHead = !c.flag('average_attn_weights', true);
  const needWeights = c.flag('need_weights', true) && (perHead ? 'perHead' : 'averaged');
  const options = {
    needWeights,
    ...maskOptions(readMasks(c, sizes, unbatched), sizes, c.fullyMasked, finiteRule(c, -1e9)),
  };

  const mha = new api.MultiHeadAttention({
    embedDim, numHeads,
    kDim: c.integer('kdim', embedDim), vDim: c.integer('vdim', embedDim),
    bias: { query: usesInBias, key: usesInBias, value: usesInBias, out: outBias !== undefined },
    ...api.options,
  });
  try {
    mha.loadStateDict(state);
    const { output, weights } = mha.forward(query, key, value, options);
    return {
      attn_output: batchFirst ? output : permute(output, [1, 0, 2]),
      ...(needWeights ? { attn_weights: weights } : {}),
    };
  } finally {
    mha.dispose();
  }
}

function missing(name) {
  throw new CaseError(`${name} is missing`);
}

function readMasks(c, { batch, heads, queries, keys }, unbatched) {
  const masks = { causal: c.flag('causal', false) };
  const attn = c.input('attn_mask', { dtypes: ['BOOL', 'F32'], ranks: [2, 3] });
  if (attn) {
    // [B*H, L, S] has the head fastest.
    const shape = attn.shape.length === 3 ? [batch, heads, queries, keys] : [1, 1, queries, keys];
    const mask = reshape(attn, shape);
    if (attn.dtype === 'BOOL') masks.attend = invert(mask);
    else masks.bias = mask;
  }
  const padding = c.input('key_padding_mask', { dtypes: ['BOOL', 'F32'], ranks: [unbatched ? 1 : 2] });
  if (padding?.dtype === 'BOOL') {
    masks.padding = reshape(padding, unbatched ? [keys] : [batch, keys]);
  } else if (padding) {
    const bias = reshape(padding, [batch, 1, 1, keys]);
    masks.bias = masks.bias ? addMasks(masks.bias, bias) : bias;
  }
  return masks;
}
