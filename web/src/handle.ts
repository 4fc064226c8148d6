// Ownership of an Embind object. dispose() frees it; a finalizer does as a last resort, when an owner was forgotten.
import { Core, type Held } from './core.js';
import { UseAfterDisposeError, typeError } from './errors.js';
import type { RawHandle } from './raw.js';

const forgotten =
  typeof FinalizationRegistry === 'function'
    ? /* @__PURE__ */ new FinalizationRegistry<{ core: Core; held: Held }>(({ core, held }) => core.free(held))
    : undefined;

/** For constructors that are private, which JavaScript does not know. */
export function checkConstruction(name: string, core: unknown, wayOut: string): void {
  if (core instanceof Core) return;
  const complaint = {
    call: `new ${name}()`,
    argument: 'the constructor',
    got: 'called',
    wanted: 'left to the package',
  };
  throw typeError({ ...complaint, wayOut: `use ${wayOut}` });
}

export class Handle<T extends RawHandle> {
  readonly #name: string;
  readonly #core: Core;
  readonly #held: Held<T>;

  /** `owner` is the public object: when it is collected, the Embind object goes, too. */
  constructor(owner: object, name: string, core: Core, raw: T) {
    this.#name = name;
    this.#core = core;
    this.#held = core.hold(raw);
    forgotten?.register(owner, { core, held: this.#held }, this);
  }

  get disposed(): boolean {
    return this.#held.raw === undefined;
  }

  /** The Embind object, for a call named `call`. */
  get(call: string): T {
    this.#core.alive(call);
    const { raw } = this.#held;
    if (raw !== undefined) return raw;
    throw new UseAfterDisposeError(
      `${call}: this ${this.#name} is disposed; it must be alive; make a new one, and dispose() after the last use`,
    );
  }

  /** Puts another Embind object in the place of the one it owns, or frees it when that place is gone. */
  replace(raw: T): void {
    const old = this.#held.raw;
    if (old !== undefined) this.#held.raw = raw;
    (old ?? raw).delete();
  }

  dispose(): void {
    forgotten?.unregister(this);
    this.#core.free(this.#held);
  }
}
