// One instance of the WASM module and the memory this package keeps in it: a block for arguments and one staging area
// for inputs and outputs, grown when a call needs more and reused by every other.
import { HeadwiseError, HeadwiseMemoryError, UseAfterDisposeError, rangeError } from './errors.js';
import { ATTENTION_SLOTS, type RawHandle, type RawModule, SIDE_SLOTS, STATUS } from './raw.js';
import { ADDRESS_SPACE } from './tensor.js';

const ALIGNMENT = 64;
const BLOCK_BYTES = (ATTENTION_SLOTS.length + SIDE_SLOTS) * 8;
/** Growing in steps keeps slightly longer inputs from moving the area every time. */
const GROWTH = 64 * 1024;

const alignUp = (bytes: number, step: number): number => Math.ceil(bytes / step) * step;

/** A place for an Embind object that empties when the object, or the whole module, goes. */
export interface Held<T extends RawHandle = RawHandle> {
  raw: T | undefined;
}

export class Core {
  /** Offset of the argument block, as an index into HEAPF64. */
  readonly slots: number;
  readonly block: number;
  /** The same of a smaller block beside it, for what an attention block refers to. */
  readonly sideSlots: number;
  readonly sideBlock: number;
  #raw: RawModule | undefined;
  #staging = 0;
  #stagingBytes = 0;
  #wanted = 0;
  #scratchEpoch = 0;
  #borrower: string | undefined;
  #running: string | undefined;
  #callingBack = false;
  readonly #freed: RawHandle[] = [];
  readonly #held = new Set<Held>();

  constructor(raw: RawModule) {
    this.#raw = raw;
    this.block = raw.allocate(BLOCK_BYTES);
    if (this.block === 0) throw new HeadwiseMemoryError(`load(): no memory for ${BLOCK_BYTES} bytes`);
    this.slots = this.block / 8;
    this.sideSlots = this.slots + ATTENTION_SLOTS.length;
    this.sideBlock = this.sideSlots * 8;
  }

  get disposed(): boolean {
    return this.#raw === undefined;
  }

