// The raw Embind module: numbers and offsets, no checks. Nothing outside this package should see these types; the
// loose edges of the binding end here.

/** An Embind object: freed by delete(), never by the garbage collector. */
export interface RawHandle {
  delete(): void;
}

export interface RawMultiHeadAttention extends RawHandle {
  setWeights(weightBlock: number): number;
  getWeights(weightBlock: number): number;
  reserve(batch: number, queryLength: number, keyLength: number): number;
  reserveCached(batch: number, queryLength: number, cache: RawKvCache): number;
  forward(attentionBlock: number): number;
  forwardCached(attentionBlock: number, cache: RawKvCache): number;
  projectHeads(attentionBlock: number): number;
  projectHeadsCached(attentionBlock: number, cache: RawKvCache): number;
}

export interface RawKvCache extends RawHandle {
  fork(): RawKvCache | null;
  /** counts: int32 [batch], or 0 for all rows. */
  append(attentionBlock: number, counts: number): number;
  crop(b: number, length: number): number;
  /** oldest: behind the sink tokens, the first that was written. */
  setLength(b: number, length: number, oldest: number): number;
  /** source: int32 [batch]. */
  reorder(source: number): number;
  clear(): void;
  length(b: number): number;
  holds(b: number, position: number): boolean;
  bytes(): number;
  read: RawCacheRows;
  write: RawCacheRows;
}
/** Rows of the storage type; the scales are of int8 rows, 0 otherwise. */
export type RawCacheRows = (
  b: number,
  head: number,
  first: number,
  count: number,
  key: number,
  keyScale: number,
  value: number,
  valueScale: number,
) => number;

export interface RawBlockMask extends RawHandle {
  /** For the slot of an attention block. */
  address(): number;
  bytes(): number;
  emptyBlocks(): number;
  fullBlocks(): number;
  partialBlocks(): number;
}

/** scores: offset of the tile's first score. */
export type RawScoreTile = (
  entry: number,
  head: number,
  row: number,
  queryPosition: number,
  keyPosition: number,
  rows: number,
  keys: number,
  scores: number,
  stride: number,
) => void;

export interface RawLinear extends RawHandle {
  setWeights(weight: number, bias: number): number;
  getWeights(weight: number, bias: number): number;
  reserve(rows: number): number;
  forward(input: number, rows: number, output: number): number;
}

export interface RawModule {
  // Fresh views: memory growth replaces them, so they are read anew after every call that may allocate.
  readonly HEAPU8: Uint8Array;
  readonly HEAP32: Int32Array;
  readonly HEAPF32: Float32Array;
  readonly HEAPF64: Float64Array;

  readonly MultiHeadAttention: { create(configBlock: number): RawMultiHeadAttention | null };
  readonly Linear: {
    create(inFeatures: number, outFeatures: number, bias: number, seed: number): RawLinear | null;
  };
  readonly KvCache: { create(cacheBlock: number): RawKvCache | null };
  readonly BlockMask: {
    /** bits: uint32 [batch, heads, queries, ceil(keys / 32)]. */
    create(
      batch: number,
      heads: number,
      firstQuery: number,
      queries: number,
      keys: number,
      bits: number,
    ): RawBlockMask | null;
  };
  /** Called for each tile of scores of a call whose block says so. It must not throw. */
  scoreTile: RawScoreTile | undefined;
  scaledDotProductAttention(attentionBlock: number): number;
  cachedAttention(attentionBlock: number, cache: RawKvCache): number;
  attentionTile(attentionBlock: number, tileBlock: number): number;
  reserveAttention(
    queryLength: number,
    keyLength: number,
    headDim: number,
    vHeadDim: number,
    extraKeys: number,
  ): number;
  /** parts: `count` pairs of offsets, output and lse. */
  mergeAttention(parts: number, count: number, rows: number, cols: number, output: number, lse: number): number;
  rotaryEmbedding(turnBlock: number): number;

  /** Offset of `bytes` bytes aligned to 64, or 0 when memory is exhausted. */
  allocate(bytes: number): number;
  release(offset: number): void;
  releaseWorkspace(): void;
  lastError(): string;
  slotNames(): string;
  version(): string;
  simdTarget(): string;
}

/**
 * What the Emscripten factory takes: TypeScript compiles the .wasm and hands the instance in.
 * @internal
 */
export interface RawModuleOptions {
  instantiateWasm(
    imports: WebAssembly.Imports,
    receive: (instance: WebAssembly.Instance) => void,
  ): Record<string, never>;
}
/** @internal */
export type CreateModule = (options: RawModuleOptions) => Promise<RawModule>;

/** Status codes of the core. */
export const STATUS = { ok: 0, invalidConfig: 1, invalidArgument: 2, shapeMismatch: 3, outOfMemory: 4 } as const;

