// The functional core: attention of projected heads, without weights of its own.
import { checkChoice, checkOptions } from './arguments.js';
import {
  AttentionCall,
  type AttentionGeometry,
  type ForwardResult,
  type Strides,
  type WeightedResult,
} from './attention-call.js';
import { MAX_ROLLING_QUERIES } from './cache-options.js';
import type { AttentionPlan } from './call-plan.js';
import type { Core } from './core.js';
import { showShape } from './describe.js';
import { type HeadwiseRangeError, rangeError, typeError } from './errors.js';
import { type ExtraKeys, checkExtraKeys } from './extra-keys.js';
import { FORWARD_OPTION_NAMES, type ForwardOptions, type NeedsWeights, PLAIN, planOptions } from './forward-options.js';
import { type KvCache, type OpenCache, openCache } from './kv-cache.js';
import { type Runtime, coreFor } from './runtime.js';
import { type Tensor, type TensorInput, looksLikeTensor, readTensor } from './tensor.js';

/** Order of the axes: heads before positions (PyTorch, ONNX), or positions before heads (as projections make them). */
export type HeadsLayout = 'BHLD' | 'BLHD';

export interface AttentionOptions extends ForwardOptions {
  /** Of query, key, value and output. Default 'BHLD'. */
  readonly layout?: HeadsLayout | undefined;
  /**
   * In the place of key and value: what was appended, the queries' own keys among it. Query i of entry b stands at
   * position length(b) - L + i, with queryLengths at length(b) - queryLengths[b] + i. S is the longest entry.
   */
  readonly cache?: KvCache | undefined;
  /**
   * n keys behind the others that every query sees, whatever masks and positions say: [Hkv, n, D] or [B, Hkv, n, D],
   * n up to 128. Weights and scores get n more columns. Together with extraValue.
   */
  readonly extraKey?: Tensor | undefined;
  /** [Hkv, n, Dv] or [B, Hkv, n, Dv]. */
  readonly extraValue?: Tensor | undefined;
  /** Default: the cache's, or the first one that was loaded and is alive. */
  readonly runtime?: Runtime | undefined;
}

const CALL = 'scaledDotProductAttention()';
const KNOWN: ReadonlySet<string> = new Set([
  ...FORWARD_OPTION_NAMES,
  'layout',
  'cache',
  'extraKey',
  'extraValue',
  'runtime',
] satisfies (keyof AttentionOptions)[]);

/** Sizes of one input by axis, whatever the layout. */
export interface Axes {
  readonly batch: number;
  readonly heads: number;
  readonly length: number;
  readonly width: number;
}

/**
 * softmax(scale · QKᵀ + bias, hidden keys left out) · V. query [B, H, L, D], key [B, Hkv, S, D], value
 * [B, Hkv, S, Dv]; query head h reads key/value head floor(h / (H / Hkv)). Without the batch axis: rank 3; one head:
 * rank 2. Synchronous: await load() before.
 */
