// Options that shape the scores: numbers for the whole call, and numbers for each head.
import { checkFinite, checkWhole } from './arguments.js';
import { alibiSlopes } from './alibi.js';
import { describe } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { MAX_SIZE } from './tensor.js';
import { plainView, trueLength, typedArrayName } from './typed-arrays.js';

/** [left, right]: neighbours of a query's position on each side that it sees; -1 is unlimited. */
export type Window = readonly [left: number, right: number];

/** 0 means off. */
export function checkSoftcap(call: string, value: unknown): number {
  const softcap = checkFinite(call, 'softcap', value);
  if (softcap >= 0) return softcap;
  throw rangeError({
    call,
    argument: 'softcap',
    got: describe(value),
    wanted: 'positive, or 0 for off',
    wayOut: 'give the cap as the model names it, such as 50',
  });
}

export function checkWindow(call: string, value: unknown): Window {
  if (!Array.isArray(value)) {
    throw typeError({
      call,
      argument: 'window',
      got: describe(value),
      wanted: '[left, right], the neighbours seen on each side',
      wayOut: 'a window of n tokens that counts the query itself is [n - 1, 0]',
    });
  }
  if (value.length !== 2) {
    throw rangeError(
      {
        call,
        argument: 'window',
        got: `${value.length} long`,
        wanted: '[left, right]',
        wayOut: 'use -1 for no limit on a side',
      },
      'wrong-shape',
    );
  }
  const side = (i: 0 | 1): number =>
    checkWhole(call, `window[${i}]`, value[i], { least: -1, wayOut: 'use -1 for no limit on a side' });
  return [side(0), side(1)];
}

/** One finite number for each head, copied; -Infinity may stand where `orMinusInfinity`. */
export function checkPerHead(
  call: string,
  argument: string,
  value: unknown,
  numHeads: number,
  orMinusInfinity = false,
): Float32Array {
  if (typedArrayName(value) !== 'Float32Array') {
    throw typeError({
      call,
      argument,
      got: describe(value),
      wanted: `a Float32Array of ${numHeads}, one number for each head`,
      wayOut: 'use Float32Array.from(values)',
    });
  }
  const length = trueLength(value as Float32Array);
  if (length !== numHeads) {
    throw rangeError(
      {
        call,
        argument,
        got: `${length} long`,
        wanted: `${numHeads} long, one number for each head`,
        wayOut: 'query heads count, not key/value heads',
      },
      'wrong-shape',
    );
  }
  const list = plainView(Float32Array, value as Float32Array).slice();
  list.forEach((x, h) => {
    if (Number.isFinite(x) || (orMinusInfinity && x === -Infinity)) return;
    throw rangeError({
      call,
      argument: `${argument}[${h}]`,
      got: describe(x),
      wanted: orMinusInfinity ? 'finite, or -Infinity for none' : 'finite',
      wayOut: 'correct the number',
    });
  });
  return list;
}

/** true: the slopes of the paper for this number of heads. false: none. */
export function checkAlibi(call: string, value: unknown, numHeads: number): Float32Array | undefined {
  if (value === false) return undefined;
  if (value === true) return alibiSlopes(numHeads);
  if (typedArrayName(value) !== 'Float32Array') {
    throw typeError({
      call,
      argument: 'alibi',
      got: describe(value),
      wanted: `true for alibiSlopes(${numHeads}), or a Float32Array of ${numHeads} slopes`,
      wayOut: 'use Float32Array.from(slopes)',
    });
  }
  return checkPerHead(call, 'alibi', value, numHeads);
}

/** 0 means off. */
export const checkChunk = (call: string, value: unknown): number =>
  checkWhole(call, 'attentionChunk', value, { least: 0, most: MAX_SIZE, wayOut: 'use 0 for off' });
