// Sequences of different lengths, one behind the other in one entry.
import { checkWhole } from './arguments.js';
import { rangeError, typeError } from './errors.js';
import { readIntegerList } from './integer-list.js';
import type { AttentionSizes } from './mask-options.js';

/** [n + 1] each, from 0 to L and S. */
export interface Packed {
  readonly sequences: number;
  readonly queries: Int32Array;
  readonly keys: Int32Array;
}

/** Tokens of sequence n. */
export const lengthOf = (cumulative: Int32Array, n: number): number =>
  (cumulative[n + 1] as number) - (cumulative[n] as number);

/** The bounds of packed sequences, or undefined when none are given. */
export function planPacked(
  call: string,
  queryLengths: unknown,
  keyLengths: unknown,
  sizes: AttentionSizes,
): Packed | undefined {
  if (queryLengths === undefined && keyLengths === undefined) return undefined;
  if (queryLengths === undefined) {
    const wanted = 'given together with cumulativeQueryLengths';
    const wayOut = 'give both, or only cumulativeQueryLengths where keys are packed as the queries are';
    throw typeError({ call, argument: 'cumulativeKeyLengths', got: 'given alone', wanted, wayOut }, 'conflict');
  }
  if (sizes.batch !== 1) {
    throw rangeError(
      {
        call,
        argument: 'cumulativeQueryLengths',
        got: `given with a batch of ${sizes.batch}`,
        wanted: 'given with a batch of 1, or without a batch axis',
        wayOut: 'put the sequences one behind the other; a padded batch takes queryLengths and keyLengths',
      },
      'wrong-shape',
    );
  }
  const queries = checkCumulative(call, 'cumulativeQueryLengths', queryLengths, sizes.queryLength, 'queries');
  const shared = keyLengths === undefined;
  const keys = checkCumulative(
    call,
    shared ? 'cumulativeQueryLengths' : 'cumulativeKeyLengths',
    shared ? queries : keyLengths,
    sizes.keyLength,
    'keys',
  );
  if (keys.length !== queries.length) {
    throw rangeError(
      {
        call,
        argument: 'cumulativeKeyLengths',
        got: `${keys.length} long`,
        wanted: `${queries.length} long, as cumulativeQueryLengths`,
        wayOut: 'a sequence without keys repeats the number before it',
      },
      'wrong-shape',
    );
  }
  return { sequences: queries.length - 1, queries, keys };
}

function checkCumulative(call: string, argument: string, value: unknown, total: number, of: string): Int32Array {
  const form = 'an Array or Int32Array: 0, the end of the first sequence, and so on';
  const { list, length } = readIntegerList(call, argument, value, form);
  const wrong = (element: string, got: string, wanted: string): Error =>
    rangeError({
      call,
      argument: `${argument}${element}`,
      got,
      wanted,
      wayOut: `the lengths 3 and 4 are [0, 3, 7]; the last one is the number of ${of}`,
    });
  if (length === 0) throw wrong('', 'empty', 'one number more than there are sequences');
  // Copied: another look at the caller's array could find others.
  const copy = new Int32Array(length);
  for (let n = 0; n < length; ++n) {
    const at = checkWhole(call, `${argument}[${n}]`, list[n], { least: 0, most: total });
    if (n === 0 && at !== 0) throw wrong('[0]', String(at), '0');
    if (n > 0 && at < (copy[n - 1] as number))
      throw wrong(`[${n}]`, String(at), `at least ${copy[n - 1]}, as before it`);
    copy[n] = at;
  }
  if (copy[length - 1] !== total) throw wrong(`[${length - 1}]`, String(copy[length - 1]), `${total}, the ${of}`);
  return copy;
}