export function scaledDotProductAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options: AttentionOptions & NeedsWeights,
): WeightedResult;
/** The same, where weights may be absent from the result. */
export function scaledDotProductAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options?: AttentionOptions,
): ForwardResult;
/** The same over the keys and values of a cache. */
export function scaledDotProductAttention(
  query: Tensor,
  options: AttentionOptions & NeedsWeights & { readonly cache: KvCache },
): WeightedResult;
/** The same over the keys and values of a cache. */
export function scaledDotProductAttention(
  query: Tensor,
  options: AttentionOptions & { readonly cache: KvCache },
): ForwardResult;
export function scaledDotProductAttention(queryTensor: Tensor, ...rest: unknown[]): ForwardResult {
  const [first, second, third] = rest;
  if (rest.length === 1 && namesCache(first)) {
    return attendToCache(readTensor(CALL, 'query', queryTensor), checkOptions<AttentionOptions>(CALL, first, KNOWN));
  }
  const query = readTensor(CALL, 'query', queryTensor);
  const key = first === queryTensor ? query : readTensor(CALL, 'key', first);
  const value = second === queryTensor ? query : second === first ? key : readTensor(CALL, 'value', second);
  const options = third === undefined ? undefined : checkOptions<AttentionOptions>(CALL, third, KNOWN);
  if (options?.cache !== undefined) {
    const wayOut = 'append() them and call scaledDotProductAttention(query, { cache })';
    const complaint = { call: CALL, argument: 'cache', got: 'given with key and value', wanted: 'given alone', wayOut };
    throw typeError(complaint, 'conflict');
  }
  const layout = options?.layout === undefined ? 'BHLD' : checkChoice(CALL, 'layout', options.layout, LAYOUTS);
  const given = checkInputs(CALL, query, key, value, layout);
  const extra = checkExtraKeys(CALL, options?.extraKey, options?.extraValue, given);
  const geometry = withColumns(given, extra);
  const batched = query.shape.length === 4;
  const plan = planOptions(CALL, options, { ...geometry, batched }, geometry, { known: KNOWN, defaults: PLAIN });
  const core = coreFor(CALL, options?.runtime);

  const call = new AttentionCall(core, CALL, geometry, planExtra(plan, extra));
  const sameValue = value === query ? 'query' : value === key ? 'key' : 'own';
  return core.exclusively(CALL, () => {
    call.prepare(key === query, sameValue, () => reserve(core, geometry, extra?.rows ?? 0));
    call.writeInputs(query, key, value);
    call.invoke((block) => core.alive(CALL).scaledDotProductAttention(block));
    return call.results();
  });
}

/** Options that stand where a key would. */
const namesCache = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !looksLikeTensor(value) && 'cache' in value;

function attendToCache(query: TensorInput, options: Partial<AttentionOptions>): ForwardResult {
  const layout = options.layout === undefined ? 'BHLD' : checkChoice(CALL, 'layout', options.layout, LAYOUTS);
  const wanted = options.runtime === undefined ? undefined : coreFor(CALL, options.runtime);
  const cache = openCache(CALL, options.cache, wanted);
  const { core } = cache;
  for (const name of ['extraKey', 'extraValue'] as const) {
    if (options[name] === undefined) continue;
    const wayOut = 'append it to the cache';
    const complaint = { call: CALL, argument: name, got: 'given with a cache', wanted: 'left away', wayOut };
    throw typeError(complaint, 'conflict');
  }
  const { geometry, seen } = cachedGeometry(query, cache, layout);
  const sizes = { ...geometry, keyLength: seen, batched: query.shape.length === 4 };
  const position = (b: number, count: number): number => (cache.lengths[b] as number) - count;
  const context = { known: KNOWN, defaults: PLAIN, cache: { window: cache.config.window, position } };
  const plan = planOptions(CALL, options, sizes, geometry, context);
  checkHeld(cache, geometry.queryLength, plan.queryLengths);
  const call = new AttentionCall(core, CALL, geometry, plan);
  const raw = cache.raw();
  return core.exclusively(CALL, () => {
    call.prepare(false, 'key', () => undefined);
    call.writeInputs(query, NOTHING, NOTHING);
    call.invoke((block) => core.alive(CALL).cachedAttention(block, raw));
    return call.results();
  });
}

const NOTHING: TensorInput = { data: new Float32Array(0), length: 0, shape: [0] };

