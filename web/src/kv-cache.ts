// Keys and values of the tokens so far: ownership, checks and copies. The storage is the core's.
import { checkChoice, checkOptions, checkWhole } from './arguments.js';
import type { Core } from './core.js';
import { describeForeign, showShape } from './describe.js';
import { DISPOSE } from './dispose.js';
import { rangeError, typeError } from './errors.js';
import { Handle, checkConstruction } from './handle.js';
import { readIntegerList } from './integer-list.js';
import { type CacheFileAccess, restoreCache, saveCache } from './kv-cache-file.js';
import { ATTENTION, ATTENTION_SLOTS, CACHE_SLOTS, type CacheSlot, type RawKvCache } from './raw.js';
import { type Runtime, coreFor } from './runtime.js';
import { type Tensor, readTensor } from './tensor.js';
import { checkedView } from './typed-arrays.js';

/** How keys and values are stored. int8: one scale for each row, the largest |x| / 127. */
export type CacheDType = 'f32' | 'f16' | 'bf16' | 'int8';

export interface CreateCacheOptions {
  /** B. Default 1. */
  readonly batch?: number | undefined;
  /** Tokens that each entry may hold. Not with `window`. */
  readonly capacity?: number | undefined;
  /**
   * Rolling: the last `window` tokens are kept, a query's own included, and what is older is dropped. A query then
   * sees window - 1 neighbours on its left: `window: [window - 1, …]` in the terms of a call.
   */
  readonly window?: number | undefined;
  /** With `window`: the first tokens, which are kept, too. Default 0. */
  readonly sinkTokens?: number | undefined;
  /** Default 'f32'. */
  readonly dtype?: CacheDType | undefined;
}

export interface KvCacheOptions extends CreateCacheOptions {
  /** Hkv. */
  readonly numKvHeads: number;
  /** D. */
  readonly headDim: number;
  /** Dv. Default headDim. */
  readonly vHeadDim?: number | undefined;
  /** Default: the first one that was loaded and is alive. */
  readonly runtime?: Runtime | undefined;
}

/** What a cache is, defaults filled in. 0: no capacity, no window. */
export interface CacheConfig {
  readonly batch: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly vHeadDim: number;
  readonly capacity: number;
  readonly window: number;
  readonly sinkTokens: number;
  readonly dtype: CacheDType;
}

const NAME = 'KvCache';
const CREATE = `${NAME}.create()`;
const DTYPES = ['f32', 'f16', 'bf16', 'int8'] as const;
const CREATE_NAMES = ['batch', 'capacity', 'window', 'sinkTokens', 'dtype'] as const;
const LAYER_NAMES: ReadonlySet<string> = new Set(CREATE_NAMES satisfies readonly (keyof CreateCacheOptions)[]);
const ALL_NAMES: ReadonlySet<string> = new Set([
  ...CREATE_NAMES,
  'numKvHeads',
  'headDim',
  'vHeadDim',
  'runtime',
] satisfies (keyof KvCacheOptions)[]);

/** A cache as a call uses it. What the call is laid out for is the lengths that were found when it began. */
export interface OpenCache {
  readonly config: CacheConfig;
  readonly lengths: readonly number[];
  readonly core: Core;
  /** The cache as it is now, when nothing has changed it since. */
  raw(): RawKvCache;
  /** For a call that appends and may fail afterwards, in a function of the caller. */
  checkpoint(): Checkpoint;
}

/** Either of the two, once. */
interface Checkpoint {
  /** Makes the cache what it was. */
  back(): void;
  /** The call succeeded. */
  drop(): void;
}

interface Inside {
  readonly core: Core;
  readonly handle: Handle<RawKvCache>;
}
// What is behind a cache, for this package only.
const insides = new WeakMap<KvCache, Inside>();

/**
 * The cache of a call in the runtime of `core`, or in its own.
 * @internal
 */
