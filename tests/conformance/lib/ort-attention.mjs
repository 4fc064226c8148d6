// Kind `ort_attention`: onnxruntime's contrib operator Attention, whose fused projection is that of a layer. It ends
// before the output projection: the layer's head outputs are its result.
import { fillCache, makePast, readCache } from './attend.mjs';
import { CaseError } from './case-file.mjs';
import { foldPadding, maskOptions } from './masks.mjs';
import { clampedLengths, keepMask, ortBias, ortFinite, ortOptions, paddingMask } from './ort-masks.mjs';
import { lastColumns, permute, reshape, shapeText, sizeOf } from './tensor.mjs';

export function runOrtAttention(c, api) {
  const input = c.requiredInput('input', { ranks: [3] });
  const [batch, queries, width] = input.shape;
  const { layer, state } = readLayer(c, width);
  const { numHeads, headDim, vHeadDim } = layer;
  const past = readPast(c, numHeads);
  const pastRows = past?.rows ?? 0;
  const sizes = { batch, heads: numHeads, queries, keys: pastRows + queries };
  const masks = {
    ...ortBias(c, c.flag('unidirectional', false)),
    ...readMaskIndex(c, sizes, pastRows),
    ...(past ? { queryOffset: past.lengths } : {}),
  };
  const wanted = c.wants('present');
  if (wanted && headDim !== vHeadDim) {
    throw new CaseError('out.present holds keys and values of different widths');
  }
  const cached = past !== undefined || wanted;
  const { queryOffset, ...options } = maskOptions(cached ? foldPadding(masks, sizes) : masks, sizes, c.fullyMasked,
    ortFinite(c));
  // Half split, all of a head, base 10000.
  const rope = c.flag('do_rotary', false);
  const mha = new api.MultiHeadAttention({ ...layer, rope, ...ortOptions(c), ...api.options });
  const cache = cached
    ? fillCache(past, { batch, heads: numHeads, cols: headDim, rows: queries }, { cols: vHeadDim }, api) : undefined;
  try {
    mha.loadStateDict(state, { layout: 'huggingface' });
    const { heads } = mha.forward(input, input, input, {
      ...options, ...(cache ? { cache } : {}), returnHeads: true,
    });
    const present = cache && readCache(cache, sizes.keys, api);
    return {
      output: reshape(heads, [batch, queries, numHeads * vHeadDim]),
      ...(cache ? { present: stack(present.key, present.value) } : {}),
    };
  } finally {
    cache?.dispose();
    mha.dispose();
  }
}

function readLayer(c, width) {
  const numHeads = c.integer('num_heads');
  if (!(numHeads > 0)) throw new CaseError('attr.num_heads is missing or not positive');
  const weights = c.requiredInput('weights', { ranks: [2] });
  const bias = c.input('bias', { ranks: [1] });
  const total = weights.shape[1];
  if (weights.shape[0] !== width) {
    throw new CaseError(`in.weights is ${shapeText(weights.shape)}, but in.input is ${width} wide`);
  }
  if (bias && bias.data.length !== total) throw new CaseError('in.bias does not fit in.weights');
  const text = c.attr('qkv_hidden_sizes');
  const widths = text === undefined ? new Array(3).fill(total / 3) : text.split(',').map(Number);
  const fit = widths.length === 3 && widths.every((n) => Number.isInteger(n) && n > 0 && n % numHeads === 0)
    && widths[0] === widths[1] && widths[0] + widths[1] + widths[2] === total;
  if (!fit) throw new CaseError(`widths ${widths.join(',')} of q, k and v do not fit in.weights and ${numHeads} heads`);

  const outWidth = numHeads * (widths[2] / numHeads);
  // Nobody looks at the output projection.
  const state = { 'out_proj.weight': { data: new Float32Array(outWidth), shape: [1, outWidth] } };
  let at = 0;
  ['q', 'k', 'v'].forEach((name, i) => {
    const end = at + widths[i];
    state[`${name}_proj.weight`] = permute(lastColumns(weights, at, end), [1, 0]);
    if (bias) state[`${name}_proj.bias`] = { data: bias.data.slice(at, end), shape: [widths[i]] };
    at = end;
  });
  const biased = bias !== undefined;
  const layer = {
    embedDim: width, numHeads, headDim: widths[0] / numHeads, vHeadDim: widths[2] / numHeads, outDim: 1,
    bias: { query: biased, key: biased, value: biased, out: false },
  };
  return { layer, state };
}

/** The halves of [2, B, H, P, D]. */
function readPast(c, numHeads) {
  const past = c.input('past', { ranks: [5] });
  if (!past) return undefined;
  const [halves, ...shape] = past.shape;
  if (halves !== 2 || shape[1] !== numHeads) {
    throw new CaseError(`in.past is ${shapeText(past.shape)}, want [2,B,${numHeads},P,D]`);
  }
  const size = sizeOf(shape);
  const half = (i) => ({ data: past.data.subarray(i * size, (i + 1) * size), shape });
  return makePast(half(0), half(1));
}

function stack(key, value) {
  const data = new Float32Array(2 * key.data.length);
  data.set(key.data);
  data.set(value.data, key.data.length);
  return { data, shape: [2, ...key.shape] };
}

function readMaskIndex(c, { batch, queries, keys }, pastRows) {
  const mask = c.input('mask_index', { dtypes: ['I32'], ranks: [1, 2, 3, 4] });
  if (!mask) return {};
  const { data, shape } = mask;
  const is = (...wanted) => shapeText(shape) === shapeText(wanted);
  if (is(batch)) return { keyLengths: clampedLengths(data, keys) };
  if (is(2 * batch)) {
    const starts = data.subarray(batch);
    const padding = Uint8Array.from({ length: batch * keys }, (_, n) => n % keys < starts[Math.floor(n / keys)] ? 1 : 0);
    return { keyLengths: clampedLengths(data.subarray(0, batch), keys), padding: { data: padding, shape: [batch, keys] } };
  }
  if (is(batch, keys)) return { padding: paddingMask(mask, shape) };
  // A dummy, which masks nothing.
  if (is(batch, 1)) return {};
  if (is(batch, queries, keys)) return { attend: keepMask(mask, [batch, 1, queries, keys]) };
  if (shape.length === 4 && shape[0] === batch && shape[1] === 1 && shape[2] >= keys && shape[3] >= keys) {
    // Row P + i and column j of a larger square.
    const part = new Int32Array(batch * queries * keys);
    for (let row = 0; row < batch * queries; ++row) {
      const b = Math.floor(row / queries);
      const from = (b * shape[2] + pastRows + row % queries) * shape[3];
      part.set(data.subarray(from, from + keys), row * keys);
    }
    return { attend: keepMask({ data: part }, [batch, 1, queries, keys]) };
  }
  throw new CaseError(`in.mask_index has the unknown shape ${shapeText(shape)}`);
}