function cachedGeometry(
  query: TensorInput,
  { config, lengths }: OpenCache,
  layout: HeadsLayout,
): { geometry: AttentionGeometry; seen: number } {
  const rank = query.shape.length;
  const named = `[${layout.split('').join(', ')}] (layout '${layout}')`;
  const q = axes(query.shape, layout);
  const { batch, numKvHeads, headDim, vHeadDim, window } = config;
  const fits = q.batch === batch && q.width === headDim && q.heads > 0 && q.heads % numKvHeads === 0;
  if (rank < 2 || rank > 4 || !fits) {
    const wanted = `${named} of B = ${batch}, a multiple of ${numKvHeads} heads and D = ${headDim}, as the cache`;
    throw shapeError(CALL, 'query.shape', query.shape, wanted, 'without B for one entry');
  }
  if (window > 0 && q.length > MAX_ROLLING_QUERIES) {
    const wanted = `of at most ${MAX_ROLLING_QUERIES} queries with a rolling cache`;
    throw shapeError(CALL, 'query.shape', query.shape, wanted, 'append and call in pieces');
  }
  const seen = lengths.reduce((most, length) => Math.max(most, length), 0);
  const none = { batch, heads: numKvHeads, length: 0, width: headDim };
  const geometry = geometryOf(q, none, { ...none, width: vHeadDim }, rank, layout);
  return { geometry: withKeys(geometry, seen), seen };
}

/** A rolling cache that was cropped may lack what queries before its end would see. */
function checkHeld(cache: OpenCache, queryLength: number, queryLengths: Int32Array | undefined): void {
  const { batch, window, sinkTokens } = cache.config;
  const raw = cache.raw();
  for (let b = 0; b < batch && window > 0; ++b) {
    const count = queryLengths === undefined ? queryLength : (queryLengths[b] as number);
    const first = raw.length(b) - count;
    const oldest = Math.max(sinkTokens, first - (window - 1));
    if (count === 0 || first < 0 || oldest > first || raw.holds(b, oldest)) continue;
    throw rangeError({
      call: CALL,
      argument: 'cache',
      got: `without token ${oldest} of entry ${b}, which a rolling cache has dropped`,
      wanted: `one that holds what the query at position ${first} sees`,
      wayOut: 'attend before crop(), or crop by less',
    });
  }
}

/** Results with `columns` keys. */
const withKeys = (g: AttentionGeometry, columns: number): AttentionGeometry => ({
  ...g,
  averagedShape: [...g.averagedShape.slice(0, -1), columns],
  perHeadShape: [...g.perHeadShape.slice(0, -1), columns],
});
const withColumns = (g: AttentionGeometry, extra: ExtraKeys | undefined): AttentionGeometry =>
  extra === undefined ? g : withKeys(g, g.keyLength + extra.rows);

const planExtra = (plan: AttentionPlan, extra: ExtraKeys | undefined): AttentionPlan =>
  extra === undefined
    ? plan
    : {
        ...plan,
        numbers: [...plan.numbers, ['extraBatch', extra.batch], ['extraRows', extra.rows]],
        arrays: [
          ...plan.arrays,
          { slot: 'extraKey', name: 'extraKey.data', data: extra.key.data, length: extra.key.length },
          { slot: 'extraValue', name: 'extraValue.data', data: extra.value.data, length: extra.value.length },
        ],
      };

export const LAYOUTS = ['BHLD', 'BLHD'] as const satisfies readonly HeadsLayout[];

function reserve(
  core: Core,
  { queryLength, keyLength, headDim, vHeadDim }: AttentionGeometry,
  extraKeys: number,
): void {
  core.check(CALL, core.alive(CALL).reserveAttention(queryLength, keyLength, headDim, vHeadDim, extraKeys));
}

export function axes(shape: readonly number[], layout: HeadsLayout): Axes {
  const [b, x, y, width] = [...Array<number>(4 - shape.length).fill(1), ...shape] as [number, number, number, number];
  // Rank 2 has no head axis in either layout.
  if (layout === 'BHLD' || shape.length === 2) return { batch: b, heads: x, length: y, width };
  return { batch: b, heads: y, length: x, width };
}

const shapeError = (
  call: string,
  argument: string,
  shape: readonly number[],
  wanted: string,
  wayOut: string,
): HeadwiseRangeError => rangeError({ call, argument, got: showShape(shape), wanted, wayOut }, 'wrong-shape');

