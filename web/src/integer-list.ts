// Lists of whole numbers: an Array or an Int32Array.
import { describe } from './describe.js';
import { typeError } from './errors.js';
import { trueLength, typedArrayName } from './typed-arrays.js';

export type IntegerList = readonly number[] | Int32Array;

/** Whether a value is such a list; what an Array holds is still to be checked. */
export const isIntegerList = (value: unknown): value is readonly unknown[] | Int32Array =>
  Array.isArray(value) || typedArrayName(value) === 'Int32Array';

/** The list with its length now. Elements are to be read once, into a copy: another look could find others. */
export function readIntegerList(
  call: string,
  argument: string,
  value: unknown,
  wanted: string,
  wayOut = 'use Int32Array.from(values)',
): { readonly list: readonly unknown[] | Int32Array; readonly length: number } {
  if (!isIntegerList(value)) throw typeError({ call, argument, got: describe(value), wanted, wayOut });
  return { list: value, length: Array.isArray(value) ? value.length : trueLength(value as Int32Array) };
}