export function openCache(call: string, value: unknown, core: Core | undefined): OpenCache {
  const inside = typeof value === 'object' && value !== null ? insides.get(value as KvCache) : undefined;
  if (inside === undefined) {
    const wayOut = 'use createCache() of the layer, or KvCache.create()';
    throw typeError({ call, argument: 'cache', got: describeForeign(value, NAME), wanted: 'a KvCache', wayOut });
  }
  const raw = inside.handle.get(call);
  if (core !== undefined && inside.core !== core) {
    throw typeError(
      {
        call,
        argument: 'cache',
        got: 'of another runtime',
        wanted: 'of the runtime of this call',
        wayOut: 'make it with the same runtime, or restore() what the other one saves',
      },
      'conflict',
    );
  }
  const { core: own, handle } = inside;
  return openUnchanged(call, (value as KvCache).config, own, handle, raw);
}

function openUnchanged(
  call: string,
  config: CacheConfig,
  core: Core,
  handle: Handle<RawKvCache>,
  raw: RawKvCache,
): OpenCache {
  const lengths = lengthsOf(config, raw);
  const checkpoint = (): Checkpoint => {
    const now = handle.get(call);
    if (config.window === 0) {
      const back = (): void => {
        if (!handle.disposed) lengths.forEach((length, b) => core.check(call, now.crop(b, length)));
      };
      return { back, drop: () => undefined };
    }
    // What a rolling cache drops is gone.
    const copy = now.fork();
    if (copy === null) throw core.constructionFailure(call);
    return { back: () => handle.replace(copy), drop: () => copy.delete() };
  };
  return {
    checkpoint,
    config,
    lengths,
    core,
    // Getters of the arguments and a maskMod are the caller's: they may have appended, cropped or disposed of it.
    raw() {
      const now = handle.get(call);
      const b = lengths.findIndex((length, entry) => now.length(entry) !== length);
      if (b < 0) return now;
      throw typeError(
        {
          call,
          argument: 'cache',
          got: `with ${now.length(b)} tokens in entry ${b} now`,
          wanted: `with ${lengths[b]}, as when the call began`,
          wayOut: 'change it before or after the call, not in its getters or its maskMod',
        },
        'conflict',
      );
    },
  };
}

const lengthsOf = ({ batch }: CacheConfig, raw: RawKvCache): number[] =>
  Array.from({ length: batch }, (_, b) => raw.length(b));

/**
 * The longest entry after `counts` (all: n) more tokens; throws when they do not fit.
 * @internal
 */
export function checkRoom(
  call: string,
  { config, lengths }: Pick<OpenCache, 'config' | 'lengths'>,
  n: number,
  counts: Int32Array | undefined,
): number {
  let longest = 0;
  for (let b = 0; b < config.batch; ++b) {
    const held = lengths[b] as number;
    const length = held + (counts === undefined ? n : (counts[b] as number));
    longest = Math.max(longest, length);
    if (config.window > 0 || length <= config.capacity) continue;
    throw rangeError({
      call,
      argument: `the length of cache entry ${b}`,
      got: `${held} and ${length - held} more`,
      wanted: `at most ${config.capacity}, the capacity`,
      wayOut: 'use a larger capacity, crop(), or a rolling cache with a window',
    });
  }
  return longest;
}

/** @internal */
export function createCache(
  call: string,
  core: Core,
  options: unknown,
  sizes: Pick<CacheConfig, 'numKvHeads' | 'headDim' | 'vHeadDim'>,
): KvCache {
  return make(call, core, resolve(call, checkOptions<CreateCacheOptions>(call, options, LAYER_NAMES), sizes));
}

