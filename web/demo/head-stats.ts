// What a head measurably does with the typed sentence. Nothing here is known in advance: every number is computed from
// the maps on the screen.
import type { AttentionMaps } from './protocol.js';

/** The map of one head: `data[query * length + key]`. */
export interface HeadMap {
  readonly data: Float32Array;
  readonly length: number;
}

export const RELATIONS = ['previous', 'next', 'near', 'itself', 'ends'] as const;
export type Relation = (typeof RELATIONS)[number];

export const RELATION_NAMES: Readonly<Record<Relation, string>> = {
  previous: 'previous word',
  next: 'next word',
  near: '2 or 3 words away',
  itself: 'itself',
  ends: '[CLS] or [SEP]',
};

export type RelationShares = Readonly<Record<Relation, number>>;

export function headMap(maps: AttentionMaps, layer: number, head: number): HeadMap {
  const size = maps.length * maps.length;
  const start = (layer * maps.heads + head) * size;
  return { data: maps.data.subarray(start, start + size), length: maps.length };
}

export function averageMap(maps: AttentionMaps): HeadMap {
  const size = maps.length * maps.length;
  const count = maps.layers * maps.heads;
  const sums = new Float64Array(size);
  for (let i = 0; i < maps.data.length; ++i) sums[i % size] = sums[i % size]! + maps.data[i]!;
  return { data: Float32Array.from(sums, (sum) => sum / count), length: maps.length };
}

export const row = (map: HeadMap, query: number): Float32Array =>
  map.data.subarray(query * map.length, (query + 1) * map.length);

export function strongest(shares: Float32Array): number {
  let best = 0;
  for (let key = 1; key < shares.length; ++key) if (shares[key]! > shares[best]!) best = key;
  return best;
}

/** All keys, the strongest first. */
export const inOrder = (shares: Float32Array): number[] => [...shares.keys()].sort((a, b) => shares[b]! - shares[a]!);

/**
 * Mean share that the sentence's own pieces give to each relation. The first and the last piece, [CLS] and [SEP], ask
 * nothing here, and they are nobody's neighbour: what falls on them is counted under `ends`. A relation that does not
 * occur (a neighbour in a sentence of one piece) has share 0.
 */
export function relationShares(map: HeadMap): RelationShares {
  const last = map.length - 1;
  const sums = { previous: 0, next: 0, near: 0, itself: 0, ends: 0 };
  for (let query = 1; query < last; ++query) {
    const shares = row(map, query);
    sums.itself += shares[query]!;
    sums.ends += shares[0]! + shares[last]!;
    for (const distance of [-3, -2, 2, 3]) {
      const key = query + distance;
      if (key > 0 && key < last) sums.near += shares[key]!;
    }
    if (query > 1) sums.previous += shares[query - 1]!;
    if (query < last - 1) sums.next += shares[query + 1]!;
  }
  const words = Math.max(1, last - 1);
  const neighbours = Math.max(1, last - 2);
  return {
    previous: sums.previous / neighbours,
    next: sums.next / neighbours,
    near: sums.near / words,
    itself: sums.itself / words,
    ends: sums.ends / words,
  };
}

function entropyBits(shares: ArrayLike<number>): number {
  let bits = 0;
  for (let i = 0; i < shares.length; ++i) if (shares[i]! > 0) bits -= shares[i]! * Math.log2(shares[i]!);
  return bits;
}

/** How evenly the head spreads: mean entropy of its rows, 0 for one word each, 1 for all words alike. */
export function spread(map: HeadMap): number {
  let bits = 0;
  for (let query = 0; query < map.length; ++query) bits += entropyBits(row(map, query));
  return bits / map.length / Math.log2(map.length);
}

export interface Comparison {
  /** How many different pieces are some head's strongest, seen from the asking piece. */
  readonly targets: readonly number[];
  /** The strongest piece in the average of all heads, and its share. */
  readonly averageTarget: number;
  readonly averageShare: number;
  /** Jensen–Shannon divergence of all heads, mean over rows, in bits; 0 when all heads are alike. */
  readonly differenceBits: number;
  readonly mostBits: number;
}

/** What averaging all heads hides, seen from the asking piece and over the whole sentence. */
export function compareHeads(maps: AttentionMaps, average: HeadMap, query: number): Comparison {
  const count = maps.layers * maps.heads;
  const targets = new Set<number>();
  let bits = 0;
  for (let line = 0; line < maps.length; ++line) bits += entropyBits(row(average, line));
  for (let i = 0; i < count; ++i) {
    const map = headMap(maps, 0, i);
    targets.add(strongest(row(map, query)));
    for (let line = 0; line < maps.length; ++line) bits -= entropyBits(row(map, line)) / count;
  }
  const averageRow = row(average, query);
  const averageTarget = strongest(averageRow);
  return {
    targets: [...targets].sort((a, b) => a - b),
    averageTarget,
    averageShare: averageRow[averageTarget]!,
    differenceBits: Math.max(0, bits / maps.length),
    mostBits: Math.log2(count),
  };
}
