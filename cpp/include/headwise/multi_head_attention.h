// Multi-head attention (Vaswani et al. 2017):
//
//   Q_i = X W_i^Q    K_i = X W_i^K    V_i = X W_i^V     for head i = 1..H
//   head_i = softmax(Q_i K_i^T / sqrt(D)) V_i
//   MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W^O
#ifndef HEADWISE_MULTI_HEAD_ATTENTION_H_
#define HEADWISE_MULTI_HEAD_ATTENTION_H_

#include <cstddef>
#include <memory>

#include "headwise/attention.h"
#include "headwise/config.h"
#include "headwise/linear.h"
#include "headwise/status.h"
#include "headwise/tensor_view.h"
#include "headwise/workspace.h"

namespace headwise {

// The parameters, each [out, in] as PyTorch stores them. PyTorch's
// in_proj_weight holds query, key and value one below the other.
template <typename LinearT>
struct ProjectionSet {
  LinearT query;  // weight [H * D, E]
  LinearT key;    // weight [Hkv * D, kDim]
  LinearT value;  // weight [Hkv * Dv, vDim]
  LinearT out;    // weight [outDim, H * Dv]
};
using Weights = ProjectionSet<LinearWeights>;
using WeightsOut = ProjectionSet<LinearWeightsOut>;

struct ForwardOutputs {
  TensorView<float> output;  // [B, L, outDim]
  // As in AttentionOutputs.
  WeightsKind weights_kind = WeightsKind::kNone;
  float* weights = nullptr;
  float* lse = nullptr;
};

class MultiHeadAttention {
 public:
  // Weights start as PyTorch's nn.MultiheadAttention initialises them (Xavier
  // uniform for query, key and value, U(-1/sqrt(n), 1/sqrt(n)) for the output,
  // biases 0), from config.seed.
  static Status Create(const Config& config,
                       std::unique_ptr<MultiHeadAttention>* out);
  ~MultiHeadAttention();

  // Copies and packs. A bias must be given exactly where the layer has one.
  // On an error the old weights stay.
  Status SetWeights(const Weights& weights);
  Status GetWeights(const WeightsOut& weights) const;

  // Makes `workspace` large enough for a call of these sizes.
  Status Reserve(size_t batch, size_t query_length, size_t key_length,
                 Workspace* workspace) const;

  // query [B, L, E], key [B, S, kDim], value [B, S, vDim]. Self-attention: the
  // same view three times. options.scale overrides the configuration's.
  // Allocates nothing when the workspace is reserved; many threads may call it
  // on one object, each with its own workspace.
  Status Forward(const TensorView<const float>& query,
                 const TensorView<const float>& key,
                 const TensorView<const float>& value,
                 const AttentionOptions& options, const ForwardOutputs& outputs,
                 Workspace* workspace) const;

  // The configuration with all defaults filled in.
  const Config& config() const { return config_; }

 private:
  MultiHeadAttention() = default;

  Config config_;
  ProjectionSet<std::unique_ptr<Linear>> projections_;
};

}  // namespace headwise

#endif  // HEADWISE_MULTI_HEAD_ATTENTION_H_