// The blocks of float64 slots, in the order of cpp/bindings/call_blocks.h. load() compares the lists with what the
// module says, so a .wasm of another version cannot be called with shifted arguments.
export const ATTENTION_SLOTS = [
  'batch',
  'queryLength',
  'keyLength',
  'numHeads',
  'numKvHeads',
  'headDim',
  'vHeadDim',
  'query',
  'queryBatchStride',
  'queryHeadStride',
  'queryRowStride',
  'key',
  'keyBatchStride',
  'keyHeadStride',
  'keyRowStride',
  'value',
  'valueBatchStride',
  'valueHeadStride',
  'valueRowStride',
  'output',
  'outputBatchStride',
  'outputHeadStride',
  'outputRowStride',
  'attendMask',
  'attendMaskBatch',
  'attendMaskHeads',
  'attendMaskRows',
  'attendMaskKeys',
  'attnBias',
  'attnBiasBatch',
  'attnBiasHeads',
  'attnBiasRows',
  'attnBiasKeys',
  'keyPaddingMask',
  'keyLengths',
  'queryLengths',
  'causal',
  'queryOffsets',
  'scale',
  'emptyRows',
  'weights',
  'weightsKind',
  'lse',
  'rowMax',
  'scores',
  'scoresKind',
  'softcap',
  'alibiSlopes',
  'sinks',
  'headGates',
  'windowLeft',
  'windowRight',
  'attentionChunk',
  'prefixLengths',
  'extraKey',
  'extraValue',
  'extraBatch',
  'extraRows',
  'packedSequences',
  'cumulativeQueryLengths',
  'cumulativeKeyLengths',
  'blockMask',
  'scoreMod',
  'headOutputs',
  'outputGate',
  'qkNorm',
  'queryNorm',
  'keyNorm',
  'normEpsilon',
  'rotary',
  'queryPositions',
  'keyPositions',
  'queryHeads',
  'keyHeads',
  'valueHeads',
] as const;

export const CONFIG_SLOTS = [
  'embedDim',
  'numHeads',
  'numKvHeads',
  'headDim',
  'vHeadDim',
  'kDim',
  'vDim',
  'outDim',
  'queryBias',
  'keyBias',
  'valueBias',
  'outBias',
  'scale',
  'seed',
  'addBiasKv',
  'addZeroAttn',
] as const;

export const WEIGHT_SLOTS = [
  'queryWeight',
  'queryBias',
  'keyWeight',
  'keyBias',
  'valueWeight',
  'valueBias',
  'outWeight',
  'outBias',
  'biasK',
  'biasV',
] as const;

export const ROTARY_SLOTS = [
  'dim',
  'interleaved',
  'base',
  'scaling',
  'factor',
  'originalLength',
  'betaFast',
  'betaSlow',
  'lowFrequencyFactor',
  'highFrequencyFactor',
  'axes',
  'section0',
  'section1',
  'section2',
  'section3',
] as const;

export const TURN_SLOTS = [
  'x',
  'xBatch',
  'xHeads',
  'xRows',
  'xCols',
  'xBatchStride',
  'xHeadStride',
  'xRowStride',
  'positions',
  'offsets',
  'config',
  'cos',
  'sin',
  'tableRows',
  'halfDim',
  'tableInterleaved',
] as const;

export const CACHE_SLOTS = [
  'cacheBatch',
  'cacheKvHeads',
  'cacheHeadDim',
  'cacheVHeadDim',
  'capacity',
  'window',
  'sinkTokens',
  'type',
] as const;

export const TILE_SLOTS = [
  'kind',
  'batchEntry',
  'head',
  'rowBegin',
  'rowEnd',
  'keyBegin',
  'keyEnd',
  'savedLse',
  'tile',
] as const;

export type AttentionSlot = (typeof ATTENTION_SLOTS)[number];
export type ConfigSlot = (typeof CONFIG_SLOTS)[number];
export type WeightSlot = (typeof WEIGHT_SLOTS)[number];
export type RotarySlot = (typeof ROTARY_SLOTS)[number];
export type TurnSlot = (typeof TURN_SLOTS)[number];
export type CacheSlot = (typeof CACHE_SLOTS)[number];
export type TileSlot = (typeof TILE_SLOTS)[number];

const indexOf = <T extends string>(names: readonly T[]): Readonly<Record<T, number>> =>
  Object.fromEntries(names.map((name, i) => [name, i])) as Record<T, number>;

/** Position of each slot in its block. */
export const ATTENTION = /* @__PURE__ */ indexOf(ATTENTION_SLOTS);
export const CONFIG = /* @__PURE__ */ indexOf(CONFIG_SLOTS);

/** Blocks that go beside an attention block have a place of their own: none is larger. */
export const SIDE_SLOTS = 16;

/** slotNames() of the module these lists were written for. */
export const expectedSlotNames = (): string =>
  [ATTENTION_SLOTS, CONFIG_SLOTS, WEIGHT_SLOTS, ROTARY_SLOTS, TURN_SLOTS, CACHE_SLOTS, TILE_SLOTS]
    .map((names) => `${names.join(' ')} |`)
    .join('');
