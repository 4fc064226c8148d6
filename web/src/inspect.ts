// Looking into attention: parts of the weights or scores, and sums over them, streamed by tiles so that no matrix of
// L x S exists unless it is asked for.
import { checkBoolean, checkChoice, checkOptions, checkWhole } from './arguments.js';
import {
  KINDS,
  type Range,
  SCORE_OPTION_NAMES,
  type ScoreOptions,
  type TileKind,
  type TileReader,
  type Tiles,
  checkRange,
  openTiles,
} from './attention-tile.js';
import { describe } from './describe.js';
import { typeError } from './errors.js';
import type { ForwardOptions } from './forward-options.js';
import { naturalLog } from './portable-math.js';
import { type Tensor, product } from './tensor.js';

export interface InspectOptions extends ScoreOptions, Pick<ForwardOptions, 'emptyRows'> {
  /** What is looked at. Default 'weights'. */
  readonly kind?: TileKind | undefined;
  /** Query heads, in the order of the results. Default all. */
  readonly heads?: readonly number[] | undefined;
  /** Queries, [begin, end). Default all. */
  readonly rows?: Range | undefined;
  /** Keys, [begin, end). Default all. */
  readonly keys?: Range | undefined;
  /** Return the numbers themselves. Default: only when nothing else is asked for. */
  readonly values?: boolean | undefined;
  /** Return the largest ones of each row, this many. */
  readonly topK?: number | undefined;
  /** Return -Σ p ln p of each row. For weights. */
  readonly entropy?: boolean | undefined;
  /** Return the mean of each block of [rows, keys]. */
  readonly pooled?: readonly [rows: number, keys: number] | undefined;
}

/** B is absent when the query is unbatched; h heads, r rows and c keys as asked. */
export interface InspectResult {
  /** [B, h, r, c]. */
  readonly values?: Tensor;
  /** [B, h, r, topK], the largest first; key -1 and value 0 (scores: -Infinity) where fewer are seen. */
  readonly topK?: { readonly keys: Int32Array; readonly values: Float32Array; readonly shape: readonly number[] };
  /** [B, h, r]. */
  readonly entropy?: Tensor;
  /** [B, h, ⌈r / rows⌉, ⌈c / keys⌉]. */
  readonly pooled?: Tensor;
}

const CALL = 'inspect()';
export const INSPECT_OPTION_NAMES = [
  ...SCORE_OPTION_NAMES,
  'emptyRows',
  'kind',
  'heads',
  'rows',
  'keys',
  'values',
  'topK',
  'entropy',
  'pooled',
] as const satisfies readonly (keyof InspectOptions)[];
const KNOWN: ReadonlySet<string> = new Set(INSPECT_OPTION_NAMES);
/** Numbers of a tile: a quarter of a megabyte. */
const TILE = 65536;
const MOST_ROWS = 64;

/** Any part of what a call attended to, at the cost of memory for what is asked. */
export function inspect(query: Tensor, key: Tensor, options?: InspectOptions): InspectResult {
  const o = checkOptions<InspectOptions>(CALL, options, KNOWN);
  return inspectTiles(CALL, o, () => openTiles(CALL, query, key, o));
}

