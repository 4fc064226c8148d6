// One layer of multi-head attention with weights and inputs, made at random,
// run, and compared with the float64 oracle.
#ifndef HEADWISE_TESTS_CPP_LAYER_CASE_H_
#define HEADWISE_TESTS_CPP_LAYER_CASE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "attention_case.h"
#include "headwise/config.h"
#include "headwise/multi_head_attention.h"
#include "test_util.h"

namespace headwise {

// Every parameter of a layer; a bias is empty where the layer has none.
struct LayerWeights {
  struct Projection {
    std::vector<float> weight;
    std::vector<float> bias;
  };
  Projection query;
  Projection key;
  Projection value;
  Projection out;
  // Empty without add_bias_kv.
  std::vector<float> bias_k;
  std::vector<float> bias_v;

  // Zeros in the sizes of a resolved configuration.
  static LayerWeights Sized(const Config& resolved);
  static LayerWeights Uniform(const Config& resolved, Random* random);
  // Read back from a layer.
  static LayerWeights Of(const MultiHeadAttention& layer);

  Weights view() const;
  WeightsOut out_view();
};

testing::AssertionResult SameBits(const LayerWeights& a, const LayerWeights& b);

// Defaults filled in; fails the test when the configuration is refused.
Config Resolved(const Config& config);

// A layer with these weights; null, with a failure, when it is refused.
std::unique_ptr<MultiHeadAttention> MakeLayer(const Config& config,
                                              const LayerWeights& weights);

struct LayerRun {
  Status status;
  std::vector<float> output;            // [B, L, outDim]
  std::vector<float> weights;           // [B, H, L, S]
  std::vector<float> averaged_weights;  // [B, L, S]
  std::vector<float> lse;               // [B, H, L]
  std::vector<float> row_max;           // [B, H, L]
  std::vector<float> biased;            // scores, [B, H, L, S]
  std::vector<float> head_outputs;      // [B, L, H, Dv]
};

// Options of the functional core as those of a layer.
LayerOptions Layered(const AttentionOptions& options);

// As RunCore: three times, with scratch full of NaN and guards around the
// results.
LayerRun RunLayer(const MultiHeadAttention& layer,
                  const TensorView<const float>& query,
                  const TensorView<const float>& key,
                  const TensorView<const float>& value,
                  const LayerOptions& options);

// All sizes differ; biases any subset; grouped heads.
Config RandomConfig(Random* random);
std::string Describe(const Config& config);
// Any scaling, one or two axes.
RotaryConfig RandomRotary(size_t head_dim, Random* random);

void ExpectMatchesOracle(const Config& config, const LayerWeights& weights,
                         const TensorView<const float>& query,
                         const TensorView<const float>& key,
                         const TensorView<const float>& value,
                         const LayerOptions& options);

}  // namespace headwise

#endif  // HEADWISE_TESTS_CPP_LAYER_CASE_H_
