// Kind `torch_mha`: torch.nn.MultiheadAttention. Its bool masks hide where true, its inputs are length first unless
// told otherwise, and parameters have the names loadStateDict() knows.
import { CaseError } from './case-file.mjs';
import { maskOptions } from './masks.mjs';
import { addMasks, identity, invert, permute, reshape } from './tensor.mjs';

// Only the functional calls can leave the parameter aside; the note is where such a case says so.
const BIAS_UNUSED = /in_proj_bias .*NOT used/i;
const WEIGHTS = ['in_proj_weight', 'q_proj_weight', 'k_proj_weight', 'v_proj_weight'];

export function runTorchMha(c, api) {
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
  const batch = unbatched ? 1 : query.shape[0];
  const given = { key: c.input('static_k', { ranks: [3] }), value: c.input('static_v', { ranks: [3] }) };
  const keyIn = given.key ? sideBySide(given.key, batch, numHeads, unbatched) : key;
  const valueIn = given.value ? sideBySide(given.value, batch, numHeads, unbatched) : value;
  const sizes = { batch, heads: numHeads, queries: query.shape.at(-2), keys: keyIn.shape.at(-2) };

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
  const addBiasKv = c.flag('add_bias_kv', false);
  if (addBiasKv) {
    for (const name of ['bias_k', 'bias_v']) state[name] = c.requiredParam(name, { ranks: [3] });
  }
  const layer = {
    embedDim, numHeads, kDim: c.integer('kdim', embedDim), vDim: c.integer('vdim', embedDim),
    bias: { query: usesInBias, key: usesInBias, value: usesInBias, out: outBias !== undefined },
    addBiasKv, addZeroAttn: c.flag('add_zero_attn', false),
  };
  if (given.key || given.value) passOn(given, layer, state);

  const perHead = !c.flag('average_attn_weights', true);
  const needWeights = c.flag('need_weights', true) && (perHead ? 'perHead' : 'averaged');
  const options = {
    needWeights,
    ...maskOptions(readMasks(c, sizes, unbatched), sizes, c.fullyMasked, { uniform: -1e9 }),
  };

  const mha = new api.MultiHeadAttention({ ...layer, ...api.options });
  try {
    mha.loadStateDict(state);
    const { output, weights } = mha.forward(query, keyIn, valueIn, options);
    return {
      attn_output: batchFirst ? output : permute(output, [1, 0, 2]),
      ...(needWeights ? { attn_weights: weights } : {}),
    };
  } finally {
    mha.dispose();
  }
}

/** [B*H, S, D], entry b*H+h: what a projection would give, as it would give it. */
function sideBySide(tensor, batch, heads, unbatched) {
  const [entries, rows, cols] = tensor.shape;
  if (entries !== batch * heads) throw new CaseError(`a static key or value has ${entries} entries, want B*H`);
  const moved = permute(reshape(tensor, [batch, heads, rows, cols]), [0, 2, 1, 3]);
  return reshape(moved, [...(unbatched ? [] : [batch]), rows, heads * cols]);
}

/** The projections of what is `given` projected change nothing. */
function passOn(given, layer, state) {
  const { embedDim } = layer;
  if (state.in_proj_weight) {
    const { data } = state.in_proj_weight;
    ['q', 'k', 'v'].forEach((name, i) => {
      const part = data.subarray(i * embedDim ** 2, (i + 1) * embedDim ** 2);
      state[`${name}_proj_weight`] = { data: part, shape: [embedDim, embedDim] };
    });
    delete state.in_proj_weight;
  }
  for (const [name, width] of [['key', 'kDim'], ['value', 'vDim']]) {
    if (!given[name]) continue;
    layer[width] = embedDim;
    state[`${name[0]}_proj_weight`] = identity(embedDim);
    // A bias of zeros is none.
    if (state.in_proj_bias) {
      const at = name === 'key' ? 1 : 2;
      const data = state.in_proj_bias.data.slice().fill(0, at * embedDim, (at + 1) * embedDim);
      state.in_proj_bias = { data, shape: state.in_proj_bias.shape };
    }
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
