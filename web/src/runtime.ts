// A loaded module, as its users see it.
import type { Core } from './core.js';
import { describe } from './describe.js';
import { DISPOSE } from './dispose.js';
import { HeadwiseError, typeError } from './errors.js';
import type { Features } from './features.js';

/** Builds of the module. */
export type Variant = 'simd' | 'relaxed';

export interface RuntimeReport {
  /** The package's version. */
  readonly version: string;
  /** The build that runs. */
  readonly variant: Variant;
  /** Better builds, and why they do not run. */
  readonly notUsed: readonly { readonly variant: string; readonly reason: string }[];
  /** The core's name of its instruction set. */
  readonly simdTarget: string;
  readonly threads: number;
  /** Size of the WASM memory now. */
  readonly heapBytes: number;
  /** Where the .wasm came from. */
  readonly source: string;
  readonly features: Features;
}

/** The facts that load() found out. */
export interface RuntimeFacts {
  readonly version: string;
  readonly variant: Variant;
  readonly notUsed: RuntimeReport['notUsed'];
  readonly simdTarget: string;
  readonly source: string;
  readonly features: Features;
}

// The module behind a runtime, for this package only.
const cores = new WeakMap<Runtime, Core>();
// In the order of loading: the first one still alive is the default.
const live: Runtime[] = [];

/** Made by load(). Layers live inside a runtime and go with it. */
export class Runtime {
  readonly #core: Core;
  readonly #facts: RuntimeFacts;

  /** @internal */
  constructor(core: Core, facts: RuntimeFacts) {
    this.#core = core;
    this.#facts = facts;
    cores.set(this, core);
    live.push(this);
  }

  get variant(): Variant {
    return this.#facts.variant;
  }
  get version(): string {
    return this.#facts.version;
  }
  get simdTarget(): string {
    return this.#facts.simdTarget;
  }
  get threads(): number {
    return 1;
  }
  /** Size of the WASM memory now; 0 after dispose(). */
  get heapBytes(): number {
    return this.#core.heapBytes;
  }
  get disposed(): boolean {
    return this.#core.disposed;
  }

  /** What runs and why, for a status line or a bug report. */
  report(): RuntimeReport {
    return { ...this.#facts, threads: this.threads, heapBytes: this.heapBytes };
  }

  /** Frees the module's memory. Layers made in it throw UseAfterDisposeError from now on; load() makes a new one. */
  dispose(): void {
    this.#core.dispose();
    const i = live.indexOf(this);
    if (i >= 0) live.splice(i, 1);
  }

  [DISPOSE](): void {
    this.dispose();
  }
}

/**
 * The module of the given runtime, or of the first one that was loaded and is alive.
 * @internal
 */
export function coreFor(call: string, runtime: unknown): Core {
  if (runtime === undefined) {
    const first = live[0];
    if (first === undefined) {
      throw new HeadwiseError(
        'not-loaded',
        `${call}: no runtime is loaded; one must be; await load() first, or use MultiHeadAttention.create()`,
      );
    }
    return cores.get(first) as Core;
  }
  const core = typeof runtime === 'object' && runtime !== null ? cores.get(runtime as Runtime) : undefined;
  if (core === undefined) {
    throw typeError({
      call,
      argument: 'runtime',
      got: describe(runtime),
      wanted: 'what load() resolved to',
      wayOut: 'await the promise of load(), and import everything from one copy of the package',
    });
  }
  core.alive(call);
  return core;
}
