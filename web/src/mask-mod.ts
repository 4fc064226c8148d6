// Functions of the caller that say who sees whom, evaluated once into bits.
import { ignoreRejection } from './callbacks.js';
import { checkAddressable } from './core.js';
import { describe } from './describe.js';
import { typeError } from './errors.js';

/**
 * Whether the query at `queryPosition` may see the key at `keyPosition`, for an entry of the batch (or a packed
 * sequence) and a query head: true or false, or 1 or 0. It must give the same answer whenever it is asked: one that
 * changes its mind is another function.
 */
export type MaskMod = (batch: number, head: number, queryPosition: number, keyPosition: number) => boolean | number;

/** What a block mask covers: queries [firstQuery, firstQuery + queries), keys [0, keys). */
export interface MaskShape {
  /** B, or 1 for all entries alike. */
  readonly batch: number;
  /** H, or 1 for all heads alike. */
  readonly numHeads: number;
  readonly firstQuery: number;
  readonly queryLength: number;
  readonly keyLength: number;
}

/** 32-bit words of a row. */
export const wordsOf = ({ keyLength }: MaskShape): number => Math.ceil(keyLength / 32);

/** [batch, heads, queries, words], and what they need, or a RangeError. */
export function emptyBits(call: string, shape: MaskShape): Uint32Array {
  const { batch, numHeads, queryLength, keyLength } = shape;
  const words = wordsOf(shape);
  const sizes = (): string => `a mask of B = ${batch}, H = ${numHeads}, L = ${queryLength}, S = ${keyLength}`;
  // A length of 0 needs no memory, but the other sizes are still gone through.
  const bytes = 4 * batch * numHeads * Math.max(1, queryLength) * Math.max(1, words);
  checkAddressable(call, bytes, sizes, 'share it over entries and heads: batch 1, numHeads 1');
  return new Uint32Array(batch * numHeads * queryLength * words);
}

/** Asks `mod` about each pair. */
export function evaluate(call: string, argument: string, mod: MaskMod, shape: MaskShape): Uint32Array {
  const bits = emptyBits(call, shape);
  const { batch, numHeads, firstQuery, queryLength, keyLength } = shape;
  const words = wordsOf(shape);
  if (bits.length === 0) return bits;
  let row = 0;
  for (let b = 0; b < batch; ++b) {
    for (let h = 0; h < numHeads; ++h) {
      for (let i = firstQuery; i < firstQuery + queryLength; ++i, row += words) {
        for (let j = 0; j < keyLength; ++j) {
          const seen: unknown = mod(b, h, i, j);
          if (seen === true || seen === 1) {
            const at = row + (j >>> 5);
            bits[at] = (bits[at] as number) | (1 << (j & 31));
          } else if (seen !== false && seen !== 0) {
            ignoreRejection(seen);
            throw typeError({
              call,
              argument,
              got: `a function that returns ${describe(seen)} for (${b}, ${h}, ${i}, ${j})`,
              wanted: 'one that returns true, false, 1 or 0',
              wayOut: 'true lets query i see key j; what is async cannot take part',
            });
          }
        }
      }
    }
  }
  return bits;
}
