// How values look in error messages.
import { trueLength, typedArrayName } from './typed-arrays.js';

/** A value in a few words: "2.5", "\"end\"", "an Array of 3", "a Float32Array of 12". */
export function describe(value: unknown): string {
  if (value === null) return 'null';
  switch (typeof value) {
    case 'undefined':
      return 'undefined';
    case 'string':
      return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
    case 'number':
      return Object.is(value, -0) ? '-0' : String(value);
    case 'boolean':
      return String(value);
    case 'bigint':
      return `${value}n (a BigInt)`;
    case 'symbol':
      return 'a Symbol';
    case 'function':
      return 'a function';
    default:
      break;
  }
  const name = typedArrayName(value);
  if (name !== undefined) return `${withArticle(name)} of ${trueLength(value as ArrayBufferView)}`;
  if (Array.isArray(value)) return `an Array of ${value.length}`;
  const constructor: unknown = (value as object).constructor;
  const className = typeof constructor === 'function' && constructor.name ? constructor.name : 'Object';
  // A Proxy, say. Its name alone would read "is a Float32Array; it must be a Float32Array".
  if (/^(Big)?(Int|Uint|Float)\d+(Clamped)?Array$/.test(className))
    return `a Proxy or imitation of ${withArticle(className)}`;
  return className === 'Object' ? `an object with keys ${keyList(value as object)}` : withArticle(className);
}

const withArticle = (name: string): string => `${/^[AEIO]/.test(name) ? 'an' : 'a'} ${name}`;

function keyList(value: object): string {
  const keys = Object.keys(value);
  const shown = keys.slice(0, 6).join(', ');
  return keys.length > 6 ? `{${shown}, …}` : `{${shown}}`;
}

/** "[2, 10, 512]" */
export const showShape = (shape: readonly unknown[]): string =>
  `[${shape.length > 8 ? `${shape.slice(0, 8).join(', ')}, …` : shape.join(', ')}]`;

/** "a, b or c" */
export function oneOf(values: readonly unknown[]): string {
  const shown = values.map((value) => (typeof value === 'string' ? `'${value}'` : String(value)));
  return shown.length < 2 ? shown.join('') : `${shown.slice(0, -1).join(', ')} or ${shown.at(-1)}`;
}

/** As describe(), of what only looks like one of our objects. */
export const describeForeign = (value: unknown, name: string): string =>
  describe(value) === `a ${name}` ? `a ${name} that this copy of the package did not make` : describe(value);
