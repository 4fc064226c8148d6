// The JavaScript names of the core. Names and nothing else: numbers and
// offsets go in, a status code comes out; checks, shapes and text for people
// are TypeScript's (web/src).
#include <emscripten/bind.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "call_blocks.h"
#include "headwise/headwise.h"
#include "memory.h"

namespace headwise {
namespace bindings {
namespace {

// JavaScript runs one call at a time, so one scratch block serves all objects
// of a module.
Workspace& SharedWorkspace() {
  static Workspace workspace;
  return workspace;
}

Status& LastStatus() {
  static Status status;
  return status;
}

int Keep(const Status& status) {
  LastStatus() = status;
  return static_cast<int>(status.code());
}

std::optional<float> OptionalScale(double scale) {
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

AttentionOptions Options(const AttentionBlock& call) {
  AttentionOptions options;
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
  return options;
}

int Attend(double block) {
  const AttentionBlock& c = *At<const AttentionBlock>(block);
  AttentionOutputs outputs;
  outputs.output =
      Heads<float>(c.output, c.batch, c.numHeads, c.queryLength, c.vHeadDim,
                   c.outputBatchStride, c.outputHeadStride, c.outputRowStride);
  outputs.weights_kind =
      static_cast<WeightsKind>(static_cast<int>(c.weightsKind));
  outputs.weights = At<float>(c.weights);
  outputs.lse = At<float>(c.lse);
  return Keep(ScaledDotProductAttention(
      Heads<const float>(c.query, c.batch, c.numHeads, c.queryLength, c.headDim,
                         c.queryBatchStride, c.queryHeadStride,
                         c.queryRowStride),
      Heads<const float>(c.key, c.batch, c.numKvHeads, c.keyLength, c.headDim,
                         c.keyBatchStride, c.keyHeadStride, c.keyRowStride),
      Heads<const float>(c.value, c.batch, c.numKvHeads, c.keyLength,
                         c.vHeadDim, c.valueBatchStride, c.valueHeadStride,
                         c.valueRowStride),
      Options(c), outputs, &SharedWorkspace()));
}

int ReserveAttention(double query_length, double key_length, double head_dim,
                     double v_head_dim) {
  return Keep(SharedWorkspace().Reserve(AttentionWorkspaceBytes(
      Size(query_length), Size(key_length), Size(head_dim), Size(v_head_dim))));
}

// ------------------------------------------------------ MultiHeadAttention

std::unique_ptr<MultiHeadAttention> CreateAttention(double block) {
  const ConfigBlock& c = *At<const ConfigBlock>(block);
  Config config;
  config.embed_dim = Size(c.embedDim);
  config.num_heads = Size(c.numHeads);
  config.num_kv_heads = Size(c.numKvHeads);
  config.head_dim = Size(c.headDim);
  config.v_head_dim = Size(c.vHeadDim);
  config.k_dim = Size(c.kDim);
  config.v_dim = Size(c.vDim);
  config.out_dim = Size(c.outDim);
  config.query_bias = c.queryBias != 0;
  config.key_bias = c.keyBias != 0;
  config.value_bias = c.valueBias != 0;
  config.out_bias = c.outBias != 0;
  config.scale = OptionalScale(c.scale);
  config.seed = static_cast<uint64_t>(c.seed);
  std::unique_ptr<MultiHeadAttention> made;
  Keep(MultiHeadAttention::Create(config, &made));
  return made;
}

template <typename Set, typename T>
Set WeightSet(double block) {
  const WeightBlock& c = *At<const WeightBlock>(block);
  return {{At<T>(c.queryWeight), At<T>(c.queryBias)},
          {At<T>(c.keyWeight), At<T>(c.keyBias)},
          {At<T>(c.valueWeight), At<T>(c.valueBias)},
          {At<T>(c.outWeight), At<T>(c.outBias)}};
}

int SetAttentionWeights(MultiHeadAttention& self, double block) {
  return Keep(self.SetWeights(WeightSet<Weights, const float>(block)));
}

int GetAttentionWeights(const MultiHeadAttention& self, double block) {
  return Keep(self.GetWeights(WeightSet<WeightsOut, float>(block)));
}

int ReserveForward(const MultiHeadAttention& self, double batch,
                   double query_length, double key_length) {
  return Keep(self.Reserve(Size(batch), Size(query_length), Size(key_length),
                           &SharedWorkspace()));
}

int Forward(const MultiHeadAttention& self, double block) {
  const AttentionBlock& c = *At<const AttentionBlock>(block);
  const Config& config = self.config();
  ForwardOutputs outputs;
  outputs.output = Rows<float>(c.output, c.batch, c.queryLength, config.out_dim,
                               c.outputBatchStride, c.outputRowStride);
  outputs.weights_kind =
      static_cast<WeightsKind>(static_cast<int>(c.weightsKind));
  outputs.weights = At<float>(c.weights);
  outputs.lse = At<float>(c.lse);
  return Keep(self.Forward(
      Rows<const float>(c.query, c.batch, c.queryLength, config.embed_dim,
                        c.queryBatchStride, c.queryRowStride),
      Rows<const float>(c.key, c.batch, c.keyLength, config.k_dim,
                        c.keyBatchStride, c.keyRowStride),
      Rows<const float>(c.value, c.batch, c.keyLength, config.v_dim,
                        c.valueBatchStride, c.valueRowStride),
      Options(c), outputs, &SharedWorkspace()));
}

// ------------------------------------------------------------------ Linear

std::unique_ptr<Linear> CreateLinear(double in_features, double out_features,
                                     double bias, double seed) {
  std::unique_ptr<Linear> made;
  Keep(Linear::Create(Size(in_features), Size(out_features), bias != 0,
                      static_cast<uint64_t>(seed), &made));
  return made;
}

int SetLinearWeights(Linear& self, double weight, double bias) {
  return Keep(
      self.SetWeights({At<const float>(weight), At<const float>(bias)}));
}

int GetLinearWeights(const Linear& self, double weight, double bias) {
  return Keep(self.GetWeights({At<float>(weight), At<float>(bias)}));
}

// input [rows, in] -> output [rows, out], contiguous.
int LinearForward(const Linear& self, double input, double rows,
                  double output) {
  return Keep(self.Forward(
      TensorView<const float>(At<const float>(input), Size(rows),
                              self.in_features()),
      TensorView<float>(At<float>(output), Size(rows), self.out_features()),
      &SharedWorkspace()));
}

int ReserveLinear(const Linear& self, double rows) {
  return Keep(SharedWorkspace().Reserve(self.WorkspaceBytes(Size(rows))));
}

// ------------------------------------------------------------------ Memory

// Offset of `bytes` bytes aligned to 64, or 0 when there are no more.
double Allocate(double bytes) {
  return static_cast<double>(
      reinterpret_cast<uintptr_t>(AllocateAligned(Size(bytes))));
}
void Release(double offset) { FreeAligned(At<void>(offset)); }

std::string LastError() { return LastStatus().message(); }
std::string SlotNames() { return kSlotNames; }
std::string VersionName() { return Version(); }
std::string TargetName() { return SimdTarget(); }
void ReleaseWorkspace() { SharedWorkspace().Release(); }

}  // namespace

EMSCRIPTEN_BINDINGS(headwise) {
  using emscripten::class_;
  using emscripten::function;

  class_<MultiHeadAttention>("MultiHeadAttention")
      .class_function("create", &CreateAttention)
      .function("setWeights", &SetAttentionWeights)
      .function("getWeights", &GetAttentionWeights)
      .function("reserve", &ReserveForward)
      .function("forward", &Forward);

  class_<Linear>("Linear")
      .class_function("create", &CreateLinear)
      .function("setWeights", &SetLinearWeights)
      .function("getWeights", &GetLinearWeights)
      .function("reserve", &ReserveLinear)
      .function("forward", &LinearForward);

  function("scaledDotProductAttention", &Attend);
  function("reserveAttention", &ReserveAttention);

  function("allocate", &Allocate);
  function("release", &Release);
  function("releaseWorkspace", &ReleaseWorkspace);
  function("lastError", &LastError);
  function("slotNames", &SlotNames);
  function("version", &VersionName);
  function("simdTarget", &TargetName);
}

}  // namespace bindings
}  // namespace headwise
