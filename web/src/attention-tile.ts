// Parts of the weights or scores of a call, computed anew from queries, keys and the saved log-sum-exp: memory for
// what is asked, however long the sequences are.
import { checkChoice, checkOptions, checkWhole } from './arguments.js';
import { AttentionCall, type AttentionGeometry } from './attention-call.js';
import type { AttentionPlan } from './call-plan.js';
import type { Core } from './core.js';
import { describe, showShape } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { type CallDefaults, type ForwardOptions, PLAIN, SCORE_NAMES, planOptions } from './forward-options.js';
import { lengthOf } from './packed-options.js';
import { TILE_SLOTS, type TileSlot } from './raw.js';
import { type Runtime, coreFor } from './runtime.js';
import { type HeadsLayout, LAYOUTS, checkInputs, scaledDotProductAttention } from './scaled-dot-product-attention.js';
import { type Tensor, type TensorInput, readTensor } from './tensor.js';
import { checkedView } from './typed-arrays.js';

/** 'weights', or scores: 'raw', 'capped' or 'biased', as needScores has them. */
export type TileKind = 'weights' | 'raw' | 'capped' | 'biased';
/** [begin, end): end is the first one left out. */
export type Range = readonly [begin: number, end: number];

/** Options of the call whose weights are looked at: what shapes scores, and what hides keys. */
export interface ScoreOptions extends Pick<ForwardOptions, (typeof SCORE_NAMES)[number]> {
  /** What that call returned with returnLse. Left away, it is computed; with extra keys it must be given. */
  readonly lse?: Tensor | undefined;
  /** Of query and key. Default 'BHLD'. */
  readonly layout?: HeadsLayout | undefined;
  /** Default: the first one that was loaded and is alive. */
  readonly runtime?: Runtime | undefined;
}

export const SCORE_OPTION_NAMES = [...SCORE_NAMES, 'lse', 'layout', 'runtime'] as const;
// emptyRows is of weights only, so it is no option of what is said about heads as a whole.
const PLAN_NAMES = [...SCORE_NAMES, 'emptyRows'] as const;
/** Those of the attention call itself. */
export const pickScoreOptions = (o: Partial<AttentionTileOptions>): ForwardOptions =>
  Object.fromEntries(PLAN_NAMES.map((name) => [name, o[name]]));
const PLANNED: ReadonlySet<string> = new Set(PLAN_NAMES);

export interface AttentionTileOptions extends ScoreOptions, Pick<ForwardOptions, 'emptyRows'> {
  /** Default 'weights'. */
  readonly kind?: TileKind | undefined;
  /** Entry of the batch. Default 0. */
  readonly batch?: number | undefined;
  /** Default 0. */
  readonly head?: number | undefined;
  /** Default all. */
  readonly rows?: Range | undefined;
  /** Default all. */
  readonly keys?: Range | undefined;
}

export const KINDS = ['weights', 'raw', 'capped', 'biased'] as const satisfies readonly TileKind[];
const CALL = 'attentionTile()';
const KNOWN: ReadonlySet<string> = new Set([
  ...SCORE_OPTION_NAMES,
  'emptyRows',
  'kind',
  'batch',
  'head',
  'rows',
  'keys',
] satisfies (keyof AttentionTileOptions)[]);

/** A source of tiles: one call's queries, keys and options. */
export interface Tiles {
  readonly geometry: AttentionGeometry;
  /** Where row i of entry b stands, and its sequence begins, as columns. */
  place(b: number, i: number): { readonly own: number; readonly first: number };
  /** Runs f with a reader whose arrays, [rows, keys], last until its next call. No other call of the package inside. */
  read(kind: TileKind, largest: number, f: (tile: TileReader) => void): void;
}
export type TileReader = (b: number, head: number, rows: Range, keys: Range) => Float32Array;

