// The public surface of the package, for browsers and for bundlers. Node gets node.ts, which adds reading files.
/// <reference lib="esnext.disposable" preserve="true" />
export type { ForwardResult, WeightedResult } from './attention-call.js';
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
export type { MultiHeadAttentionOptions, ProjectionBias, ResolvedLayer } from './layer-options.js';
export { type LinearForwardOptions, type LinearOptions, Linear } from './linear.js';
export { type CompiledModule, type LoadOptions, load } from './load.js';
export { type BorrowedViews, type BufferSizes, MultiHeadAttention } from './multi-head-attention.js';
export type { Runtime, RuntimeReport, Variant } from './runtime.js';
export { type AttentionOptions, type HeadsLayout, scaledDotProductAttention } from './scaled-dot-product-attention.js';
export type { LoadStateDictOptions, LoadStateDictResult, StateDictOptions } from './state-dict.js';
export type { DType, StateDict, StoredArrays, StoredTensor } from './stored-tensor.js';
export type { MaskTensor, Tensor } from './tensor.js';
export { VERSION as version } from './version.js';
export type { LayoutName } from './weight-layouts.js';
