// Kinds `onnx_attention` and `ort_onnx_attention`: the ONNX operator Attention over projected tensors. Bool masks
// say what may be attended, masks broadcast from the right, a mask shorter than the keys hides the rest.
import { attend, readPast } from './attend.mjs';
import { CaseError } from './case-file.mjs';
import { readHeads } from './heads.mjs';
import { LOWEST_F32 } from './masks.mjs';
import { extendLast } from './tensor.mjs';

const SCORES = ['raw', 'capped', 'biased'];

export function runOnnxAttention(c, api) {
  // How the softmax of the source rounds.
  c.integer('softmax_precision');

  const rank = c.requiredInput('Q', { ranks: [3, 4] }).shape.length;
  const [query, key, value] = [['Q', 'q_num_heads'], ['K', 'kv_num_heads'], ['V', 'kv_num_heads']].map(
    ([name, attribute]) => readHeads(`in.${name}`, c.requiredInput(name, { ranks: [rank] }), c.integer(attribute),
      `attr.${attribute}`));
  const past = readPast(c);

  const mode = c.integer('qk_matmul_output_mode', 0);
  const wanted = c.wants('qk_matmul_output');
  if (wanted && !(mode >= 0 && mode <= 3)) throw new CaseError(`attr.qk_matmul_output_mode is ${mode}, want 0 to 3`);
  const sizes = { batch: query.batch, queries: query.rows, keys: (past?.rows ?? 0) + key.rows };
  const masks = readMasks(c, sizes);
  if (past && masks.keyLengths) throw new CaseError('in.nonpad_kv_seqlen contradicts in.past_key');

  const options = {};
  const scale = c.number('scale');
  if (scale !== undefined) options.scale = scale;
  const softcap = c.number('softcap', 0);
  if (softcap > 0) options.softcap = softcap;
  if (wanted && mode === 3) options.needWeights = 'perHead';
  else if (wanted) options.needScores = SCORES[mode];

  const { output, weights, scores, present } = attend({
    query, key, value, past, masks, options, fullyMasked: c.fullyMasked, finite: { uniform: LOWEST_F32 },
  }, api);
  return {
    Y: output,
    ...(wanted ? { qk_matmul_output: weights ?? scores } : {}),
    present_key: present.key,
    present_value: present.value,
  };
}

function readMasks(c, { batch, queries, keys }) {
  const window = ['left', 'right'].map((side) => c.integer(`${side}_window_size`, -1));
  if (window.some((side) => side < -1)) throw new CaseError('a window size is below -1');
  const masks = { causal: c.flag('is_causal', false), window };
  const given = c.input('attn_mask', { dtypes: ['BOOL', 'F32'], ranks: [1, 2, 3, 4] });
  if (given) {
    const isBool = given.dtype === 'BOOL';
    masks[isBool ? 'attend' : 'bias'] = given.shape.at(-1) < keys
      ? extendLast(given, keys, isBool ? 0 : -Infinity) : given;
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
