// What a call with a cache must not say, because the cache says it, or because a rolling cache no longer knows it.
import { typeError } from './errors.js';
import type { ForwardOptions } from './forward-options.js';
import type { Window } from './score-options.js';

/** Of the cache a call reads. */
export interface CacheFacts {
  /** Tokens a rolling cache keeps, the query's own included; 0: it drops nothing. */
  readonly window: number;
  /** Where query 0 of entry b stands, when `count` of its queries are tokens. */
  position(b: number, count: number): number;
}

/** Queries that a rolling cache serves at once: it drops what older ones would see. */
export const MAX_ROLLING_QUERIES = 64;

const OWN = ['keyLengths', 'queryOffset'] as const;
const BY_COLUMN = [
  'attendMask',
  'attnBias',
  'blockMask',
  'maskMod',
  'prefixLengths',
  'needWeights',
  'needScores',
] as const;

export function checkCacheConflicts(
  call: string,
  cache: CacheFacts,
  o: Partial<ForwardOptions>,
  window: Window | undefined,
): void {
  const refuse = (argument: string, got: string, wanted: string, wayOut: string): never => {
    throw typeError({ call, argument, got, wanted, wayOut }, 'conflict');
  };
  for (const name of OWN) {
    if (o[name] !== undefined) refuse(name, 'given with a cache', 'left away', 'the cache knows it');
  }
  for (const name of ['cumulativeQueryLengths', 'cumulativeKeyLengths'] as const) {
    if (o[name] === undefined) continue;
    const wayOut = 'a cache has an entry for each sequence: give a batch with queryLengths';
    refuse(name, 'given with a cache', 'left away', wayOut);
  }
  if (o.keyPaddingMask !== undefined) {
    refuse('keyPaddingMask', 'given with a cache', 'left away', 'padding is never stored: give queryLengths');
  }
  if (cache.window === 0) return;
  for (const name of BY_COLUMN) {
    if (o[name] === undefined || o[name] === false) continue;
    const wayOut = 'dropped tokens have no column: use a cache with a capacity instead of a window';
    refuse(name, 'given with a rolling cache', 'left away', wayOut);
  }
  if (window !== undefined && window[0] !== -1 && window[0] + 1 !== cache.window) {
    refuse(
      'window',
      `[${window.join(', ')}] with a rolling cache of window ${cache.window}`,
      `[${cache.window - 1}, ${window[1]}], or left away`,
      'the left side does not count the query itself, the window of a cache does',
    );
  }
}
