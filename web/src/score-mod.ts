// Functions of the caller that change scores on their way through the core, tile by tile.
import { ignoreRejection } from './callbacks.js';
import { describe } from './describe.js';
import { typeError } from './errors.js';
import type { RawModule } from './raw.js';

/**
 * Some scores of one head: the score of query row + r, at queryPosition + r, and the key at keyPosition + c is
 * scores[r · stride + c].
 */
export interface ScoreTile {
  /** Entry of the batch, or number of the packed sequence. */
  readonly batch: number;
  readonly head: number;
  /** Index of the first query. */
  readonly row: number;
  readonly queryPosition: number;
  readonly keyPosition: number;
  readonly rows: number;
  readonly keys: number;
  readonly stride: number;
  /** WASM memory, alive until the function returns. */
  readonly scores: Float32Array;
}

/**
 * Changes a tile in place. Tiles come in any order and size, hidden keys among them, and the same scores more than once
 * where weights or scores are asked for. Not for another thread or worker: functions do not travel.
 */
export type ScoreMod = (tile: ScoreTile) => void;

/** A ScoreMod from a function of one score, as FlexAttention's score_mod: convenient, and slower. */
export function perScore(
  f: (score: number, batch: number, head: number, queryPosition: number, keyPosition: number) => number,
): ScoreMod {
  if (typeof f !== 'function') throw notAFunction('perScore()', 'f', f, '(score, b, h, i, j) => score');
  return ({ batch, head, queryPosition, keyPosition, rows, keys, stride, scores }) => {
    for (let r = 0; r < rows; ++r) {
      for (let c = 0; c < keys; ++c) {
        const at = r * stride + c;
        const got: unknown = f(scores[at] as number, batch, head, queryPosition + r, keyPosition + c);
        // What is no number would become one, mostly NaN.
        if (typeof got !== 'number') {
          ignoreRejection(got);
          throw notANumber(got);
        }
        scores[at] = got;
      }
    }
  };
}

const notANumber = (got: unknown): TypeError =>
  typeError({
    call: 'perScore()',
    argument: 'f',
    got: `a function that returns ${describe(got)}`,
    wanted: 'one that returns a number, the new score',
    wayOut: '-Infinity hides the key; what is async cannot take part',
  });

export const notAFunction = (call: string, argument: string, value: unknown, example: string): TypeError =>
  typeError({ call, argument, got: describe(value), wanted: 'a function', wayOut: `give ${example}` });

export function checkScoreMod(call: string, value: unknown): ScoreMod {
  if (typeof value !== 'function') {
    throw notAFunction(call, 'scoreMod', value, '(tile) => { … }, or perScore((score, b, h, i, j) => …)');
  }
  return value as ScoreMod;
}

/** Runs the core with `mod` as the function behind the block's scoreMod slot. */
export function withScoreMod<R>(call: string, raw: RawModule, mod: ScoreMod | undefined, run: () => R): R {
  if (mod === undefined) return run();
  // An exception must not pass through the core, whose stack would stay where it is: it waits here for its end.
  let failed = false;
  let failure: unknown;
  raw.scoreTile = (batch, head, row, queryPosition, keyPosition, rows, keys, offset, stride): void => {
    if (failed) return;
    const from = offset / 4;
    const scores = raw.HEAPF32.subarray(from, from + (rows - 1) * stride + keys);
    try {
      const got: unknown = mod({ batch, head, row, queryPosition, keyPosition, rows, keys, stride, scores });
      if (got === undefined) return;
      ignoreRejection(got);
      throw typeError({
        call,
        argument: 'scoreMod',
        got: `a function that returns ${describe(got)}`,
        wanted: 'one that changes tile.scores and returns nothing',
        wayOut:
          'use perScore() for a function of one score, or braces: (tile) => { … }; what is async cannot take part',
      });
    } catch (error) {
      failed = true;
      failure = error;
    }
  };
  let result: R;
  try {
    result = run();
  } finally {
    raw.scoreTile = undefined;
  }
  if (failed) throw failure;
  return result;
}