function resolve(
  call: string,
  o: Partial<CreateCacheOptions>,
  sizes: Pick<CacheConfig, 'numKvHeads' | 'headDim' | 'vHeadDim'>,
): CacheConfig {
  const whole = (name: 'capacity' | 'window' | 'batch'): number => checkWhole(call, name, o[name]);
  const config = {
    ...sizes,
    batch: o.batch === undefined ? 1 : whole('batch'),
    capacity: o.window !== undefined && o.capacity === undefined ? 0 : whole('capacity'),
    window: o.window === undefined ? 0 : whole('window'),
    sinkTokens: o.sinkTokens === undefined ? 0 : checkWhole(call, 'sinkTokens', o.sinkTokens, { least: 0 }),
    dtype: o.dtype === undefined ? ('f32' as const) : checkChoice(call, 'dtype', o.dtype, DTYPES),
  };
  const refuse = (argument: string, got: string, wanted: string, wayOut: string): never => {
    throw typeError({ call, argument, got, wanted, wayOut }, 'conflict');
  };
  if (config.window > 0 && config.capacity > 0) {
    refuse('capacity', 'given with a window', 'left away', 'a rolling cache takes any number of tokens');
  }
  if (config.window === 0 && config.sinkTokens > 0) {
    refuse('sinkTokens', `${config.sinkTokens} without a window`, 'left away', 'only a rolling cache drops tokens');
  }
  return config;
}

function make(call: string, core: Core, config: CacheConfig): KvCache {
  const f64 = core.use(call).HEAPF64;
  const values: Record<CacheSlot, number> = {
    cacheBatch: config.batch,
    cacheKvHeads: config.numKvHeads,
    cacheHeadDim: config.headDim,
    cacheVHeadDim: config.vHeadDim,
    capacity: config.capacity,
    window: config.window,
    sinkTokens: config.sinkTokens,
    type: DTYPES.indexOf(config.dtype),
  };
  CACHE_SLOTS.forEach((slot, i) => {
    f64[core.slots + i] = values[slot];
  });
  return wrap(call, core, config, core.alive(call).KvCache.create(core.block));
}

/** The constructor is private to the package: this is set below, where the class can be seen. */
let construct: (core: Core, config: CacheConfig, raw: RawKvCache) => KvCache;

function wrap(call: string, core: Core, config: CacheConfig, raw: RawKvCache | null): KvCache {
  if (raw === null) throw core.constructionFailure(call);
  return construct(core, config, raw);
}

/** Keys and values of earlier tokens, in WASM memory. */
export class KvCache {
  readonly config: CacheConfig;
  readonly #core: Core;
  readonly #handle: Handle<RawKvCache>;

  static {
    construct = (core, config, raw) => new KvCache(core, config, raw);
  }

  /** A cache for scaledDotProductAttention(); layers make theirs with createCache(). */
  static create(options: KvCacheOptions): KvCache {
    const o = checkOptions<KvCacheOptions>(CREATE, options, ALL_NAMES);
    const headDim = checkWhole(CREATE, 'headDim', o.headDim);
    const config = resolve(CREATE, o, {
      numKvHeads: checkWhole(CREATE, 'numKvHeads', o.numKvHeads),
      headDim,
      vHeadDim: o.vHeadDim === undefined ? headDim : checkWhole(CREATE, 'vHeadDim', o.vHeadDim),
    });
    return make(CREATE, coreFor(CREATE, o.runtime), config);
  }

