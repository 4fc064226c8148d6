// Ownership of an Embind object. dispose() frees it; a finalizer does as a last resort, when an owner was forgotten.
import type { Core } from './core.js';
import { UseAfterDisposeError } from './errors.js';
import type { RawHandle } from './raw.js';

interface Held {
  readonly core: Core;
  readonly raw: RawHandle;
}

const forgotten =
  typeof FinalizationRegistry === 'function'
    ? /* @__PURE__ */ new FinalizationRegistry<Held>(({ core, raw }) => core.free(raw))
    : undefined;

export class Handle<T extends RawHandle> {
  readonly #name: string;
  readonly #core: Core;
  #raw: T | undefined;

  /** `owner` is the public object: when it is collected, the Embind object goes, too. */
  constructor(owner: object, name: string, core: Core, raw: T) {
    this.#name = name;
    this.#core = core;
    this.#raw = raw;
    forgotten?.register(owner, { core, raw }, this);
  }

  get disposed(): boolean {
    return this.#raw === undefined || this.#core.disposed;
  }

  /** The Embind object, for a call named `call`. */
  get(call: string): T {
    if (this.#raw === undefined) {
      throw new UseAfterDisposeError(
        `${call}: this ${this.#name} is disposed; it must be alive; make a new one, and dispose() after the last use`,
      );
    }
    this.#core.alive(call);
    return this.#raw;
  }

  dispose(): void {
    if (this.#raw === undefined) return;
    forgotten?.unregister(this);
    this.#core.free(this.#raw);
    this.#raw = undefined;
  }
}
