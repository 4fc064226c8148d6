// Arrays come from anywhere: subclasses, own properties named length, resizable buffers that grow or shrink between
// two looks. What is read here is read through the engine's own getters, and what is copied has an exact length.
import { rangeError } from './errors.js';

// typedArray.length and its like, which no subclass or own property can stand in for.
const getter = <T>(prototype: object, name: PropertyKey): ((of: unknown) => T) => {
  const get = Object.getOwnPropertyDescriptor(prototype, name)?.get as () => T;
  return (of) => Reflect.apply(get, of, []);
};
const PROTOTYPE = /* @__PURE__ */ Object.getPrototypeOf(Uint8Array.prototype) as object;
const nameOf = /* @__PURE__ */ getter<string | undefined>(PROTOTYPE, Symbol.toStringTag);
const bufferOf = /* @__PURE__ */ getter<ArrayBuffer>(PROTOTYPE, 'buffer');
const offsetOf = /* @__PURE__ */ getter<number>(PROTOTYPE, 'byteOffset');
const lengthOf = /* @__PURE__ */ getter<number>(PROTOTYPE, 'length');

/** "Float32Array" of a typed array of any realm, undefined for everything else. */
export const typedArrayName = (value: unknown): string | undefined => nameOf(value);

/** How many numbers it really has now: 0 when its buffer was transferred. */
export const trueLength = (array: ArrayBufferView): number => lengthOf(array);

interface ViewType<T> {
  readonly BYTES_PER_ELEMENT: number;
  new (buffer: ArrayBuffer, byteOffset: number, length: number): T;
  new (length: number): T;
}

/** A plain view of the first `length` numbers, which must be there. Bits: it may be of another type of their size. */
export function plainView<T>(type: ViewType<T>, array: ArrayBufferView, length = trueLength(array)): T {
  // A view of a transferred buffer cannot be made, not even an empty one.
  return length === 0 ? new type(0) : new type(bufferOf(array), offsetOf(array), length);
}

/** plainView() of an array that the checks found `length` long; nothing is copied when that is no longer so. */
export function checkedView<T>(
  call: string,
  argument: string,
  type: ViewType<T>,
  array: ArrayBufferView,
  length: number,
): T {
  checkUnchanged(call, argument, array, length);
  return plainView(type, array, length);
}

/** That an array still has the length which the checks saw. */
export function checkUnchanged(call: string, argument: string, array: ArrayBufferView, length: number): void {
  const now = trueLength(array);
  if (now === length) return;
  throw rangeError(
    {
      call,
      argument,
      got: `${now} long now`,
      wanted: `${length} long, as when the call began`,
      wayOut: 'do not resize or transfer its buffer while it is in use, or pass a copy',
    },
    'wrong-shape',
  );
}
