// Kind `ort_mha`: onnxruntime's contrib operator MultiHeadAttention over projected tensors. Its biases go through
// layers with identity weights.
import { attend, readPast } from './attend.mjs';
import { CaseError } from './case-file.mjs';
import { heads, packedPart, readHeads, sideBySide } from './heads.mjs';
import { clampedLengths, keepMask, ortBias, ortFinite, ortOptions, paddingMask } from './ort-masks.mjs';
import { identity, reshape, shapeText } from './tensor.mjs';

export function runOrtMha(c, api) {
  const numHeads = c.integer('num_heads');
  if (!(numHeads > 0)) throw new CaseError('attr.num_heads is missing or not positive');
  const { query, key, value } = addBiases(c, readInputs(c, numHeads), api);
  const past = readPast(c);
  const wanted = c.wants('output_qk');
  const keys = (past?.rows ?? 0) + key.rows;
  const masks = {
    ...ortBias(c, c.flag('unidirectional', false)),
    ...readPadding(c, { batch: query.batch, queries: query.rows, keys }),
  };
  const options = { ...ortOptions(c), ...(wanted ? { needScores: 'raw' } : {}) };
  const finite = ortFinite(c);
  const { output, layout, scores, present } = attend(
    { query, key, value, past, masks, options, fullyMasked: c.fullyMasked, finite }, api);
  return {
    output: output.shape.length === 3 ? output : sideBySide(heads(output, layout)),
    ...(wanted ? { output_qk: scores } : {}),
    present_key: present.key,
    present_value: present.value,
  };
}

function readInputs(c, numHeads) {
  const query = c.requiredInput('query', { ranks: [3, 5] });
  const key = c.input('key', { ranks: [3, 4, 5] });
  const value = c.input('value', { ranks: [3, 4] });
  const unpack = (name, tensor, parts) => {
    const { shape } = tensor;
    if (shape[2] !== numHeads || shape[3] !== parts) {
      throw new CaseError(`in.${name} is ${shapeText(shape)}, want [B,L,${numHeads},${parts},D]`);
    }
    return Array.from({ length: parts }, (_, part) => packedPart(tensor, part));
  };
  const read = (name, tensor) => readHeads(`in.${name}`, tensor, numHeads, 'attr.num_heads');
  if (query.shape.length === 5) {
    if (key || value) throw new CaseError('in.query is packed, but there is a key or value');
    const [q, k, v] = unpack('query', query, 3);
    return { query: q, key: k, value: v, biased: ['query'] };
  }
  if (!key) throw new CaseError('in.key is missing');
  if (key.shape.length === 5) {
    if (value) throw new CaseError('in.key is packed, but there is a value');
    const [k, v] = unpack('key', key, 2);
    return { query: read('query', query), key: k, value: v, biased: ['query'] };
  }
  if (value?.shape.length !== key.shape.length) {
    throw new CaseError('in.value must be there, with the rank of in.key');
  }
  return {
    query: read('query', query), key: read('key', key), value: read('value', value),
    // Keys and values that came with heads first are projected already, bias and all.
    biased: key.shape.length === 3 ? ['query', 'key', 'value'] : ['query'],
  };
}

function addBiases(c, inputs, api) {
  const bias = c.input('bias', { ranks: [1] });
  if (!bias) return inputs;
  const names = ['query', 'key', 'value'];
  const widths = [inputs.query, inputs.query, inputs.value].map((x) => x.heads * x.cols);
  const total = widths.reduce((a, b) => a + b, 0);
  if (bias.data.length !== total) throw new CaseError(`in.bias has ${bias.data.length} values, want ${total}`);
  const result = { ...inputs };
  let at = 0;
  names.forEach((name, i) => {
    const part = bias.data.subarray(at, at += widths[i]);
    if (inputs.biased.includes(name)) result[name] = addBias(inputs[name], part, api);
  });
  return result;
}

/** A projection that only adds its bias. */
function addBias(x, bias, api) {
  const width = x.heads * x.cols;
  const linear = new api.Linear({ inFeatures: width, outFeatures: width, ...api.options });
  try {
    linear.loadStateDict({ weight: identity(width), bias: { data: bias, shape: [width] } });
    return heads(reshape(linear.forward(sideBySide(x)), [x.batch, x.rows, x.heads, x.cols]), 'BLHD');
  } finally {
    linear.dispose();
  }
}

function readPadding(c, { batch, queries, keys }) {
  const mask = c.input('key_padding_mask', { dtypes: ['I32'], ranks: [1, 2, 3] });
  if (!mask) return {};
  const { data, shape } = mask;
  if (shape.length === 1) {
    if (shape[0] !== batch && shape[0] !== 3 * batch + 2) {
      throw new CaseError(`in.key_padding_mask has ${shape[0]} entries for a batch of ${batch}`);
    }
    return { keyLengths: clampedLengths(data.subarray(0, batch), keys) };
  }
  const wanted = shape.length === 2 ? [batch, keys] : [batch, queries, keys];
  if (shapeText(shape) !== shapeText(wanted)) {
    throw new CaseError(`in.key_padding_mask is ${shapeText(shape)}, want ${shapeText(wanted)}`);
  }
  return shape.length === 2 ? { padding: paddingMask(mask, wanted) }
    : { attend: keepMask(mask, [batch, 1, queries, keys]) };
}