export function checkRange(call: string, argument: string, value: unknown, length: number): Range {
  if (value === undefined) return [0, length];
  if (!Array.isArray(value) || value.length !== 2) {
    const wanted = '[begin, end], where end is the first one left out';
    throw typeError({ call, argument, got: describe(value), wanted, wayOut: `give [0, ${length}] for all` });
  }
  const end = checkWhole(call, `${argument}[1]`, value[1], { least: 0, most: length });
  return [checkWhole(call, `${argument}[0]`, value[0], { least: 0, most: end }), end];
}

/** What a layer knows of its heads' call. */
export interface TileLayer {
  readonly core: Core;
  readonly defaults: CallDefaults;
  /** Computes what forward() returns with returnLse. */
  lse(): Tensor;
}

/** All checks of the inputs; nothing is computed yet. `o` may hold more than ScoreOptions. */
export function openTiles(
  call: string,
  query: Tensor,
  key: Tensor,
  o: Partial<AttentionTileOptions>,
  layer?: TileLayer,
): Tiles {
  const queries = readTensor(call, 'query', query);
  const keys = key === query ? queries : readTensor(call, 'key', key);
  const layout = o.layout === undefined ? 'BHLD' : checkChoice(call, 'layout', o.layout, LAYOUTS);
  const full = checkInputs(call, queries, keys, keys, layout);
  // No values take part, and there is no output.
  const geometry = { ...full, valueSize: 0, outputSize: 0 };
  const batched = queries.shape.length === 4;
  const options = pickScoreOptions(o);
  const sizes = { ...geometry, batched };
  const context = { known: PLANNED, defaults: layer?.defaults ?? PLAIN };
  // The heads have turned.
  const plan = { ...planOptions(call, options, sizes, geometry, context), rope: undefined };
  const given = o.lse === undefined ? undefined : checkLse(call, o.lse, geometry.lseShape);
  const core = layer?.core ?? coreFor(call, o.runtime);
  const lse = (): TensorInput => {
    if (given !== undefined) return given;
    if (layer !== undefined) return readTensor(call, 'lse', layer.lse());
    // Values of width 1: the output costs no more than the lse itself.
    const shape = [...keys.shape.slice(0, -1), 1];
    const value = { data: new Float32Array(keys.length / geometry.headDim), shape };
    const { runtime } = o;
    const result = scaledDotProductAttention(queries, keys, value, { ...options, layout, runtime, returnLse: true });
    const { data, shape: lseShape } = result.lse as Tensor;
    return { data, length: data.length, shape: lseShape };
  };
  return {
    geometry,
    place: (b, i) => placeOf(plan, geometry, b, i),
    read(kind, largest, f) {
      const saved = kind === 'weights' ? lse() : NOTHING;
      readTiles(call, core, geometry, plan, { query: queries, key: keys, kind, saved, largest }, f);
    },
  };
}

const NOTHING: TensorInput = { data: new Float32Array(0), length: 0, shape: [0] };

function checkLse(call: string, value: unknown, wanted: readonly number[]): TensorInput {
  const lse = readTensor(call, 'lse', value);
  if (showShape(lse.shape) === showShape(wanted)) return lse;
  const wayOut = 'give what the call returned with returnLse: true';
  const complaint = { call, argument: 'lse.shape', got: showShape(lse.shape), wanted: showShape(wanted), wayOut };
  throw rangeError(complaint, 'wrong-shape');
}

function placeOf(
  { numbers, arrays }: AttentionPlan,
  g: AttentionGeometry,
  b: number,
  i: number,
): { own: number; first: number } {
  const list = (slot: string): Int32Array | undefined =>
    arrays.find((array) => array.slot === slot)?.data as Int32Array | undefined;
  const queries = list('cumulativeQueryLengths');
  const keys = list('cumulativeKeyLengths') ?? Int32Array.of(0, g.keyLength);
  const n = queries === undefined ? b : sequenceOf(queries, i);
  const [queryStart, first] = queries === undefined ? [0, 0] : [queries[n] as number, keys[n] as number];
  const queryLength = queries === undefined ? g.queryLength : lengthOf(queries, n);
  const keyLength = queries === undefined ? g.keyLength : lengthOf(keys, n);
  const at = (slot: string, otherwise: number): number => list(slot)?.[n] ?? otherwise;
  const causalEnd = numbers.some(([slot, x]) => slot === 'causal' && x === 2);
  const offset = causalEnd ? at('keyLengths', keyLength) - at('queryLengths', queryLength) : at('queryOffsets', 0);
  return { own: first + offset + i - queryStart, first };
}

