// Kind `ort_gqa`: onnxruntime's contrib operator GroupQueryAttention. Entries of a batch have pasts of different
// lengths, in buffers that may be longer.
import { attend, makePast } from './attend.mjs';
import { CaseError } from './case-file.mjs';
import { readHeads, selectHeads } from './heads.mjs';
import { ortBias, ortOptions } from './ort-masks.mjs';
import { turn } from './rotary.mjs';
import { sizeOf } from './tensor.mjs';

export function runOrtGqa(c, api) {
  const projected = readProjected(c);
  const totals = readTotals(c, projected.key.batch);
  const longest = readLongest(c, totals);
  const { past, newLengths } = readPasts(c, projected, totals, longest);
  const { query, key, value } = rotate(c, projected, past.lengths, api);

  const masks = ortBias(c, true);
  const window = c.integer('local_window_size', -1);
  if (window > 0) masks.window = [window - 1, -1];
  if (newLengths) masks.keyLengths = Int32Array.from(totals);
  const options = ortOptions(c);
  const softcap = c.number('softcap', 0);
  if (softcap > 0) options.softcap = softcap;
  const sinks = readSinks(c, query.heads);
  if (sinks) options.sinks = sinks;

  const { output, present } = attend({
    query, key, value, past, newLengths, columns: masks.bias?.shape.at(-1), masks, options,
    fullyMasked: c.fullyMasked, finite: {},
  }, api);
  const rows = Math.max(longest, past.key.shape[2]);
  return {
    output,
    present_key: buffer(present.key, rows, totals),
    present_value: buffer(present.value, rows, totals),
  };
}

function readProjected(c) {
  const [count, kvCount] = ['num_heads', 'kv_num_heads'].map((name) => {
    const n = c.integer(name);
    if (!(n > 0)) throw new CaseError(`attr.${name} is missing or not positive`);
    return n;
  });
  const ranks = [3];
  const query = c.requiredInput('query', { ranks });
  const [key, value] = [c.input('key', { ranks }), c.input('value', { ranks })];
  if (!key !== !value) throw new CaseError('of in.key and in.value one is missing');
  if (!key) {
    const packed = readHeads('in.query', query, count + 2 * kvCount, 'num_heads + 2 kv_num_heads');
    return {
      query: selectHeads(packed, 0, count),
      key: selectHeads(packed, count, count + kvCount),
      value: selectHeads(packed, count + kvCount, count + 2 * kvCount),
    };
  }
  if (key.shape[1] !== query.shape[1]) throw new CaseError('in.key and in.query differ in length');
  return {
    query: readHeads('in.query', query, count, 'attr.num_heads'),
    key: readHeads('in.key', key, kvCount, 'attr.kv_num_heads'),
    value: readHeads('in.value', value, kvCount, 'attr.kv_num_heads'),
  };
}

/** Valid keys of each entry. */
function readTotals(c, batch) {
  const last = c.requiredInput('seqlens_k', { dtypes: ['I32', 'I64'], ranks: [1, 2] });
  if (last.data.length !== batch) throw new CaseError(`in.seqlens_k has ${last.data.length} entries, want ${batch}`);
  const totals = Array.from(last.data, (x) => Number(x) + 1);
  if (totals.some((total) => total < 0)) throw new CaseError('in.seqlens_k is below -1');
  return totals;
}

function readLongest(c, totals) {
  const longest = Math.max(0, ...totals);
  const given = c.input('total_sequence_length', { dtypes: ['I32', 'I64'], ranks: [0, 1] });
  if (!given) return longest;
  if (given.data.length !== 1 || Number(given.data[0]) < longest) {
    throw new CaseError('in.total_sequence_length is below in.seqlens_k + 1');
  }
  return Number(given.data[0]);
}

/** The past, and the new rows that count where not all do. */
function readPasts(c, { key, value }, totals, longest) {
  const ranks = [4];
  const given = ['past_key', 'past_value'].map((name) => c.input(name, { ranks }));
  if (!given[0] !== !given[1]) throw new CaseError('of in.past_key and in.past_value one is missing');
  const [pastKey, pastValue] = given[0] ? given : [key, value].map((x) => (
    { data: new Float32Array(0), shape: [x.batch, x.heads, 0, x.cols] }));
  // The first call of all: shorter entries are padded behind their end.
  const first = longest === key.rows;
  const lengths = Int32Array.from(totals, (total) => first ? 0 : total - key.rows);
  for (const length of lengths) {
    if (length < 0 || length > pastKey.shape[2]) {
      throw new CaseError(`in.seqlens_k leaves a past of ${length} rows, of ${pastKey.shape[2]}`);
    }
  }
  const added = totals.map((total, b) => total - lengths[b]);
  return {
    past: makePast(pastKey, pastValue, lengths),
    newLengths: added.some((rows) => rows < key.rows) ? added : undefined,
  };
}

function rotate(c, { query, key, value }, offsets, api) {
  const interleaved = c.flag('rotary_interleaved', false);
  const [cos, sin] = ['cos_cache', 'sin_cache'].map((name) => c.input(name, { ranks: [2] }));
  if (!c.flag('do_rotary', false)) return { query, key, value };
  if (!cos || !sin) throw new CaseError('in.cos_cache or in.sin_cache is missing');
  const turned = (x) => turn(x, { cos, sin, interleaved, pairs: cos.shape[1], offset: offsets }, api);
  return { query: turned(query), key: turned(key), value };
}

/** What joins the softmax of each head. */
function readSinks(c, count) {
  const smooth = c.integer('smooth_softmax', 0);
  if (![-1, 0, 1].includes(smooth)) throw new CaseError(`attr.smooth_softmax is ${smooth}, want -1, 0 or 1`);
  const sink = c.input('head_sink', { ranks: [1] });
  if (sink && smooth === 1) throw new CaseError('attr.smooth_softmax=1 together with in.head_sink');
  if (sink && sink.data.length !== count) {
    throw new CaseError(`in.head_sink has ${sink.data.length} entries, want ${count}`);
  }
  return sink?.data ?? (smooth === 1 ? new Float32Array(count) : undefined);
}

/** The buffer wanted, `rows` long; what lies behind an entry's end is open. */
function buffer(present, rows, totals) {
  const [batch, count, had, cols] = present.shape;
  const shape = [batch, count, rows, cols];
  const data = new Float32Array(sizeOf(shape));
  const unspecified = new Uint8Array(data.length).fill(1);
  for (let head = 0; head < batch * count; ++head) {
    const valid = totals[Math.floor(head / count)] * cols;
    const from = head * had * cols;
    data.set(present.data.subarray(from, from + valid), head * rows * cols);
    unspecified.fill(0, head * rows * cols, head * rows * cols + valid);
  }
  return { data, shape, unspecified };
}
