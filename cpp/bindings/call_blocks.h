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
  X(lse)

// Of MultiHeadAttention.create. scale NaN: 1 / sqrt(headDim).
#define HEADWISE_CONFIG_SLOTS(X)                                           \
  X(embedDim) X(numHeads) X(numKvHeads) X(headDim) X(vHeadDim)             \
  X(kDim) X(vDim) X(outDim)                                                \
  X(queryBias) X(keyBias) X(valueBias) X(outBias) X(scale) X(seed)

// Of MultiHeadAttention.setWeights and getWeights: float32 offsets, each
// weight [out, in]. Biases are 0 where the layer has none.
#define HEADWISE_WEIGHT_SLOTS(X)                                           \
  X(queryWeight) X(queryBias) X(keyWeight) X(keyBias)                      \
  X(valueWeight) X(valueBias) X(outWeight) X(outBias)

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

// Space-separated, in order; each list ends with '|'.
inline constexpr char kSlotNames[] =
    HEADWISE_ATTENTION_SLOTS(HEADWISE_SLOT_NAME) "|"
    HEADWISE_CONFIG_SLOTS(HEADWISE_SLOT_NAME) "|"
    HEADWISE_WEIGHT_SLOTS(HEADWISE_SLOT_NAME) "|";

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