export function inspectTiles(call: string, o: Partial<InspectOptions>, open: () => Tiles): InspectResult {
  const kind = o.kind === undefined ? 'weights' : checkChoice(call, 'kind', o.kind, KINDS);
  const tiles = open();
  const { batch, numHeads, queryLength, keyLength, lseShape } = tiles.geometry;
  const heads = o.heads === undefined ? upTo(numHeads) : checkHeads(call, o.heads, numHeads);
  const rows = checkRange(call, 'rows', o.rows, queryLength);
  const keys = checkRange(call, 'keys', o.keys, keyLength);
  const topK = o.topK === undefined ? 0 : checkWhole(call, 'topK', o.topK, { most: Math.max(1, keyLength) });
  const entropy = o.entropy !== undefined && checkBoolean(call, 'entropy', o.entropy);
  if (entropy && kind !== 'weights') {
    const got = `asked for with kind '${kind}'`;
    const complaint = { call, argument: 'entropy', got, wanted: "asked for with kind 'weights'" };
    throw typeError({ ...complaint, wayOut: 'scores are no probabilities' }, 'conflict');
  }
  const block = o.pooled === undefined ? undefined : checkBlock(call, o.pooled);
  const nothingElse = topK === 0 && !entropy && block === undefined;
  const values = o.values === undefined ? nothingElse : checkBoolean(call, 'values', o.values);

  const [r, c] = [rows[1] - rows[0], keys[1] - keys[0]];
  // Leading axes as those of the lse, with the heads that are asked for.
  const lead = lseShape.length === 3 ? [batch, heads.length] : lseShape.length === 2 ? [heads.length] : [];
  const make = (...shape: number[]): Tensor => {
    const full = [...lead, ...shape];
    return { data: new Float32Array(batch * heads.length * product(shape)), shape: full };
  };
  const result: { -readonly [Name in keyof InspectResult]: InspectResult[Name] } = {};
  if (values) result.values = make(r, c);
  if (entropy) result.entropy = make(r);
  if (topK > 0) {
    const { data, shape } = make(r, topK);
    data.fill(kind === 'weights' ? 0 : -Infinity);
    result.topK = { keys: new Int32Array(data.length).fill(-1), values: data, shape };
  }
  const blocks = block && ([Math.ceil(r / block[0]), Math.ceil(c / block[1])] as const);
  if (blocks) result.pooled = make(...blocks);
  if (batch * heads.length * r * c === 0) return result;

  const sums = new Float64Array(result.pooled?.data.length ?? 0);
  const least = kind === 'weights' ? 0 : -Infinity;
  const visit = (group: number, tile: Float32Array, [r0, r1]: Range, [k0, k1]: Range): void => {
    const width = k1 - k0;
    for (let i = r0; i < r1; ++i) {
      const row = tile.subarray((i - r0) * width, (i - r0 + 1) * width);
      const at = group * r + i - rows[0];
      result.values?.data.set(row, at * c + k0 - keys[0]);
      if (result.entropy) (result.entropy.data[at] as number) += entropyOf(row);
      if (result.topK) keepLargest(result.topK, at, topK, row, k0, least);
      if (block && blocks) {
        const first = (group * blocks[0] + Math.floor((i - rows[0]) / block[0])) * blocks[1];
        for (let j = 0; j < width; ++j) {
          const slot = first + Math.floor((k0 + j - keys[0]) / block[1]);
          sums[slot] = (sums[slot] as number) + (row[j] as number);
        }
      }
    }
  };
  stream(tiles.read, kind, upTo(batch), heads, rows, keys, visit);
  if (result.pooled && block && blocks) {
    const { data } = result.pooled;
    for (let i = 0; i < data.length; ++i) {
      const [y, x] = [Math.floor(i / blocks[1]) % blocks[0], i % blocks[1]];
      const count = Math.min(block[0], r - y * block[0]) * Math.min(block[1], c - x * block[1]);
      data[i] = (sums[i] as number) / count;
    }
  }
  return result;
}

const upTo = (n: number): number[] => Array.from({ length: n }, (_, i) => i);

/** Calls visit with every tile; `group` counts entries and heads as the results do. */
function stream(
  read: (kind: TileKind, largest: number, f: (tile: TileReader) => void) => void,
  kind: TileKind,
  entries: readonly number[],
  heads: readonly number[],
  rows: Range,
  keys: Range,
  visit: (group: number, tile: Float32Array, rows: Range, keys: Range) => void,
): void {
  const width = Math.min(keys[1] - keys[0], TILE);
  const height = Math.max(1, Math.min(MOST_ROWS, Math.floor(TILE / Math.max(1, width))));
  read(kind, width * height, (tile) => {
    entries.forEach((b, entry) => {
      heads.forEach((head, h) => {
        for (let r0 = rows[0]; r0 < rows[1]; r0 += height) {
          const part: Range = [r0, Math.min(r0 + height, rows[1])];
          for (let k0 = keys[0]; k0 < keys[1]; k0 += width) {
            const columns: Range = [k0, Math.min(k0 + width, keys[1])];
            visit(entry * heads.length + h, tile(b, head, part, columns), part, columns);
          }
        }
      });
    });
  });
}

function entropyOf(row: Float32Array): number {
  let sum = 0;
  for (const p of row) if (p !== 0) sum -= p * naturalLog(p);
  return sum;
}