  /** Dropping the module, and what leads to it, frees its whole memory. */
  dispose(): void {
    for (const held of this.#held) held.raw = undefined;
    this.#held.clear();
    this.#raw = undefined;
  }

  hold<T extends RawHandle>(raw: T): Held<T> {
    const held: Held<T> = { raw };
    this.#held.add(held as Held);
    return held;
  }

  free(held: Held): void {
    const { raw } = held;
    held.raw = undefined;
    this.#held.delete(held);
    if (raw === undefined) return;
    // The call that runs may be using it.
    if (this.#callingBack) this.#freed.push(raw);
    else raw.delete();
  }

  /** The core runs and may call functions of the caller; what they dispose of is freed at its end. */
  callingBack<R>(call: string, f: () => R): R {
    const before = this.#running;
    this.#running = call;
    this.#callingBack = true;
    try {
      return f();
    } finally {
      this.#running = before;
      this.#callingBack = false;
      for (const raw of this.#freed.splice(0)) raw.delete();
    }
  }

  get heapBytes(): number {
    return this.#raw?.HEAPU8.byteLength ?? 0;
  }

  /** Changes when the scratch was given back, and what was reserved must be reserved again. */
  get scratchEpoch(): number {
    return this.#scratchEpoch;
  }

  /** The module for a call that may use the staging area or grow the memory. */
  use(call: string): RawModule {
    const raw = this.alive(call);
    if (this.#borrower !== undefined) {
      throw new HeadwiseError(
        'busy',
        `${call}: the runtime is lent to ${this.#borrower}; it must be free, because this call could move the memory` +
          ` under its views; call it after ${this.#borrower} has returned, or give it a runtime of its own`,
      );
    }
    if (this.#running !== undefined) {
      throw new HeadwiseError(
        'busy',
        `${call}: the runtime is at work for ${this.#running}; it must be free, because two calls at once would mix` +
          ' their data; call it after that, or give it a runtime of its own',
      );
    }
    return raw;
  }

  /** For what changes something that a running call may be reading, but moves no memory. */
  checkIdle(call: string): void {
    if (this.#callingBack) this.use(call);
  }

  /**
   * One call from laying out to reading results. Nothing of the caller's runs in there but a scoreMod (the checks before
   * it read all that has getters), so what comes in between is refused.
   */
  exclusively<R>(call: string, f: () => R): R {
    this.use(call);
    this.#running = call;
    try {
      return f();
    } finally {
      this.#running = undefined;
    }
  }

  /** The module for a call that does neither. */
  alive(call: string): RawModule {
    if (this.#raw === undefined) {
      throw new UseAfterDisposeError(
        `${call}: the runtime is disposed; it must be alive, with all that was made in it; call load() again`,
      );
    }
    return this.#raw;
  }

  lend<R>(borrower: string, f: () => R): R {
    this.#borrower = borrower;
    try {
      return f();
    } finally {
      this.#borrower = undefined;
    }
  }

  // Laying out a call: begin(), then place() each part, then commit() gives the offset they are counted from.

  begin(): void {
    this.#wanted = 0;
  }

  place(bytes: number): number {
    const at = this.#wanted;
    this.#wanted += alignUp(bytes, ALIGNMENT);
    return at;
  }

  /**
   * `reserve` makes the core's scratch large enough. It comes first: when it fails, the staging area has not grown. And
   * when the staging area cannot grow, the scratch is given back, so that a failed call keeps nothing.
   */
  commit(call: string, describeSizes: () => string, reserve?: () => void): number {
    const raw = this.alive(call);
    const bytes = Math.max(this.#wanted, ALIGNMENT);
    if (bytes > this.#stagingBytes) checkAddressable(call, bytes, describeSizes);
    reserve?.();
    if (bytes <= this.#stagingBytes) return this.#staging;
    // The old area goes first, so that the two need not exist at once.
    if (this.#staging !== 0) raw.release(this.#staging);
    this.#stagingBytes = alignUp(bytes, GROWTH);
    this.#staging = raw.allocate(this.#stagingBytes);
    if (this.#staging !== 0) return this.#staging;
    this.#stagingBytes = 0;
    raw.releaseWorkspace();
    this.#scratchEpoch += 1;
    throw outOfMemory(call, bytes, this.heapBytes);
  }

  /** Memory for the length of f only: for what is too large to keep, such as weights on their way. */
  withTemporary<R>(call: string, bytes: number, describeSizes: () => string, f: (offset: number) => R): R {
    const raw = this.use(call);
    checkAddressable(call, bytes, describeSizes, WAY_TO_SMALLER);
    const offset = raw.allocate(Math.max(bytes, ALIGNMENT));
    if (offset === 0) throw outOfMemory(call, bytes, this.heapBytes);
    try {
      return this.exclusively(call, () => f(offset));
    } finally {
      raw.release(offset);
    }
  }

  /** Turns a status of the core into an error. TypeScript checks all that it can before, so most are of memory. */
  check(call: string, status: number): void {
    if (status !== STATUS.ok) throw this.failure(call, status);
  }

  /** Why create() gave nothing. It has no status, but the text of a lack of memory is known. */
  constructionFailure(call: string): HeadwiseError {
    const lacks = /could not be had|no memory/.test(this.alive(call).lastError());
    return this.failure(call, lacks ? STATUS.outOfMemory : STATUS.invalidConfig);
  }

  failure(call: string, status: number): HeadwiseError {
    const text = this.alive(call).lastError();
    if (status === STATUS.outOfMemory) {
      return new HeadwiseMemoryError(`${call}: WASM memory is exhausted at ${this.heapBytes} bytes; ${text}`);
    }
    return new HeadwiseError('internal', `${call}: the core refuses this call (status ${status}): ${text}`);
  }
}

const WAY_TO_MEMORY = 'use smaller batches, needWeights: false, or dispose() what is not needed';

const outOfMemory = (call: string, bytes: number, heapBytes: number): HeadwiseMemoryError =>
  new HeadwiseMemoryError(
    `${call}: WASM memory of ${heapBytes} bytes could not grow by the ${bytes} bytes this call wants; ${WAY_TO_MEMORY}`,
  );

export const WAY_TO_SMALLER = 'use a smaller layer';

export function checkAddressable(
  call: string,
  bytes: number,
  describeSizes: () => string,
  wayOut = WAY_TO_MEMORY,
): void {
  if (bytes < ADDRESS_SPACE) return;
  throw rangeError(
    {
      call,
      argument: `the memory for ${describeSizes()}`,
      got: `${bytes} bytes`,
      wanted: `less than ${ADDRESS_SPACE} bytes, all that 32-bit WASM can address`,
      wayOut,
    },
    'too-large',
  );
}