  private constructor(core: Core, config: CacheConfig, raw: RawKvCache) {
    checkConstruction(NAME, core, 'createCache() of the layer, or KvCache.create()');
    this.config = Object.freeze({ ...config });
    this.#core = core;
    this.#handle = new Handle(this, NAME, core, raw);
    insides.set(this, { core, handle: this.#handle });
  }

  get disposed(): boolean {
    return this.#handle.disposed;
  }
  /** Tokens that entry 0 has taken in: where its next one stands. */
  get length(): number {
    return this.#open('length').length(0);
  }
  /** The same of every entry. */
  get lengths(): number[] {
    const raw = this.#open('lengths');
    return lengthsOf(this.config, raw);
  }
  /** Tokens that an entry may take in; Infinity for a rolling cache. */
  get capacity(): number {
    return this.config.window > 0 ? Infinity : this.config.capacity;
  }
  /** Memory of the keys and values; it does not change. */
  get bytes(): number {
    return this.#open('bytes').bytes();
  }

  /** Whether entry b still holds the token at this position. */
  holds(position: number, b = 0): boolean {
    const call = `${NAME}.holds()`;
    const raw = this.#handle.get(call);
    return raw.holds(this.#entry(call, b), checkWhole(call, 'position', position, { least: 0 }));
  }

  /**
   * Appends rows of key [B, Hkv, n, D] and value [B, Hkv, n, Dv]; without the batch axis for one entry. `counts`, [B]:
   * how many rows of each entry are tokens; default all n.
   */
  append(key: Tensor, value: Tensor, counts?: Int32Array | readonly number[]): void {
    const call = `${NAME}.append()`;
    this.#handle.get(call);
    const keys = readTensor(call, 'key', key);
    const values = readTensor(call, 'value', value);
    const { batch, numKvHeads, headDim, vHeadDim } = this.config;
    const n = keys.shape.at(-2) ?? 0;
    this.#checkShape(call, 'key.shape', keys.shape, [batch, numKvHeads, n, headDim]);
    this.#checkShape(call, 'value.shape', values.shape, [batch, numKvHeads, n, vHeadDim]);
    const list = counts === undefined ? undefined : this.#perEntry(call, 'counts', counts, n);
    const raw = this.#handle.get(call);
    checkRoom(call, { config: this.config, lengths: lengthsOf(this.config, raw) }, n, list);
    const core = this.#core;
    core.exclusively(call, () => {
      core.begin();
      const [keyAt, valueAt] = [core.place(4 * keys.length), core.place(4 * values.length)];
      const countsAt = core.place(4 * batch);
      const base = core.commit(call, () => `${batch} x ${numKvHeads} x ${n} keys and values`);
      const module = core.alive(call);
      const place = (name: string, { data, length }: typeof keys, at: number): void =>
        module.HEAPF32.set(checkedView(call, `${name}.data`, Float32Array, data, length), (base + at) / 4);
      place('key', keys, keyAt);
      place('value', values, valueAt);
      if (list !== undefined) module.HEAP32.set(list, (base + countsAt) / 4);
      const f64 = module.HEAPF64;
      f64.fill(0, core.slots, core.slots + ATTENTION_SLOTS.length);
      const set = (slot: keyof typeof ATTENTION, x: number): void => void (f64[core.slots + ATTENTION[slot]] = x);
      set('batch', batch);
      set('keyLength', n);
      set('numKvHeads', numKvHeads);
      set('headDim', headDim);
      set('vHeadDim', vHeadDim);
      for (const [name, at, width] of [['key', keyAt, headDim] as const, ['value', valueAt, vHeadDim] as const]) {
        set(name, base + at);
        set(`${name}BatchStride`, numKvHeads * n * width);
        set(`${name}HeadStride`, n * width);
        set(`${name}RowStride`, width);
      }
      core.check(call, raw.append(core.block, list === undefined ? 0 : base + countsAt));
    });
  }

  /** Forgets the tokens from position `length` on, of entry b or of all. */
  crop(length: number, b?: number): void {
    const call = `${NAME}.crop()`;
    const raw = this.#handle.get(call);
    this.#core.checkIdle(call);
    const entries = b === undefined ? this.lengths.map((_, i) => i) : [this.#entry(call, b)];
    const { window, sinkTokens } = this.config;
    for (const entry of entries) {
      const most = raw.length(entry);
      const wayOut = `entry ${entry} holds ${most} tokens`;
      checkWhole(call, 'length', length, { least: 0, most, wayOut });
      // The oldest token that a query at the new end would see.
      const oldest = Math.max(sinkTokens, length - window);
      if (window === 0 || oldest >= length || raw.holds(entry, oldest)) continue;
      throw rangeError({
        call,
        argument: 'length',
        got: String(length),
        wanted: `one whose window is still held: entry ${entry} of this rolling cache has dropped token ${oldest}`,
        wayOut: 'crop by less, or keep a fork()',
      });
    }
    for (const entry of entries) this.#core.check(call, raw.crop(entry, length));
  }

  /** A copy with its own memory. */
  fork(): KvCache {
    const call = `${NAME}.fork()`;
    const raw = this.#handle.get(call);
    this.#core.use(call);
    return wrap(call, this.#core, this.config, raw.fork());
  }

  /** Entry b becomes what entry indices[b] is, as beam search wants it. */
  reorder(indices: Int32Array | readonly number[]): void {
    const call = `${NAME}.reorder()`;
    this.#handle.get(call);
    const list = this.#perEntry(call, 'indices', indices, this.config.batch - 1);
    const raw = this.#handle.get(call);
    const core = this.#core;
    core.exclusively(call, () => {
      core.begin();
      core.place(4 * list.length);
      const base = core.commit(call, () => `${list.length} entries`);
      core.alive(call).HEAP32.set(list, base / 4);
      core.check(call, raw.reorder(base));
    });
  }

  /** Forgets all tokens. */
  clear(): void {
    const call = `${NAME}.clear()`;
    const raw = this.#handle.get(call);
    this.#core.checkIdle(call);
    raw.clear();
  }

  /** What is held, as a safetensors file; bits are kept. */
  save(): Uint8Array {
    const call = `${NAME}.save()`;
    const access = this.#fileAccess(call);
    return this.#core.exclusively(call, () => saveCache(access));
  }

  /** Takes what save() gave, from a cache of the same sizes and dtype. On an error nothing has changed. */
  restore(bytes: ArrayBuffer | Uint8Array): void {
    const call = `${NAME}.restore()`;
    const access = this.#fileAccess(call);
    this.#core.exclusively(call, () => restoreCache(access, bytes));
  }

  /** Frees the memory. A second call does nothing. */
  dispose(): void {
    this.#handle.dispose();
  }
  [DISPOSE](): void {
    this.dispose();
  }

  #open(what: string): RawKvCache {
    return this.#handle.get(`${NAME}.${what}`);
  }

  #fileAccess(call: string): CacheFileAccess {
    return { call, core: this.#core, raw: this.#handle.get(call), config: this.config };
  }

  #entry(call: string, b: unknown): number {
    const most = this.config.batch - 1;
    return checkWhole(call, 'b', b, { least: 0, most, wayOut: 'entries are counted from 0' });
  }

  #checkShape(call: string, argument: string, shape: readonly number[], wanted: readonly number[]): void {
    // One entry needs no batch axis.
    const full = shape.length === 3 && this.config.batch === 1 ? [1, ...shape] : shape;
    if (full.length === 4 && full.every((size, i) => size === wanted[i])) return;
    throw rangeError(
      {
        call,
        argument,
        got: showShape(shape),
        wanted: `${showShape(wanted)}, [batch, key/value heads, tokens, head size]`,
        wayOut: 'key and value have the same number of tokens',
      },
      'wrong-shape',
    );
  }

  #perEntry(call: string, argument: string, value: unknown, most: number): Int32Array {
    const { batch } = this.config;
    const wanted = 'an Array or Int32Array with one number for each entry';
    const { list, length } = readIntegerList(call, argument, value, wanted);
    if (length !== batch) {
      throw rangeError(
        {
          call,
          argument,
          got: `${length} long`,
          wanted: `${batch} long, one for each entry`,
          wayOut: 'give a number for every entry of the batch',
        },
        'wrong-shape',
      );
    }
    const copy = new Int32Array(batch);
    for (let b = 0; b < batch; ++b) copy[b] = checkWhole(call, `${argument}[${b}]`, list[b], { least: 0, most });
    return copy;
  }
}