/** Puts what is larger into its place among the k of row `at`; of equal ones the first key wins. */
function keepLargest(
  { keys, values }: NonNullable<InspectResult['topK']>,
  at: number,
  k: number,
  row: Float32Array,
  firstKey: number,
  least: number,
): void {
  const begin = at * k;
  const last = begin + k - 1;
  row.forEach((x, j) => {
    if (!(x > least) || !(x > (values[last] as number) || keys[last] === -1)) return;
    let place = last;
    while (place > begin && (keys[place - 1] === -1 || x > (values[place - 1] as number))) {
      values[place] = values[place - 1] as number;
      keys[place] = keys[place - 1] as number;
      --place;
    }
    values[place] = x;
    keys[place] = firstKey + j;
  });
}

function checkHeads(call: string, value: unknown, numHeads: number): number[] {
  if (!Array.isArray(value)) {
    const wayOut = 'give [3] for one head';
    throw typeError({ call, argument: 'heads', got: describe(value), wanted: 'an Array of heads', wayOut });
  }
  const most = numHeads - 1;
  // Not map(), which leaves holes.
  return Array.from(value, (head: unknown, i) => checkWhole(call, `heads[${i}]`, head, { least: 0, most }));
}

function checkBlock(call: string, value: unknown): readonly [number, number] {
  if (!Array.isArray(value) || value.length !== 2) {
    const wanted = '[rows, keys], the size of a block';
    throw typeError({ call, argument: 'pooled', got: describe(value), wanted, wayOut: 'give [64, 64], say' });
  }
  return [checkWhole(call, 'pooled[0]', value[0]), checkWhole(call, 'pooled[1]', value[1])];
}

/** Each [B, H]; [H] when unbatched. Means over the queries that see a key. */
export interface HeadStatistics {
  /** Of the weights of a row, -Σ p ln p. */
  readonly entropy: Tensor;
  /** Weight of the key one position before the query, of the one behind it, and of its own. */
  readonly previous: Tensor;
  readonly next: Tensor;
  readonly self: Tensor;
  /** Weight of the sequence's first key. */
  readonly first: Tensor;
}

const STATISTICS = 'headStatistics()';
const STATISTICS_NAMES: ReadonlySet<string> = new Set(SCORE_OPTION_NAMES);

/** What each head tends to look at. query and key as in inspect(); positions are those of the options. */
export function headStatistics(query: Tensor, key: Tensor, options?: ScoreOptions): HeadStatistics {
  const o = checkOptions<ScoreOptions>(STATISTICS, options, STATISTICS_NAMES);
  return statisticsOf(openTiles(STATISTICS, query, key, o));
}

export function statisticsOf(tiles: Tiles): HeadStatistics {
  const { batch, numHeads, queryLength, keyLength, lseShape } = tiles.geometry;
  const names = ['entropy', 'previous', 'next', 'self', 'first'] as const;
  const groups = batch * numHeads;
  const sums = names.map(() => new Float64Array(groups));
  const seen = new Float64Array(groups);
  if (groups * queryLength * keyLength > 0) {
    // A row is seen in one tile or several: what counts is whether any weight of it is not 0.
    const any = new Uint8Array(groups * queryLength);
    const visit = (group: number, tile: Float32Array, [r0, r1]: Range, [k0, k1]: Range): void => {
      const width = k1 - k0;
      for (let i = r0; i < r1; ++i) {
        const row = tile.subarray((i - r0) * width, (i - r0 + 1) * width);
        const weight = (j: number): number => (j >= k0 && j < k1 ? (row[j - k0] as number) : 0);
        const { own, first } = tiles.place(Math.floor(group / numHeads), i);
        [entropyOf(row), weight(own - 1), weight(own + 1), weight(own), weight(first)].forEach((x, n) => {
          (sums[n] as Float64Array)[group] = ((sums[n] as Float64Array)[group] as number) + x;
        });
        if (any[group * queryLength + i] === 0 && row.some((x) => x !== 0)) {
          any[group * queryLength + i] = 1;
          seen[group] = (seen[group] as number) + 1;
        }
      }
    };
    stream(tiles.read, 'weights', upTo(batch), upTo(numHeads), [0, queryLength], [0, keyLength], visit);
  }
  const shape = lseShape.slice(0, -1);
  const of = (n: number): Tensor => {
    const data = Float32Array.from(sums[n] as Float64Array, (sum, i) => (seen[i] ? sum / (seen[i] as number) : 0));
    return { data, shape };
  };
  return { entropy: of(0), previous: of(1), next: of(2), self: of(3), first: of(4) };
}
