// Functions of the caller that return what they should not.

/** For a result that is refused: the error says all, and a promise that rejects behind it must not end the process. */
export function ignoreRejection(result: unknown): void {
  try {
    Reflect.apply(Promise.prototype.then, result, [undefined, () => undefined]);
  } catch {
    // No promise, or something with a method named then: nothing has begun that could reject.
  }
}
