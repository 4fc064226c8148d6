// Every error of the package. One rule for the text: the call, the argument, what it got, what it wanted, the way out.
// Every class carries a `code` to branch on; argument errors are RangeError or TypeError as JavaScript users expect.

/** What went wrong, for programs. */
export type ErrorCode =
  /** An option name the call does not know. */
  | 'unknown-option'
  /** A value of the wrong JavaScript type. */
  | 'wrong-type'
  /** A value of the right type outside its range. */
  | 'out-of-range'
  /** A shape of wrong rank, or sizes that do not fit together. */
  | 'wrong-shape'
  /** Options that contradict each other. */
  | 'conflict'
  /** Sizes beyond what WASM memory can address. */
  | 'too-large'
  /** The memory could not grow. */
  | 'out-of-memory'
  /** Nothing is loaded yet. */
  | 'not-loaded'
  /** A call inside withBuffers() that would move its views. */
  | 'busy'
  /** An object was used after dispose(). */
  | 'disposed'
  /** Names or shapes of a state dict. */
  | 'state-dict'
  /** Bytes that are no safetensors file. */
  | 'safetensors'
  /** The core refused what TypeScript let through: please report it. */
  | 'internal'
  | LoadErrorCode;

/** Why load() failed. */
export type LoadErrorCode =
  /** The engine has no WebAssembly or no SIMD128. */
  | 'no-simd'
  /** The .wasm could not be fetched or read, or something else came. */
  | 'fetch'
  /** The engine refused the .wasm. */
  | 'compile'
  /** The module could not be started. */
  | 'instantiate'
  /** Glue and .wasm are of different versions or builds. */
  | 'mismatch'
  /** The signal was aborted. */
  | 'aborted'
  /** A feature that is not in this build. */
  | 'unsupported';

/** Errors that are not about one argument. */
export class HeadwiseError extends Error {
  override readonly name: string = 'HeadwiseError';
  constructor(
    readonly code: ErrorCode,
    message: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
  }
}

/** An argument of the right type whose value or shape does not fit. */
export class HeadwiseRangeError extends RangeError {
  override readonly name: string = 'HeadwiseRangeError';
  constructor(
    readonly code: ErrorCode,
    message: string,
  ) {
    super(message);
  }
}

/** An argument of the wrong type, an unknown option, or options that contradict each other. */
export class HeadwiseTypeError extends TypeError {
  override readonly name: string = 'HeadwiseTypeError';
  constructor(
    readonly code: ErrorCode,
    message: string,
  ) {
    super(message);
  }
}

/** load() failed; calling it again tries again. */
export class HeadwiseLoadError extends HeadwiseError {
  override readonly name: string = 'HeadwiseLoadError';
  declare readonly code: LoadErrorCode;
  constructor(code: LoadErrorCode, message: string, options?: { cause?: unknown }) {
    super(code, message, options);
  }
}

/** WASM memory is exhausted; nothing was changed. */
export class HeadwiseMemoryError extends HeadwiseError {
  override readonly name: string = 'HeadwiseMemoryError';
  constructor(message: string) {
    super('out-of-memory', message);
  }
}

/** The object, or the runtime it lives in, was disposed. */
export class UseAfterDisposeError extends HeadwiseError {
  override readonly name: string = 'UseAfterDisposeError';
  constructor(message: string) {
    super('disposed', message);
  }
}

/** A state dict that does not fit the layer. Everything that is wrong with it is listed at once. */
export class StateDictError extends HeadwiseError {
  override readonly name: string = 'StateDictError';
  constructor(
    message: string,
    /** Names the layer needs and the dict has not. */
    readonly missing: readonly string[],
    /** Names in the dict that the layer has no place for. */
    readonly unexpected: readonly string[],
    /** One sentence for each tensor of wrong shape or type. */
    readonly mismatched: readonly string[],
  ) {
    super('state-dict', message);
  }
}

/** Bytes that are no well-formed safetensors file. */
export class SafetensorsError extends HeadwiseError {
  override readonly name: string = 'SafetensorsError';
  constructor(message: string) {
    super('safetensors', message);
  }
}

/** Whether `error` comes from this package: all its classes carry a `code`. */
export function isHeadwiseError(error: unknown): error is HeadwiseError | HeadwiseRangeError | HeadwiseTypeError {
  return error instanceof HeadwiseError || error instanceof HeadwiseRangeError || error instanceof HeadwiseTypeError;
}

/** The parts of a message; the way out is left away only where `wanted` says it all. */
export interface Complaint {
  readonly call: string;
  readonly argument: string;
  readonly got: string;
  readonly wanted: string;
  readonly wayOut?: string;
}

export const sentence = ({ call, argument, got, wanted, wayOut }: Complaint): string =>
  `${call}: ${argument} is ${got}; it must be ${wanted}${wayOut === undefined ? '' : `; ${wayOut}`}`;

export const rangeError = (
  complaint: Complaint,
  code: 'out-of-range' | 'wrong-shape' | 'too-large' = 'out-of-range',
): HeadwiseRangeError => new HeadwiseRangeError(code, sentence(complaint));

export const typeError = (
  complaint: Complaint,
  code: 'wrong-type' | 'unknown-option' | 'conflict' = 'wrong-type',
): HeadwiseTypeError => new HeadwiseTypeError(code, sentence(complaint));
