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
  forward(attentionBlock: number): number;
}

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
  scaledDotProductAttention(attentionBlock: number): number;
  reserveAttention(queryLength: number, keyLength: number, headDim: number, vHeadDim: number): number;

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
] as const;

export type AttentionSlot = (typeof ATTENTION_SLOTS)[number];
export type ConfigSlot = (typeof CONFIG_SLOTS)[number];
export type WeightSlot = (typeof WEIGHT_SLOTS)[number];

const indexOf = <T extends string>(names: readonly T[]): Readonly<Record<T, number>> =>
  Object.fromEntries(names.map((name, i) => [name, i])) as Record<T, number>;

/** Position of each slot in its block. */
export const ATTENTION = /* @__PURE__ */ indexOf(ATTENTION_SLOTS);
export const CONFIG = /* @__PURE__ */ indexOf(CONFIG_SLOTS);

/** slotNames() of the module these lists were written for. */
export const expectedSlotNames = (): string =>
  [ATTENTION_SLOTS, CONFIG_SLOTS, WEIGHT_SLOTS].map((names) => `${names.join(' ')} |`).join('');
