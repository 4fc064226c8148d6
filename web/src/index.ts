// The public surface of the package, for browsers and for bundlers. Node gets node.ts, which adds reading files.
/// <reference lib="esnext.disposable" preserve="true" />
export { alibiSlopes } from './alibi.js';
export type { ForwardResult, WeightedResult } from './attention-call.js';
export {
  type AttentionTileOptions,
  type Range,
  type ScoreOptions,
  type TileKind,
  attentionTile,
} from './attention-tile.js';
export {
  type BlockCounts,
  type BlockMaskOptions,
  type BlockSparseOptions,
  type DocumentIds,
  BlockMask,
} from './block-mask.js';
export {
  type ErrorCode,
  type LoadErrorCode,
  HeadwiseError,
  HeadwiseLoadError,
  HeadwiseMemoryError,
  HeadwiseRangeError,
  HeadwiseTypeError,
  SafetensorsError,
  StateDictError,
  UseAfterDisposeError,
  isHeadwiseError,
} from './errors.js';
export { type Features, detectFeatures } from './features.js';
export type { ForwardOptions, NeedsWeights, PerBatch } from './forward-options.js';
export { type HeadStatistics, type InspectOptions, type InspectResult, headStatistics, inspect } from './inspect.js';
export {
  type CacheConfig,
  type CacheDType,
  type CreateCacheOptions,
  type KvCacheOptions,
  KvCache,
} from './kv-cache.js';
export type { LayerForwardOptions } from './layer-call-options.js';
export type { LayerInspectOptions, LayerScoreOptions, ProjectHeadsOptions, ProjectedHeads } from './layer-inspect.js';
export type { MultiHeadAttentionOptions, ProjectionBias, ResolvedLayer } from './layer-options.js';
export { type LinearForwardOptions, type LinearOptions, Linear } from './linear.js';
export { type CompiledModule, type LoadOptions, load } from './load.js';
export type { MaskMod, MaskShape } from './mask-mod.js';
export { type AttentionPart, type MergeAttentionOptions, mergeAttention } from './merge-attention.js';
export { type BorrowedViews, type BufferSizes, MultiHeadAttention } from './multi-head-attention.js';
export { type BucketBiasOptions, type WindowBiasOptions, relativePositionBias } from './position-bias.js';
export { type RotaryEmbeddingOptions, rotaryEmbedding } from './rotary-embedding.js';
export type { Rope, RopeOptions, RopeScaling } from './rope-options.js';
export type { Runtime, RuntimeReport, Variant } from './runtime.js';
export { type AttentionOptions, type HeadsLayout, scaledDotProductAttention } from './scaled-dot-product-attention.js';
export { type ScoreMod, type ScoreTile, perScore } from './score-mod.js';
export type { Window } from './score-options.js';
export type { LoadStateDictOptions, LoadStateDictResult, StateDictOptions } from './state-dict.js';
export type { DType, StateDict, StoredArrays, StoredTensor } from './stored-tensor.js';
export type { MaskTensor, Tensor } from './tensor.js';
export { VERSION as version } from './version.js';
export type { LayoutName } from './weight-layouts.js';
