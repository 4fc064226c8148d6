// Kinds `onnx_attention` and `ort_onnx_attention`: the ONNX operator Attention over projected tensors. Bool masks
// say what may be attended, masks broadcast from the right, a mask shorter than the keys hides the rest.
import { CaseError } from './case-file.mjs';
import { LOWEST_F32, finiteRule, maskOptions } from './masks.mjs';
import { extendLast, permute, reshape, toRank4 } from './tensor.mjs';

export function runOnnxAttention(c, api) {
  if (c.number('softcap', 0) > 0) throw new CaseError('the adapter does not handle attr.softcap');
  for (const name of ['left_window_size', 'right_window_size']) {
    if (c.integer(name, -1) !== -1) throw new CaseError(`the adapter does not handle attr.${name}`);
  }
  for (const name of ['past_key', 'past_value']) {
    if (c.input(name)) throw new CaseError(`the adapter does not handle in.${name}`);
  }
  // How the softmax of the source rounds.
  c.attr('softmax_precision');

  const rank = c.requiredInput('Q', { ranks: [3, 4] }).shape.length;
  const split = rank === 3;
  const [query, key, value] = [['Q', 'q_num_heads'], ['K', 'kv_num_heads'], ['V', 'kv_num_heads']].map(
    ([name, attribute]) => withHeads(name, c.requiredInput(name, { ranks: [rank] }), c.integer(attribute), attribute));
  const [headAxis, rowAxis] = split ? [2, 1] : [1, 2];
  const sizes = {
    batch: query.shape[0], heads: query.shape[headAxis], queries: query.shape[rowAxis], keys: key.shape[rowAxis],
  };

  const mode = c.integer('qk_matmul_output_mode', 0);
  const needWeights = c.wants('qk_matmul_output') && 'perHead';
  if (needWeights && mode !== 3) throw new CaseError(`the adapter does not handle attr.qk_matmul_output_mode=${mode}`);

  const scale = c.number('scale');
  const { output, weights } = api.scaledDotProductAttention(query, key, value, {
    layout: split ? 'BLHD' : 'BHLD',
    needWeights,
    ...(scale === undefined ? {} : { scale }),
    ...maskOptions(readMasks(c, sizes), sizes, c.fullyMasked, finiteRule(c, LOWEST_F32)),
    ...api.options,
  });
  const headsFirst = (tensor) => split ? permute(tensor, [0, 2, 1, 3]) : tensor;
  return {
    Y: split ? reshape(output, [...output.shape.slice(0, 2), output.shape[2] * output.shape[3]]) : output,
    ...(needWeights ? { qk_matmul_output: weights } : {}),
    // Without a past the present is what came in.
    present_key: headsFirst(key),
    present_value: headsFirst(value),
  };
}

/** [B, L, H*D] becomes [B, L, H, D]; [B, H, L, D] stays. */
function withHeads(name, tensor, heads, attribute) {
  const { shape } = tensor;
  if (shape.length === 4) {
    if (heads !== undefined && heads !== shape[1]) {
      throw new CaseError(`attr.${attribute} is ${heads}, but in.${name} has ${shape[1]} heads`);
    }
    return tensor;
  }
  if (!(heads > 0) || shape[2] % heads !== 0) {
    throw new CaseError(`in.${name} of width ${shape[2]} does not divide into attr.${attribute}=${heads} heads`);
  }
  return reshape(tensor, [shape[0], shape[1], heads, shape[2] / heads]);
}

function readMasks(c, { batch, queries, keys }) {
  const masks = { causal: c.flag('is_causal', false) };
  const given = c.input('attn_mask', { dtypes: ['BOOL', 'F32'], ranks: [1, 2, 3, 4] });
  if (given) {
    const isBool = given.dtype === 'BOOL';
    const whole = given.shape.at(-1) < keys ? extendLast(given, keys, isBool ? 0 : -Infinity) : given;
    masks[isBool ? 'attend' : 'bias'] = toRank4(whole);
  }
  const lengths = c.input('nonpad_kv_seqlen', { dtypes: ['I64', 'I32'], ranks: [1] });
  if (lengths) {
    if (lengths.shape[0] !== batch) {
      throw new CaseError(`in.nonpad_kv_seqlen has ${lengths.shape[0]} entries, want ${batch}`);
    }
    masks.keyLengths = Int32Array.from(lengths.data, Number);
    masks.queryOffset = masks.keyLengths.map((length) => length - queries);
  }
  return masks;
}
