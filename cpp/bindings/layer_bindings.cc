// The layers by their JavaScript names.
#include <emscripten/bind.h>

#include <memory>

#include "conversions.h"
#include "headwise/headwise.h"
#include "module_state.h"

namespace headwise {
namespace bindings {
namespace {

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
  config.add_bias_kv = c.addBiasKv != 0;
  config.add_zero_attn = c.addZeroAttn != 0;
  config.scale = OptionalScale(c.scale);
  config.seed = static_cast<uint64_t>(c.seed);
  std::unique_ptr<MultiHeadAttention> made;
  Keep(MultiHeadAttention::Create(config, &made));
  return made;
}

template <typename Set, typename T>
Set WeightSet(double block) {
  const WeightBlock& c = *At<const WeightBlock>(block);
  Set set;
  set.query = {At<T>(c.queryWeight), At<T>(c.queryBias)};
  set.key = {At<T>(c.keyWeight), At<T>(c.keyBias)};
  set.value = {At<T>(c.valueWeight), At<T>(c.valueBias)};
  set.out = {At<T>(c.outWeight), At<T>(c.outBias)};
  set.bias_k = At<T>(c.biasK);
  set.bias_v = At<T>(c.biasV);
  return set;
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

int ReserveCached(const MultiHeadAttention& self, double batch,
                  double query_length, const KvCache& cache) {
  return Keep(self.Reserve(Size(batch), Size(query_length), Size(query_length),
                           &SharedWorkspace(), &cache));
}

// The options of a layer's call. They point into this object.
struct LayerCall {
  LayerCall(const AttentionBlock& c, KvCache* cache) {
    ReadOptions(c, &options);
    options.cache = cache;
    if (c.qkNorm != 0) {
      norm.query_weight = At<const float>(c.queryNorm);
      norm.key_weight = At<const float>(c.keyNorm);
      norm.epsilon = static_cast<float>(c.normEpsilon);
      options.qk_norm = &norm;
    }
    if (c.rotary != 0) {
      rotary = ReadRotary(c.rotary);
      options.rotary = &rotary;
    }
    options.query_positions = At<const int32_t>(c.queryPositions);
    options.key_positions = At<const int32_t>(c.keyPositions);
    options.output_gate = At<const float>(c.outputGate);
  }
  LayerCall(const LayerCall&) = delete;
  LayerCall& operator=(const LayerCall&) = delete;

  LayerOptions options;
  QkNorm norm;
  RotaryConfig rotary;
};

TensorView<const float> QueryRows(const Config& config,
                                  const AttentionBlock& c) {
  return Rows<const float>(c.query, c.batch, c.queryLength, config.embed_dim,
                           c.queryBatchStride, c.queryRowStride);
}
TensorView<const float> KeyRows(const Config& config, const AttentionBlock& c) {
  return Rows<const float>(c.key, c.batch, c.keyLength, config.k_dim,
                           c.keyBatchStride, c.keyRowStride);
}
TensorView<const float> ValueRows(const Config& config,
                                  const AttentionBlock& c) {
  return Rows<const float>(c.value, c.batch, c.keyLength, config.v_dim,
                           c.valueBatchStride, c.valueRowStride);
}

int RunForward(const MultiHeadAttention& self, const AttentionBlock& c,
               KvCache* cache) {
  const Config& config = self.config();
  const LayerCall call(c, cache);
  ForwardOutputs outputs;
  outputs.output = Rows<float>(c.output, c.batch, c.queryLength, config.out_dim,
                               c.outputBatchStride, c.outputRowStride);
  ReadOutputs(c, &outputs);
  outputs.head_outputs = At<float>(c.headOutputs);
  return Keep(self.Forward(QueryRows(config, c), KeyRows(config, c),
                           ValueRows(config, c), call.options, outputs,
                           &SharedWorkspace()));
}

int Forward(const MultiHeadAttention& self, double block) {
  return RunForward(self, *At<const AttentionBlock>(block), nullptr);
}

int ForwardCached(const MultiHeadAttention& self, double block,
                  KvCache& cache) {
  return RunForward(self, *At<const AttentionBlock>(block), &cache);
}

int RunProjectHeads(const MultiHeadAttention& self, const AttentionBlock& c,
                    KvCache* cache) {
  const Config& config = self.config();
  const LayerCall call(c, cache);
  const auto heads = [&c](double offset, size_t count, double rows,
                          size_t cols) {
    return HeadsView<float>::HeadsFirst(At<float>(offset), Size(c.batch), count,
                                        Size(rows), cols);
  };
  ProjectedHeads outputs;
  outputs.query =
      heads(c.queryHeads, config.num_heads, c.queryLength, config.head_dim);
  outputs.key =
      heads(c.keyHeads, config.num_kv_heads, c.keyLength, config.head_dim);
  outputs.value =
      heads(c.valueHeads, config.num_kv_heads, c.keyLength, config.v_head_dim);
  return Keep(self.ProjectHeads(QueryRows(config, c), KeyRows(config, c),
                                ValueRows(config, c), call.options, outputs,
                                &SharedWorkspace()));
}

int ProjectHeads(const MultiHeadAttention& self, double block) {
  return RunProjectHeads(self, *At<const AttentionBlock>(block), nullptr);
}

int ProjectHeadsCached(const MultiHeadAttention& self, double block,
                       KvCache& cache) {
  return RunProjectHeads(self, *At<const AttentionBlock>(block), &cache);
}

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

}  // namespace

EMSCRIPTEN_BINDINGS(headwise_layers) {
  using emscripten::class_;
  class_<MultiHeadAttention>("MultiHeadAttention")
      .class_function("create", &CreateAttention)
      .function("setWeights", &SetAttentionWeights)
      .function("getWeights", &GetAttentionWeights)
      .function("reserve", &ReserveForward)
      .function("reserveCached", &ReserveCached)
      .function("forward", &Forward)
      .function("forwardCached", &ForwardCached)
      .function("projectHeads", &ProjectHeads)
      .function("projectHeadsCached", &ProjectHeadsCached);

  class_<Linear>("Linear")
      .class_function("create", &CreateLinear)
      .function("setWeights", &SetLinearWeights)
      .function("getWeights", &GetLinearWeights)
      .function("reserve", &ReserveLinear)
      .function("forward", &LinearForward);
}

}  // namespace bindings
}  // namespace headwise