/** Sizes of a call, when all shapes fit. */
export function checkInputs(
  call: string,
  query: TensorInput,
  key: TensorInput,
  value: TensorInput,
  layout: HeadsLayout,
): AttentionGeometry {
  const rank = query.shape.length;
  const letters = layout.split('').join(', ');
  const named = `[${letters}] (layout '${layout}')`;
  if (rank < 2 || rank > 4) {
    const wanted = `${named}, the same without B, or [L, D] for one head`;
    throw shapeError(call, 'query.shape', query.shape, wanted, 'add or drop axes of size 1');
  }
  for (const [name, { shape }] of [['key', key] as const, ['value', value] as const]) {
    if (shape.length === rank) continue;
    const wanted = `of rank ${rank}, as query.shape ${showShape(query.shape)}`;
    throw shapeError(call, `${name}.shape`, shape, wanted, 'give all three the same axes');
  }
  const [q, k, v] = [axes(query.shape, layout), axes(key.shape, layout), axes(value.shape, layout)];
  const swapped = "or the other layout ('BHLD' is heads before positions)";
  for (const [name, a, tensor] of [
    ['query', q, query],
    ['key', k, key],
    ['value', v, value],
  ] as const) {
    if (a.heads > 0 && a.width > 0) continue;
    const wanted = `of at least one head and a head size of at least 1 in ${named}`;
    throw shapeError(call, `${name}.shape`, tensor.shape, wanted, 'only B, L and S may be 0');
  }
  const expect = (name: string, shape: readonly number[], got: number, want: number, what: string): void => {
    if (got === want) return;
    throw shapeError(call, `${name}.shape`, shape, `of ${what} ${want}, in ${named}`, `correct the shape, ${swapped}`);
  };
  const asQuery = `as query.shape ${showShape(query.shape)}, namely`;
  expect('key', key.shape, k.batch, q.batch, `the batch size ${asQuery}`);
  expect('value', value.shape, v.batch, q.batch, `the batch size ${asQuery}`);
  expect('key', key.shape, k.width, q.width, `the head size D ${asQuery}`);
  expect('value', value.shape, v.heads, k.heads, `the heads of key.shape ${showShape(key.shape)}, namely`);
  expect('value', value.shape, v.length, k.length, `the length of key.shape ${showShape(key.shape)}, namely`);
  if (q.heads % k.heads !== 0) {
    const wanted = `of a number of heads that divides the query's ${q.heads}, in ${named}`;
    throw shapeError(call, 'key.shape', key.shape, wanted, `correct the shape, ${swapped}`);
  }
  return geometryOf(q, k, v, rank, layout);
}

function geometryOf(q: Axes, k: Axes, v: Axes, rank: number, layout: HeadsLayout): AttentionGeometry {
  const strides = ({ heads, length, width }: Axes): Strides =>
    layout === 'BHLD'
      ? { batch: heads * length * width, head: length * width, row: width }
      : { batch: heads * length * width, head: width, row: heads * width };
  const size = ({ batch, heads, length, width }: Axes): number => batch * heads * length * width;
  const output = { ...q, width: v.width };
  const b = rank === 4 ? [q.batch] : [];
  const h = rank >= 3 ? [q.heads] : [];
  return {
    batch: q.batch,
    numHeads: q.heads,
    numKvHeads: k.heads,
    queryLength: q.length,
    keyLength: k.length,
    headDim: q.width,
    vHeadDim: v.width,
    querySize: size(q),
    keySize: size(k),
    valueSize: size(v),
    outputSize: size(output),
    queryStrides: strides(q),
    keyStrides: strides(k),
    valueStrides: strides(v),
    outputStrides: strides(output),
    outputShape: layout === 'BHLD' ? [...b, ...h, q.length, v.width] : [...b, q.length, ...h, v.width],
    averagedShape: [...b, q.length, k.length],
    perHeadShape: [...b, ...h, q.length, k.length],
    lseShape: [...b, ...h, q.length],
  };
}