/** The packed sequence of row i. */
function sequenceOf(cumulative: Int32Array, i: number): number {
  let n = 0;
  while ((cumulative[n + 1] as number) <= i) n += 1;
  return n;
}

interface Source {
  readonly query: TensorInput;
  readonly key: TensorInput;
  readonly kind: TileKind;
  readonly saved: TensorInput;
  readonly largest: number;
}

function readTiles(
  call: string,
  core: Core,
  geometry: AttentionGeometry,
  plan: AttentionPlan,
  { query, key, kind, saved, largest }: Source,
  f: (tile: TileReader) => void,
): void {
  const attention = new AttentionCall(core, call, geometry, plan);
  const lseBytes = Math.ceil(saved.length / 16) * 64;
  const sizes = (): string => `a tile of ${largest} numbers and ${saved.length} of lse`;
  core.withTemporary(call, lseBytes + 4 * largest, sizes, (offset) => {
    attention.prepare(key === query, 'key', () => undefined);
    attention.writeInputs(query, key, key);
    const raw = core.alive(call);
    raw.HEAPF32.set(checkedView(call, 'lse.data', Float32Array, saved.data, saved.length), offset / 4);
    const at = (offset + lseBytes) / 4;
    f((b, head, rows, keys) => {
      const size = (rows[1] - rows[0]) * (keys[1] - keys[0]);
      const values: Record<TileSlot, number> = {
        kind: KINDS.indexOf(kind),
        batchEntry: b,
        head,
        rowBegin: rows[0],
        rowEnd: rows[1],
        keyBegin: keys[0],
        keyEnd: keys[1],
        savedLse: kind === 'weights' ? offset : 0,
        tile: 4 * at,
      };
      const f64 = raw.HEAPF64;
      TILE_SLOTS.forEach((slot, i) => {
        f64[core.sideSlots + i] = values[slot];
      });
      if (size > 0)
        core.check(
          call,
          attention.running(() => raw.attentionTile(core.block, core.sideBlock)),
        );
      return raw.HEAPF32.subarray(at, at + size);
    });
  });
}

/**
 * One head's weights or scores, [rows, keys]: any part of what needWeights: 'perHead' or needScores would give.
 * query [B, H, L, D], key [B, Hkv, S, D], and the options of the call that is looked at.
 */
export function attentionTile(query: Tensor, key: Tensor, options?: AttentionTileOptions): Tensor {
  const o = checkOptions<AttentionTileOptions>(CALL, options, KNOWN);
  const kind = o.kind === undefined ? 'weights' : checkChoice(CALL, 'kind', o.kind, KINDS);
  const tiles = openTiles(CALL, query, key, o);
  const { batch, numHeads, queryLength, keyLength } = tiles.geometry;
  const index = (name: 'batch' | 'head', count: number): number =>
    o[name] === undefined ? 0 : checkWhole(CALL, name, o[name], { least: 0, most: count - 1 });
  const b = index('batch', batch);
  const head = index('head', numHeads);
  const rows = checkRange(CALL, 'rows', o.rows, queryLength);
  const keys = checkRange(CALL, 'keys', o.keys, keyLength);
  const shape = [rows[1] - rows[0], keys[1] - keys[0]] as const;
  let data = new Float32Array(shape[0] * shape[1]);
  if (data.length > 0 && batch > 0) {
    tiles.read(kind, data.length, (tile) => {
      data = tile(b, head, rows, keys).slice();
    });
  }
  return { data, shape };
}
