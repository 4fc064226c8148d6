// From blocks of numbers to the core's views and options.
#ifndef HEADWISE_BINDINGS_CONVERSIONS_H_
#define HEADWISE_BINDINGS_CONVERSIONS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "call_blocks.h"
#include "headwise/headwise.h"
#include "score_mod.h"

namespace headwise {
namespace bindings {

template <typename Enum>
Enum ToEnum(double value) {
  return static_cast<Enum>(static_cast<int>(value));
}

inline std::optional<float> OptionalScale(double scale) {
  if (std::isnan(scale)) return std::nullopt;
  return static_cast<float>(scale);
}

template <typename T>
HeadsView<T> Heads(double offset, double batch, double heads, double rows,
                   double cols, double batch_stride, double head_stride,
                   double row_stride) {
  return {At<T>(offset),     Size(batch),     Size(heads),
          Size(rows),        Size(cols),      Size(batch_stride),
          Size(head_stride), Size(row_stride)};
}

template <typename T>
TensorView<T> Rows(double offset, double batch, double rows, size_t cols,
                   double batch_stride, double row_stride) {
  TensorView<T> view(At<T>(offset), Size(batch), Size(rows), cols);
  view.batch_stride = Size(batch_stride);
  view.row_stride = Size(row_stride);
  return view;
}

inline void ReadOptions(const AttentionBlock& call, AttentionOptions* to) {
  AttentionOptions& options = *to;
  options.scale = OptionalScale(call.scale);
  options.attend_mask = {At<const uint8_t>(call.attendMask),
                         Size(call.attendMaskBatch), Size(call.attendMaskHeads),
                         Size(call.attendMaskRows), Size(call.attendMaskKeys)};
  options.attn_bias = {At<const float>(call.attnBias), Size(call.attnBiasBatch),
                       Size(call.attnBiasHeads), Size(call.attnBiasRows),
                       Size(call.attnBiasKeys)};
  options.key_padding_mask = At<const uint8_t>(call.keyPaddingMask);
  options.key_lengths = At<const int32_t>(call.keyLengths);
  options.query_lengths = At<const int32_t>(call.queryLengths);
  options.causal = static_cast<Causal>(static_cast<int>(call.causal));
  options.query_offsets = At<const int32_t>(call.queryOffsets);
  options.empty_rows = static_cast<EmptyRows>(static_cast<int>(call.emptyRows));
  options.softcap = static_cast<float>(call.softcap);
  options.alibi_slopes = At<const float>(call.alibiSlopes);
  options.sinks = At<const float>(call.sinks);
  options.head_gates = At<const float>(call.headGates);
  options.window_left = static_cast<int32_t>(call.windowLeft);
  options.window_right = static_cast<int32_t>(call.windowRight);
  options.attention_chunk = static_cast<int32_t>(call.attentionChunk);
  options.prefix_lengths = At<const int32_t>(call.prefixLengths);
  options.cumulative_query_lengths =
      At<const int32_t>(call.cumulativeQueryLengths);
  options.cumulative_key_lengths = At<const int32_t>(call.cumulativeKeyLengths);
  options.packed_sequences = Size(call.packedSequences);
  options.block_mask = At<const BlockMask>(call.blockMask);
  if (call.scoreMod != 0) options.score_mod = &CallScoreMod;
  if (call.extraRows > 0) {
    using InHeads = HeadsView<const float>;
    options.extra_key = InHeads::HeadsFirst(
        At<const float>(call.extraKey), Size(call.extraBatch),
        Size(call.numKvHeads), Size(call.extraRows), Size(call.headDim));
    options.extra_value = InHeads::HeadsFirst(
        At<const float>(call.extraValue), Size(call.extraBatch),
        Size(call.numKvHeads), Size(call.extraRows), Size(call.vHeadDim));
  }
}

inline HeadsView<const float> QueryView(const AttentionBlock& c) {
  return Heads<const float>(c.query, c.batch, c.numHeads, c.queryLength,
                            c.headDim, c.queryBatchStride, c.queryHeadStride,
                            c.queryRowStride);
}
inline HeadsView<const float> KeyView(const AttentionBlock& c) {
  return Heads<const float>(c.key, c.batch, c.numKvHeads, c.keyLength,
                            c.headDim, c.keyBatchStride, c.keyHeadStride,
                            c.keyRowStride);
}
inline HeadsView<const float> ValueView(const AttentionBlock& c) {
  return Heads<const float>(c.value, c.batch, c.numKvHeads, c.keyLength,
                            c.vHeadDim, c.valueBatchStride, c.valueHeadStride,
                            c.valueRowStride);
}

// What AttentionOutputs and ForwardOutputs share.
template <typename Outputs>
void ReadOutputs(const AttentionBlock& c, Outputs* outputs) {
  outputs->weights_kind = ToEnum<WeightsKind>(c.weightsKind);
  outputs->weights = At<float>(c.weights);
  outputs->lse = At<float>(c.lse);
  outputs->row_max = At<float>(c.rowMax);
  outputs->scores_kind = ToEnum<ScoresKind>(c.scoresKind);
  outputs->scores = At<float>(c.scores);
}

inline RotaryConfig ReadRotary(double offset) {
  const RotaryBlock& c = *At<const RotaryBlock>(offset);
  RotaryConfig config;
  config.dim = Size(c.dim);
  config.interleaved = c.interleaved != 0;
  config.base = c.base;
  config.scaling = ToEnum<RotaryScaling>(c.scaling);
  config.factor = c.factor;
  config.original_length = c.originalLength;
  config.beta_fast = c.betaFast;
  config.beta_slow = c.betaSlow;
  config.low_frequency_factor = c.lowFrequencyFactor;
  config.high_frequency_factor = c.highFrequencyFactor;
  config.axes = Size(c.axes);
  const double sections[RotaryConfig::kMaxAxes] = {c.section0, c.section1,
                                                   c.section2, c.section3};
  for (size_t i = 0; i < RotaryConfig::kMaxAxes; ++i) {
    config.sections[i] = Size(sections[i]);
  }
  return config;
}

}  // namespace bindings
}  // namespace headwise

#endif  // HEADWISE_BINDINGS_CONVERSIONS_H_
