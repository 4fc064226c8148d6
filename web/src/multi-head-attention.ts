// The layer: checks, memory and ownership. The arithmetic is the core's.
import { checkChoice, checkOptions, checkWhole } from './arguments.js';
import {
  AttentionCall,
  type AttentionGeometry,
  type AttentionViews,
  type ForwardResult,
  type WeightedResult,
} from './attention-call.js';
import { type Tiles, openTiles, pickScoreOptions } from './attention-tile.js';
import type { CacheFacts } from './cache-options.js';
import type { AttentionPlan } from './call-plan.js';
import { ignoreRejection } from './callbacks.js';
import type { Core } from './core.js';
import { describe } from './describe.js';
import { DISPOSE } from './dispose.js';
import { UseAfterDisposeError, rangeError, typeError } from './errors.js';
import { type CallDefaults, type NeedsWeights, planOptions } from './forward-options.js';
import { Handle } from './handle.js';
import { type HeadStatistics, type InspectResult, inspectTiles, statisticsOf } from './inspect.js';
import type { KvCache } from './kv-cache.js';
import { type CreateCacheOptions, type OpenCache, createCache, openCache } from './kv-cache.js';
import {
  type LayerCall,
  type LayerForwardOptions,
  LAYER_CALL_NAMES,
  cachedKeyLength,
  checkLayerCache,
  checkRollingQueries,
  planLayerOptions,
} from './layer-call-options.js';
import {
  type LayerInspectOptions,
  type LayerScoreOptions,
  type ProjectHeadsOptions,
  type ProjectedHeads,
  PROJECT_NAMES,
  checkInspectOptions,
  checkTurns,
  noValues,
  planHeads,
} from './layer-inspect.js';
import { type MultiHeadAttentionOptions, type ResolvedLayer, resolveLayer } from './layer-options.js';
import { type LayerInputs, checkLayerInputs, extraKeys, layerGeometry } from './layer-inputs.js';
import { type LoadOptions, runtimeOf } from './load.js';
import {
  CONFIG,
  CONFIG_SLOTS,
  type ConfigSlot,
  type RawKvCache,
  type RawMultiHeadAttention,
  WEIGHT_SLOTS,
} from './raw.js';
import { coreFor } from './runtime.js';
import {
  type LoadStateDictOptions,
  type LoadStateDictResult,
  type StateDictOptions,
  checkLoadOptions,
  checkSaveOptions,
  planStateDict,
  readParameters,
  writeParameters,
} from './state-dict.js';
import type { StateDict } from './stored-tensor.js';
import type { Tensor, TensorInput } from './tensor.js';
import {
  LAYOUT_NAMES,
  type OwnSlot,
  type ParameterSlot,
  type WeightLayout,
  parameters,
  weightLayout,
} from './weight-layouts.js';
import { withParameters } from './weight-memory.js';

/** What withBuffers() lays out. */
export interface BufferSizes {
  /** B. Absent: unbatched. */
  readonly batch?: number | undefined;
  /** L. */
  readonly queryLength: number;
  /** S. Absent: self-attention, where query, key and value are one array. */
  readonly keyLength?: number | undefined;
  /**
   * Of every run(). Not `out`, whose place the output view has, nor `cache`, to which each run() would append: both
   * throw code 'conflict'. For decoding with a cache there is forward().
   */
  readonly options?: Omit<LayerForwardOptions, 'out' | 'cache'> | undefined;
}

/** Arrays inside WASM memory, alive until the callback of withBuffers() returns. */
export interface BorrowedViews extends AttentionViews {
  /** Computes `output` (and weights, lse and so on) from what query, key and value hold. */
  run(): void;
}

const NAME = 'MultiHeadAttention';
const NEW = `new ${NAME}()`;
const FORWARD = `${NAME}.forward()`;
const PROJECT_HEADS = `${NAME}.projectHeads()`;
const INSPECT = `${NAME}.inspect()`;
const HEAD_STATISTICS = `${NAME}.headStatistics()`;
const CREATE_CACHE = `${NAME}.createCache()`;
const WITH_BUFFERS = `${NAME}.withBuffers()`;
const BUFFER_NAMES: ReadonlySet<string> = new Set([
  'batch',
  'queryLength',
  'keyLength',
  'options',
] satisfies (keyof BufferSizes)[]);

