// How JavaScript hands arguments over: as blocks of float64 numbers in WASM
// memory, one slot an argument. A call then costs one Embind crossing with one
// number, whatever it carries. Offsets into WASM memory, sizes and enums are
// all exact in a float64.
//
// The lists below are the only place where the order is written; the
// TypeScript side keeps the same names and load() compares the two.
#ifndef HEADWISE_BINDINGS_CALL_BLOCKS_H_
#define HEADWISE_BINDINGS_CALL_BLOCKS_H_

#include <cstddef>
#include <cstdint>

namespace headwise {
namespace bindings {

// Strides are in elements. An offset of 0 means "not given".
// attendMask (bytes) and attnBias (float32) are contiguous with sizes
// [Batch, Heads, Rows, Keys], each 1 or the full one.
#define HEADWISE_ATTENTION_SLOTS(X)                                        \
  X(batch) X(queryLength) X(keyLength)                                     \
  X(numHeads) X(numKvHeads) X(headDim) X(vHeadDim)                         \
  X(query) X(queryBatchStride) X(queryHeadStride) X(queryRowStride)        \
  X(key) X(keyBatchStride) X(keyHeadStride) X(keyRowStride)                \
  X(value) X(valueBatchStride) X(valueHeadStride) X(valueRowStride)        \
  X(output) X(outputBatchStride) X(outputHeadStride) X(outputRowStride)    \
  X(attendMask) X(attendMaskBatch) X(attendMaskHeads) X(attendMaskRows)    \
  X(attendMaskKeys)                                                        \
  X(attnBias) X(attnBiasBatch) X(attnBiasHeads) X(attnBiasRows)            \
  X(attnBiasKeys)                                                          \
  X(keyPaddingMask) X(keyLengths) X(queryLengths)                          \
  X(causal)       /* 0 none, 1 start, 2 end */                             \
  X(queryOffsets) /* int32 [batch] */                                      \
  X(scale)        /* NaN: the default */                                   \
  X(emptyRows)    /* 0 zero, 1 nan */                                      \
  X(weights) X(weightsKind) /* 0 none, 1 averaged, 2 per head */           \
  X(lse) X(rowMax)                                                         \
  X(scores) X(scoresKind) /* 0 none, 1 raw, 2 capped, 3 biased */          \
  X(softcap)      /* 0: off */                                             \
  X(alibiSlopes)  /* float32 [numHeads] */                                 \
  X(sinks)        /* float32 [numHeads] */                                 \
  X(headGates)    /* float32 [numHeads] */                                 \
  X(windowLeft) X(windowRight) /* -1: unlimited */                         \
  X(attentionChunk) /* 0: off */                                           \
  X(prefixLengths) /* int32 [batch] */                                     \
  X(extraKey) X(extraValue) /* float32 [1 or batch, numKvHeads, n, dim] */ \
  X(extraBatch) X(extraRows)                                               \
  X(packedSequences) /* n; 0: not packed */                                \
  X(cumulativeQueryLengths) X(cumulativeKeyLengths) /* int32 [n + 1] */    \
  X(blockMask)    /* address() of a BlockMask */                           \
  X(scoreMod)     /* 1: the module's scoreTile */                          \
  /* What only a layer has. */                                             \
  X(headOutputs)  /* float32 [batch, queryLength, numHeads * vHeadDim] */  \
  X(outputGate)   /* likewise */                                           \
  X(qkNorm)       /* 0 or 1 */                                             \
  X(queryNorm) X(keyNorm) /* float32 [headDim] */                          \
  X(normEpsilon)                                                           \
  X(rotary)       /* a rotary block */                                     \
  X(queryPositions) X(keyPositions) /* int32 [axes, batch, length] */      \
  /* Of projectHeads: float32 [batch, heads, length, dim]. */              \
  X(queryHeads) X(keyHeads)                                                \
  X(valueHeads)   /* 0: left out */

// How queries and keys turn.
#define HEADWISE_ROTARY_SLOTS(X)                                           \
  X(dim) X(interleaved) X(base)                                            \
  X(scaling) /* 0 none, 1 linear, 2 ntk, 3 yarn, 4 llama3 */               \
  X(factor) X(originalLength) X(betaFast) X(betaSlow)                      \
  X(lowFrequencyFactor) X(highFrequencyFactor)                             \
  X(axes) X(section0) X(section1) X(section2) X(section3)

// Of rotaryEmbedding. With cos and sin (float32 [tableRows, halfDim]) the
// tables say how to turn, otherwise the rotary block does.
#define HEADWISE_TURN_SLOTS(X)                                             \
  X(x) X(xBatch) X(xHeads) X(xRows) X(xCols)                               \
  X(xBatchStride) X(xHeadStride) X(xRowStride)                             \
  X(positions) /* int32 [axes, batch, rows] */                             \
  X(offsets)   /* int32 [batch] */                                         \
  X(config)    /* a rotary block */                                        \
  X(cos) X(sin) X(tableRows) X(halfDim) X(tableInterleaved)

// Of KvCache.create. type: 0 float32, 1 float16, 2 bfloat16, 3 int8.
#define HEADWISE_CACHE_SLOTS(X)                                            \
  X(cacheBatch) X(cacheKvHeads) X(cacheHeadDim) X(cacheVHeadDim)           \
  X(capacity) X(window) X(sinkTokens) X(type)

// Of attentionTile, beside an attention block. kind: 0 weights, 1 raw,
// 2 capped, 3 biased.
#define HEADWISE_TILE_SLOTS(X)                                             \
  X(kind) X(batchEntry) X(head) X(rowBegin) X(rowEnd) X(keyBegin) X(keyEnd) \
  X(savedLse) X(tile)

// Of MultiHeadAttention.create. scale NaN: 1 / sqrt(headDim).
#define HEADWISE_CONFIG_SLOTS(X)                                           \
  X(embedDim) X(numHeads) X(numKvHeads) X(headDim) X(vHeadDim)             \
  X(kDim) X(vDim) X(outDim)                                                \
  X(queryBias) X(keyBias) X(valueBias) X(outBias) X(scale) X(seed)         \
  X(addBiasKv) X(addZeroAttn)

// Of MultiHeadAttention.setWeights and getWeights: float32 offsets, each
// weight [out, in]. Biases are 0 where the layer has none.
#define HEADWISE_WEIGHT_SLOTS(X)                                           \
  X(queryWeight) X(queryBias) X(keyWeight) X(keyBias)                      \
  X(valueWeight) X(valueBias) X(outWeight) X(outBias)                      \
  X(biasK) X(biasV)

#define HEADWISE_SLOT_FIELD(name) double name;
#define HEADWISE_SLOT_NAME(name) #name " "

struct AttentionBlock {
  HEADWISE_ATTENTION_SLOTS(HEADWISE_SLOT_FIELD)
};
struct ConfigBlock {
  HEADWISE_CONFIG_SLOTS(HEADWISE_SLOT_FIELD)
};
struct WeightBlock {
  HEADWISE_WEIGHT_SLOTS(HEADWISE_SLOT_FIELD)
};
struct RotaryBlock {
  HEADWISE_ROTARY_SLOTS(HEADWISE_SLOT_FIELD)
};
struct TurnBlock {
  HEADWISE_TURN_SLOTS(HEADWISE_SLOT_FIELD)
};
struct TileBlock {
  HEADWISE_TILE_SLOTS(HEADWISE_SLOT_FIELD)
};
struct CacheBlock {
  HEADWISE_CACHE_SLOTS(HEADWISE_SLOT_FIELD)
};

// Space-separated, in order; each list ends with '|'.
inline constexpr char kSlotNames[] =
    HEADWISE_ATTENTION_SLOTS(HEADWISE_SLOT_NAME) "|"
    HEADWISE_CONFIG_SLOTS(HEADWISE_SLOT_NAME) "|"
    HEADWISE_WEIGHT_SLOTS(HEADWISE_SLOT_NAME) "|"
    HEADWISE_ROTARY_SLOTS(HEADWISE_SLOT_NAME) "|"
    HEADWISE_TURN_SLOTS(HEADWISE_SLOT_NAME) "|"
    HEADWISE_CACHE_SLOTS(HEADWISE_SLOT_NAME) "|"
    HEADWISE_TILE_SLOTS(HEADWISE_SLOT_NAME) "|";

// A block or an array that JavaScript placed at an offset.
template <typename T>
T* At(double offset) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(offset));
}
// What no size_t holds becomes SIZE_MAX, which every check refuses; a plain
// cast would wrap 2^32 to 0 where a size_t has 32 bits.
inline size_t Size(double value) {
  constexpr double kEnd = static_cast<double>(SIZE_MAX) + 1.0;
  if (!(value >= 0 && value < kEnd)) return SIZE_MAX;
  return static_cast<size_t>(value);
}

}  // namespace bindings
}  // namespace headwise

#endif  // HEADWISE_BINDINGS_CALL_BLOCKS_H_
