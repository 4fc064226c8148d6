// Attention behind earlier keys and values. Where the package's cache can say it, the past goes through the cache, and
// what is present is read back from there; elsewhere the past is put in front of the new keys.
import { CaseError } from './case-file.mjs';
import { heads, headsFirst, sideBySide } from './heads.mjs';
import { foldPadding, maskOptions } from './masks.mjs';
import { sizeOf } from './tensor.mjs';

/** in.past_key and in.past_value, all of both, or undefined. */
export function readPast(c) {
  const ranks = [4];
  const [key, value] = [c.input('past_key', { ranks }), c.input('past_value', { ranks })];
  if (!key !== !value) throw new CaseError('of in.past_key and in.past_value one is missing');
  return key && makePast(key, value);
}

/** The first lengths[b] rows of entry b count. */
export function makePast(key, value, lengths = new Int32Array(key.shape[0]).fill(key.shape[2])) {
  return { key, value, lengths, rows: lengths.length ? Math.max(...lengths) : key.shape[2] };
}

function checkPast({ key: pastKey, value: pastValue }, key, value) {
  for (const [past, x] of [[pastKey, key], [pastValue, value]]) {
    const [batch, count, rows, cols] = past.shape;
    if (batch !== x.batch || count !== x.heads || cols !== x.cols || rows !== pastKey.shape[2]) {
      throw new CaseError('the past does not fit the new keys and values');
    }
  }
}

/**
 * @param query, key, value of heads(); query i of an entry stands behind the entry's past
 * @param past       of readPast() or undefined
 * @param newLengths new rows of each entry that count; undefined: all
 * @param columns    columns that masks have, where there are more than keys
 * @param masks, fullyMasked, finite  as for maskOptions()
 * @param options    of the call, beside the masks
 */
export function attend({ query, key, value, past, newLengths, columns = 0, masks, options, fullyMasked, finite }, api) {
  if (past) checkPast(past, key, value);
  const rows = Math.max((past?.rows ?? 0) + key.rows, columns);
  const sizes = { batch: query.batch, heads: query.heads, queries: query.rows, keys: rows };
  const placed = past && !masks.queryOffset ? { ...masks, queryOffset: past.lengths } : masks;
  // The cache's queries are its last tokens, and it has a column for each token of its longest entry.
  const cached = past && query.batch > 0 && query.rows === key.rows && !newLengths && rows === past.rows + key.rows;
  const result = cached
    ? attendCached({ query, key, value, past, options: callOptions(foldPadding(placed, sizes)) }, rows, api)
    : attendJoined({ query, key, value, past, newLengths, options: callOptions(placed) }, rows, api);
  const split = query.layout === 'BLHD';
  return { ...result, output: split ? sideBySide(heads(result.output, result.layout)) : result.output };

  function callOptions(all) {
    return { ...options, ...maskOptions(all, sizes, fullyMasked, finite) };
  }
}

function attendCached({ query, key, value, past, options }, rows, api) {
  const cache = fillCache(past, key, value, api);
  try {
    cache.append(headsFirst(key), headsFirst(value));
    const { queryOffset, ...rest } = options;
    const { output, weights, scores } = api.scaledDotProductAttention(headsFirst(query),
      { cache, ...rest, ...api.options });
    return { output, layout: 'BHLD', weights, scores, present: readCache(cache, rows, api) };
  } finally {
    cache.dispose();
  }
}

function attendJoined({ query, key, value, past, newLengths, options }, rows, api) {
  const all = [query, key, value];
  const same = !past && all.every(({ layout }) => layout === query.layout);
  const layout = same ? query.layout : 'BHLD';
  const [q, k, v] = same ? all.map(({ tensor }) => tensor) : all.map(headsFirst);
  const wholeKey = past ? join(past.key, past.lengths, k, newLengths, rows) : k;
  const wholeValue = past ? join(past.value, past.lengths, v, newLengths, rows) : v;
  const { output, weights, scores } = api.scaledDotProductAttention(q, wholeKey, wholeValue,
    { layout, ...options, ...api.options });
  return {
    output, layout, weights, scores,
    present: { key: headsFirst(heads(wholeKey, layout)), value: headsFirst(heads(wholeValue, layout)) },
  };
}

/** Entry by entry the past, and behind it the new rows; zeros up to `rows`. */
function join(past, lengths, x, newLengths, rows) {
  const [batch, count, added, cols] = x.shape;
  const shape = [batch, count, rows, cols];
  const data = new Float32Array(sizeOf(shape));
  const had = past.shape[2];
  for (let b = 0; b < batch; ++b) {
    for (let h = 0; h < count; ++h) {
      const head = b * count + h;
      const before = past.data.subarray(head * had * cols, (head * had + lengths[b]) * cols);
      const next = x.data.subarray(head * added * cols, (head * added + (newLengths?.[b] ?? added)) * cols);
      data.set(before, head * rows * cols);
      data.set(next, (head * rows + lengths[b]) * cols);
    }
  }
  return { data, shape };
}

/** A cache that holds the past, if there is one, and has room for the new keys. */
export function fillCache(past, key, value, api) {
  const cache = api.KvCache.create({
    batch: key.batch, numKvHeads: key.heads, headDim: key.cols, vHeadDim: value.cols,
    capacity: Math.max(1, (past?.key.shape[2] ?? 0) + key.rows), ...api.options,
  });
  if (past) cache.append(past.key, past.value, past.lengths);
  return cache;
}

/** Keys and values as the cache holds them, [B, H, rows, D]; zeros behind an entry's end. */
export function readCache(cache, rows, api) {
  const { tensors } = api.parseSafetensors(cache.save());
  const { batch, numKvHeads, headDim, vHeadDim } = cache.config;
  const whole = (name, cols) => {
    const shape = [batch, numKvHeads, rows, cols];
    const data = new Float32Array(sizeOf(shape));
    for (let b = 0; b < batch; ++b) {
      const held = tensors[`${name}.${b}`];
      const size = held.shape[1] * cols;
      for (let h = 0; h < numKvHeads; ++h) {
        data.set(held.data.subarray(h * size, (h + 1) * size), (b * numKvHeads + h) * rows * cols);
      }
    }
    return { data, shape };
  };
  return { key: whole('key', headDim), value: whole('value', vHeadDim) };
}