/** Multi-head attention with its four projections, in one WASM call. */
export class MultiHeadAttention {
  /** The layer's sizes, defaults filled in. */
  readonly config: ResolvedLayer;
  readonly #layer: ResolvedLayer;
  readonly #defaults: CallDefaults;
  readonly #core: Core;
  readonly #handle: Handle<RawMultiHeadAttention>;
  // Parameters that each call hands to the core; the core's own are those of the projections.
  readonly #sinks: Float32Array | undefined;
  readonly #norms: { readonly query: Float32Array; readonly key: Float32Array } | undefined;
  #reservedBatch = -1;
  #reservedQueries = -1;
  #reservedKeys = -1;
  #reservedEpoch = 0;

  /** Loads the module when that has not happened yet, then makes a layer. */
  static async create(options: MultiHeadAttentionOptions, loadOptions?: LoadOptions): Promise<MultiHeadAttention> {
    const call = `${NAME}.create()`;
    const { runtime, ...layer } = resolveLayer(call, options);
    return new MultiHeadAttention({ ...layer, runtime: await runtimeOf(call, runtime, loadOptions) });
  }

  /** Weights start as PyTorch initialises them, from `seed`. Needs a loaded runtime. */
  constructor(options: MultiHeadAttentionOptions) {
    const { runtime, ...layer } = resolveLayer(NEW, options);
    this.#core = coreFor(NEW, runtime);
    const module = this.#core.use(NEW);
    const f64 = module.HEAPF64;
    for (const name of CONFIG_SLOTS) f64[this.#core.slots + CONFIG[name]] = configSlot(layer, name);
    const raw = module.MultiHeadAttention.create(this.#core.block);
    if (raw === null) throw this.#core.constructionFailure(NEW);
    this.#layer = layer;
    const { emptyRows, softcap, alibi, window, rope, headDim } = layer;
    this.#sinks = layer.sinks?.slice();
    // NaN: the core holds the layer's scale.
    this.#defaults = { scale: NaN, emptyRows, softcap, alibi, sinks: this.#sinks, window, rope };
    if (layer.qkNorm !== undefined) {
      this.#norms = { query: new Float32Array(headDim).fill(1), key: new Float32Array(headDim).fill(1) };
    }
    this.config = Object.freeze({ ...layer, bias: Object.freeze({ ...layer.bias }) });
    this.#handle = new Handle(this, NAME, this.#core, raw);
  }

  get disposed(): boolean {
    return this.#handle.disposed;
  }

  /** Self-attention of x [B, L, E] or [L, E]. */
  forward(x: Tensor, options: LayerForwardOptions & NeedsWeights): WeightedResult;
  /** Self-attention of x [B, L, E] or [L, E]. */
  forward(x: Tensor, options?: LayerForwardOptions): ForwardResult;
  /** Attention of query [B, L, E] over key [B, S, kDim], which also serves as value. */
  forward(query: Tensor, key: Tensor | undefined, options: LayerForwardOptions & NeedsWeights): WeightedResult;
  /** Attention of query [B, L, E] over key [B, S, kDim], which also serves as value. */
  forward(query: Tensor, key: Tensor | undefined, options?: LayerForwardOptions): ForwardResult;
  /** Attention of query [B, L, E] over key [B, S, kDim] and value [B, S, vDim]; all three without B is fine, too. */
  forward(
    query: Tensor,
    key: Tensor | undefined,
    value: Tensor | undefined,
    options: LayerForwardOptions & NeedsWeights,
  ): WeightedResult;
  /** Attention of query [B, L, E] over key [B, S, kDim] and value [B, S, vDim]; all three without B is fine, too. */
  forward(
    query: Tensor,
    key: Tensor | undefined,
    value: Tensor | undefined,
    options?: LayerForwardOptions,
  ): ForwardResult;
  forward(input: Tensor, ...rest: unknown[]): ForwardResult {
    this.#handle.get(FORWARD);
    const inputs = checkLayerInputs(FORWARD, this.#layer, input, rest);
    const { options } = inputs;
    return this.#forward(
      FORWARD,
      inputs,
      options === undefined ? undefined : checkOptions<LayerForwardOptions>(FORWARD, options, LAYER_CALL_NAMES),
    );
  }

  /** The heads of self-attention of x [B, L, E] or [L, E]. */
  projectHeads(x: Tensor, options?: ProjectHeadsOptions): ProjectedHeads;
  /** The heads of query [B, L, E] and key [B, S, kDim], which also serves as value. */
  projectHeads(query: Tensor, key: Tensor | undefined, options?: ProjectHeadsOptions): ProjectedHeads;
  /**
   * The heads that forward() attends with, the same bits: projected, with bias, normalised (qkNorm) and turned (rope).
   * query [B, L, E], key [B, S, kDim], value [B, S, vDim] give [B, H, L, D], [B, Hkv, S, D], [B, Hkv, S, Dv], without B
   * when the inputs are; scaledDotProductAttention() and inspect() take them. The layer's own extra keys (addBiasKv,
   * addZeroAttn) are not among them. With a cache they stand behind what it holds; nothing is appended. Throws code
   * 'wrong-shape' for other sizes, and 'conflict' for positions without rope.
   */
  projectHeads(
    query: Tensor,
    key: Tensor | undefined,
    value: Tensor | undefined,
    options?: ProjectHeadsOptions,
  ): ProjectedHeads;
  projectHeads(input: Tensor, ...rest: unknown[]): ProjectedHeads {
    this.#handle.get(PROJECT_HEADS);
    const inputs = checkLayerInputs(PROJECT_HEADS, this.#layer, input, rest);
    const o = checkOptions<ProjectHeadsOptions>(PROJECT_HEADS, inputs.options, PROJECT_NAMES);
    checkTurns(PROJECT_HEADS, this.#layer, o);
    const { query, key, value } = this.#project(PROJECT_HEADS, inputs, o, true);
    return { query, key, value: value as Tensor };
  }

  /** What self-attention of x [B, L, E] or [L, E] looks at. */
  inspect(x: Tensor, options?: LayerInspectOptions): InspectResult;
  /**
   * Any part of the weights or scores of forward(query, key, …): rows, heads, largest weights, entropy, means of
   * blocks, at the cost of memory for what is asked. query [B, L, E], key [B, S, kDim]; options as in that call, those
   * of the layer being defaults, and those of the function inspect(). Columns are the S keys: the layer's own
   * (addBiasKv, addZeroAttn) take their share of the weights and have none. `lse` is what forward() returned with
   * returnLse; left away, forward() is run for it. Throws code 'conflict' for a cache.
   */
  inspect(query: Tensor, key: Tensor | undefined, options?: LayerInspectOptions): InspectResult;
  inspect(input: Tensor, ...rest: unknown[]): InspectResult {
    this.#handle.get(INSPECT);
    const inputs = checkLayerInputs(INSPECT, this.#layer, input, rest, 'key');
    const o = checkInspectOptions(INSPECT, inputs.options, 'inspect');
    return inspectTiles(INSPECT, o, () => this.#openTiles(INSPECT, inputs, o));
  }

  /** What each head of self-attention of x [B, L, E] or [L, E] tends to look at. */
  headStatistics(x: Tensor, options?: LayerScoreOptions): HeadStatistics;
  /** What each head tends to look at, [B, H] of each mean. Arguments and errors as of inspect(). */
  headStatistics(query: Tensor, key: Tensor | undefined, options?: LayerScoreOptions): HeadStatistics;
  headStatistics(input: Tensor, ...rest: unknown[]): HeadStatistics {
    this.#handle.get(HEAD_STATISTICS);
    const inputs = checkLayerInputs(HEAD_STATISTICS, this.#layer, input, rest, 'key');
    const o = checkInspectOptions(HEAD_STATISTICS, inputs.options, 'headStatistics');
    // Queries that see no key do not count, whatever they give.
    return statisticsOf(this.#openTiles(HEAD_STATISTICS, inputs, { ...o, emptyRows: 'zero' }));
  }

  /**
   * A cache of keys and values for this layer, so that a next token costs one row: give it to forward() as `cache`.
   * With `capacity` it takes that many tokens; with `window` any number, of which it keeps the last.
   */
  createCache(options: CreateCacheOptions): KvCache {
    const { numKvHeads, headDim, vHeadDim } = this.#layer;
    this.#handle.get(CREATE_CACHE);
    return createCache(CREATE_CACHE, this.#core, options, { numKvHeads, headDim, vHeadDim });
  }

  /**
   * Calls f with arrays that are WASM memory: fill query, key and value, run(), read output. Nothing is copied. The
   * arrays are dead when f returns: later calls write over them, and once the memory has grown they are empty. Until
   * then every other call that could move the memory throws code 'busy'.
   */
  withBuffers<R>(size: BufferSizes, f: (views: BorrowedViews) => R): R {
    this.#handle.get(WITH_BUFFERS);
    const o = checkOptions<BufferSizes>(WITH_BUFFERS, size, BUFFER_NAMES);
    const batched = o.batch !== undefined;
    const length = (name: 'batch' | 'queryLength' | 'keyLength'): number =>
      checkWhole(WITH_BUFFERS, name, o[name], { least: 0 });
    const batch = batched ? length('batch') : 1;
    const queryLength = length('queryLength');
    const selfAttention = o.keyLength === undefined;
    const keyLength = selfAttention ? queryLength : length('keyLength');
    if (typeof f !== 'function') {
      throw typeError({
        call: WITH_BUFFERS,
        argument: 'f',
        got: describe(f),
        wanted: 'a function that takes the views',
        wayOut: 'give ({ query, output, run }) => { … }',
      });
    }
    const { embedDim, kDim, vDim } = this.#layer;
    if (selfAttention && (kDim !== embedDim || vDim !== embedDim)) {
      throw rangeError(
        {
          call: WITH_BUFFERS,
          argument: 'keyLength',
          got: `left away for a layer with embedDim ${embedDim}, kDim ${kDim}, vDim ${vDim}`,
          wanted: 'given where keys or values have another width than queries',
          wayOut: 'give keyLength',
        },
        'wrong-shape',
      );
    }
    const geometry = layerGeometry(this.#layer, batched, batch, queryLength, keyLength);
    const callOptions =
      o.options === undefined
        ? undefined
        : checkOptions<LayerForwardOptions>(WITH_BUFFERS, o.options, LAYER_CALL_NAMES);
    for (const name of ['out', 'cache'] as const) {
      if (callOptions?.[name] === undefined) continue;
      const wayOut =
        name === 'out'
          ? 'read the output view, and copy it with slice() to keep it'
          : 'each run() would append: use forward() with a cache';
      const argument = `options.${name}`;
      throw typeError({ call: WITH_BUFFERS, argument, got: 'given', wanted: 'left away', wayOut }, 'conflict');
    }
    const [, plan] = this.#plan(WITH_BUFFERS, callOptions, geometry, batched, undefined, selfAttention);
    const call = new AttentionCall(this.#core, WITH_BUFFERS, geometry, plan);
    const raw = this.#handle.get(WITH_BUFFERS);
    this.#core.exclusively(WITH_BUFFERS, () =>
      call.prepare(selfAttention, selfAttention ? 'query' : 'own', () =>
        this.#reserve(WITH_BUFFERS, raw, geometry, undefined),
      ),
    );
    let open = true;
    const run = (): void => {
      const name = `${WITH_BUFFERS} run()`;
      if (!open) {
        throw new UseAfterDisposeError(
          `${name}: the views are dead, because the callback has returned; they must be used inside it; copy results` +
            ' with slice()',
        );
      }
      const alive = this.#handle.get(name);
      call.invoke((block) => alive.forward(block));
    };
    return this.#core.lend(WITH_BUFFERS, () => {
      try {
        const result = f({ ...call.views(), run });
        if (typeof (result as { then?: unknown } | null | undefined)?.then === 'function') {
          ignoreRejection(result);
          throw typeError({
            call: WITH_BUFFERS,
            argument: 'f',
            got: 'a function that returns a promise',
            wanted: 'synchronous: the views are dead when it returns',
            wayOut: 'await before or after, and copy results with slice()',
          });
        }
        return result;
      } finally {
        open = false;
      }
    });
  }

  /**
   * Takes the parameters by name: in_proj_weight or q_proj_weight, k_proj_weight, v_proj_weight; in_proj_bias;
   * out_proj.weight, out_proj.bias; or those of another layout. On an error nothing has changed.
   */
  loadStateDict(stateDict: StateDict, options?: LoadStateDictOptions): LoadStateDictResult {
    const call = `${NAME}.loadStateDict()`;
    this.#handle.get(call);
    const checked = checkLoadOptions(call, options);
    const plan = planStateDict(call, stateDict, this.#weightLayout(call, checked.layout), checked);
    const raw = this.#handle.get(call);
    withParameters(this.#core, call, parameters(this.#layer), (views, offsets) => {
      const block = this.#writeWeightBlock(call, offsets);
      if (plan.missing.length > 0) {
        this.#core.check(call, raw.getWeights(block));
        this.#ownParameters((slot, own) => views.get(slot)?.set(own));
      }
      writeParameters(call, plan, views);
      this.#core.check(call, raw.setWeights(block));
      this.#ownParameters((slot, own) => own.set(views.get(slot) ?? own));
    });
    return { missing: plan.missing, unexpected: plan.unexpected };
  }

  /** Copies of the parameters, under PyTorch's names or those of another layout. */
  stateDict(options?: StateDictOptions): Record<string, Tensor> {
    const call = `${NAME}.stateDict()`;
    this.#handle.get(call);
    const checked = checkSaveOptions(call, options);
    const layout = this.#weightLayout(call, checked.layout);
    const raw = this.#handle.get(call);
    return withParameters(this.#core, call, parameters(this.#layer), (views, offsets) => {
      this.#core.check(call, raw.getWeights(this.#writeWeightBlock(call, offsets)));
      this.#ownParameters((slot, own) => views.get(slot)?.set(own));
      return readParameters(layout, views, checked.prefix ?? '');
    });
  }

  /** Frees the memory. A second call does nothing. */
  dispose(): void {
    this.#handle.dispose();
  }
  [DISPOSE](): void {
    this.dispose();
  }

  #weightLayout(call: string, name: unknown): WeightLayout {
    const layout = name === undefined ? 'pytorch' : checkChoice(call, 'layout', name, LAYOUT_NAMES);
    return weightLayout(layout, this.#layer);
  }

  /** The parameters that live here and not in the core. */
  #ownParameters(f: (slot: OwnSlot, own: Float32Array) => void): void {
    if (this.#norms !== undefined) {
      f('queryNorm', this.#norms.query);
      f('keyNorm', this.#norms.key);
    }
    if (this.#sinks !== undefined) f('sinks', this.#sinks);
  }

  #forward(
    name: string,
    { query, key, value, geometry, batched }: LayerInputs,
    options: Partial<LayerForwardOptions> | undefined,
  ): ForwardResult {
    const cache = this.#openCache(name, options, geometry);
    const [sized, plan] = this.#plan(name, options, geometry, batched, cache, key === query);
    const call = new AttentionCall(this.#core, name, sized, plan);
    const sameValue = value === query ? 'query' : value === key ? 'key' : 'own';
    // Anew: a getter of the arguments may have disposed of the layer, or changed the cache.
    const raw = this.#handle.get(name);
    const rawCache = cache?.raw();
    // The tokens are in the cache before a scoreMod can fail.
    const checkpoint = plan.scoreMod === undefined ? undefined : cache?.checkpoint();
    try {
      const results = this.#core.exclusively(name, () => {
        call.prepare(key === query, sameValue, () => this.#reserve(name, raw, geometry, rawCache));
        call.writeInputs(query, key, value);
        call.invoke((block) => (rawCache === undefined ? raw.forward(block) : raw.forwardCached(block, rawCache)));
        return call.results();
      });
      checkpoint?.drop();
      return results;
    } catch (error) {
      checkpoint?.back();
      throw error;
    }
  }

  #project(
    name: string,
    { query, key, value, geometry, batched }: LayerInputs,
    options: Partial<ProjectHeadsOptions>,
    withValue: boolean,
  ): Pick<ProjectedHeads, 'query' | 'key'> & Partial<ProjectedHeads> {
    const { positions, keyPositions } = options;
    const cache = this.#openCache(name, options, geometry);
    const heads = planHeads(name, this.#layer, geometry, batched, withValue, options, factsOf(cache));
    const context = this.#callContext(batched, key === query, cache);
    const plan = planLayerOptions(name, { positions, keyPositions }, geometry, heads, context);
    const sized = { ...geometry, valueSize: withValue ? geometry.valueSize : 0, outputSize: 0 };
    const call = new AttentionCall(this.#core, name, sized, plan);
    const sameValue = value === query ? 'query' : value === key ? 'key' : 'own';
    const raw = this.#handle.get(name);
    const rawCache = cache?.raw();
    const results = this.#core.exclusively(name, () => {
      call.prepare(key === query, sameValue, () => this.#reserve(name, raw, geometry, undefined));
      call.writeInputs(query, key, value);
      call.invoke((block) =>
        rawCache === undefined ? raw.projectHeads(block) : raw.projectHeadsCached(block, rawCache),
      );
      return call.results();
    });
    const { queryHeads, keyHeads, valueHeads } = results;
    const made = { query: queryHeads as Tensor, key: keyHeads as Tensor };
    return valueHeads === undefined ? made : { ...made, value: valueHeads };
  }

  /** The tiles of what forward() would attend to. */
  #openTiles(name: string, inputs: LayerInputs, options: Partial<LayerInspectOptions>): Tiles {
    const { query, key } = this.#project(name, inputs, options, false);
    const { lse, positions, keyPositions, ...o } = options;
    // What forward() returns, so that what only it knows, extra keys, has its share.
    const computeLse = (): Tensor => {
      const value: TensorInput = noValues(inputs.key, this.#layer);
      const call = { ...pickScoreOptions(o), positions, keyPositions, returnLse: true };
      return this.#forward(name, { ...inputs, value }, call).lse as Tensor;
    };
    const defaults = { ...this.#defaults, scale: this.#layer.scale };
    return openTiles(name, query, key, { ...o, lse }, { core: this.#core, defaults, lse: computeLse });
  }

  #openCache(call: string, options: unknown, geometry: AttentionGeometry): OpenCache | undefined {
    const cache = (options as LayerForwardOptions | undefined)?.cache;
    if (cache === undefined) return undefined;
    const open = openCache(call, cache, this.#core);
    checkLayerCache(call, open, this.#layer, geometry);
    return open;
  }

  /** The options after all checks, and the geometry with the columns that a cache brings. */
  #plan(
    call: string,
    given: unknown,
    geometry: AttentionGeometry,
    batched: boolean,
    cache: OpenCache | undefined,
    selfAttention: boolean,
  ): readonly [AttentionGeometry, AttentionPlan] {
    const { batch, queryLength } = geometry;
    const held = cache === undefined ? undefined : cachedKeyLength(call, cache, given, geometry);
    const seen = held?.seen ?? geometry.keyLength;
    // The numbers that the columns were counted from: an Array could answer otherwise a second time.
    const options = held === undefined ? given : { ...(given as object), queryLengths: held.queryLengths };
    const sized =
      cache === undefined
        ? geometry
        : layerGeometry(this.#layer, batched, batch, queryLength, queryLength, seen + extraKeys(this.#layer));
    const plan = planOptions(call, options, { ...geometry, keyLength: seen, batched }, sized, {
      known: LAYER_CALL_NAMES,
      defaults: this.#defaults,
      cache: factsOf(cache),
    });
    if (cache !== undefined) checkRollingQueries(call, cache, queryLength, plan);
    const context = this.#callContext(batched, selfAttention, cache);
    return [sized, planLayerOptions(call, options, geometry, plan, context)];
  }

  #callContext(batched: boolean, selfAttention: boolean, cache: OpenCache | undefined): LayerCall {
    const norms = this.#norms && { ...this.#norms, epsilon: this.#layer.qkNorm?.epsilon ?? 0 };
    return { layer: this.#layer, batched, selfAttention, cached: cache !== undefined, norms };
  }

  #writeWeightBlock(call: string, offsets: ReadonlyMap<ParameterSlot, number>): number {
    const f64 = this.#core.alive(call).HEAPF64;
    WEIGHT_SLOTS.forEach((slot, i) => {
      f64[this.#core.slots + i] = offsets.get(slot) ?? 0;
    });
    return this.#core.block;
  }

  #reserve(
    call: string,
    raw: RawMultiHeadAttention,
    { batch, queryLength, keyLength }: AttentionGeometry,
    cache: RawKvCache | undefined,
  ): void {
    if (cache !== undefined) {
      this.#core.check(call, raw.reserveCached(batch, queryLength, cache));
      return;
    }
    // The scratch only grows, so a call of the same sizes needs no second asking.
    const epoch = this.#core.scratchEpoch;
    if (
      batch === this.#reservedBatch &&
      queryLength === this.#reservedQueries &&
      keyLength === this.#reservedKeys &&
      epoch === this.#reservedEpoch
    ) {
      return;
    }
    this.#core.check(call, raw.reserve(batch, queryLength, keyLength));
    this.#reservedBatch = batch;
    this.#reservedQueries = queryLength;
    this.#reservedKeys = keyLength;
    this.#reservedEpoch = epoch;
  }
}

/** Of a cache that the call's own tokens are still to join. */
const factsOf = (cache: OpenCache | undefined): CacheFacts | undefined =>
  cache && { window: cache.config.window, position: (b) => cache.lengths[b] as number };

function configSlot(layer: ResolvedLayer, slot: ConfigSlot): number {
  switch (slot) {
    case 'queryBias':
      return Number(layer.bias.query);
    case 'keyBias':
      return Number(layer.bias.key);
    case 'valueBias':
      return Number(layer.bias.value);
    case 'outBias':
      return Number(layer.bias.out);
    case 'addBiasKv':
    case 'addZeroAttn':
      return Number(layer[slot]);
    default:
      return layer[slot];
  }
}
