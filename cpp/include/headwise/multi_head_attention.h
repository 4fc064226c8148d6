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
#include "headwise/kv_cache.h"
#include "headwise/linear.h"
#include "headwise/rotary.h"
#include "headwise/status.h"
#include "headwise/tensor_view.h"
#include "headwise/workspace.h"

namespace headwise {

struct ExtraKeys;

// The parameters, each [out, in] as PyTorch stores them. PyTorch's
// in_proj_weight holds query, key and value one below the other.
template <typename LinearT>
struct ProjectionSet {
  LinearT query;  // weight [H * D, E]
  LinearT key;    // weight [Hkv * D, kDim]
  LinearT value;  // weight [Hkv * Dv, vDim]
  LinearT out;    // weight [outDim, H * Dv]
};
// bias_k [Hkv * D] and bias_v [Hkv * Dv] of a layer with add_bias_kv.
struct Weights : ProjectionSet<LinearWeights> {
  const float* bias_k = nullptr;
  const float* bias_v = nullptr;
};
struct WeightsOut : ProjectionSet<LinearWeightsOut> {
  float* bias_k = nullptr;
  float* bias_v = nullptr;
};

// Normalisation of each query and key row of D values before it turns and
// attends: x / sqrt(mean(x^2) + epsilon) * weight.
struct QkNorm {
  const float* query_weight = nullptr;  // [D]; null: 1
  const float* key_weight = nullptr;
  float epsilon = 1e-6f;
};

// Of one call. The options of the functional core, and what a layer adds.
struct LayerOptions : AttentionOptions {
  const QkNorm* qk_norm = nullptr;
  // Rotary embedding of the projected queries and keys. Positions default to
  // those of causality and windows: query_offsets, Causal::kEnd's own offset, or
  // the cache's length, plus i for queries (and for keys with a cache); j for
  // keys. Both count from the start of a packed sequence.
  const RotaryConfig* rotary = nullptr;
  const int32_t* query_positions = nullptr;  // [axes, B, L]
  const int32_t* key_positions = nullptr;    // [axes, B, S]
  // The keys and values of the call are appended, and the queries attend to
  // all that is held. query_lengths says how many rows of an entry count.
  // Rolling: more than kMaxRollingQueries rows must not see what follows them,
  // so causal must be set, or window_right 0.
  KvCache* cache = nullptr;
  // [B, L, H * Dv], contiguous: factor of the heads' outputs before the output
  // projection.
  const float* output_gate = nullptr;
};

struct ForwardOutputs {
  TensorView<float> output;  // [B, L, outDim]
  // As in AttentionOutputs.
  WeightsKind weights_kind = WeightsKind::kNone;
  float* weights = nullptr;
  float* lse = nullptr;
  float* row_max = nullptr;
  ScoresKind scores_kind = ScoresKind::kNone;
  float* scores = nullptr;
  // [B, L, H, Dv], contiguous: what each head hands to the output projection.
  float* head_outputs = nullptr;
};

// The heads of a call as attention sees them: projected, with bias, normalised
// and turned. Any strides; the layer's own extra keys are not among them.
struct ProjectedHeads {
  HeadsView<float> query;  // [B, H, L, D]
  HeadsView<float> key;    // [B, Hkv, S, D]
  // [B, Hkv, S, Dv]; null data: left out, and the input is not looked at.
  HeadsView<float> value;
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
  // With a cache: after the call, as it appends.
  Status Reserve(size_t batch, size_t query_length, size_t key_length,
                 Workspace* workspace, const KvCache* cache = nullptr) const;

  // query [B, L, E], key [B, S, kDim], value [B, S, vDim]. Self-attention: the
  // same view three times. options.scale overrides the configuration's.
  // Allocates nothing when the workspace is reserved; many threads may call it
  // on one object, each with its own workspace.
  Status Forward(const TensorView<const float>& query,
                 const TensorView<const float>& key,
                 const TensorView<const float>& value,
                 const LayerOptions& options, const ForwardOutputs& outputs,
                 Workspace* workspace) const;

  // The heads that Forward would attend with, the same bits: what
  // AttentionTile and ScaledDotProductAttention take. Inputs and workspace as
  // in Forward; of the options qk_norm and what says where rows stand count:
  // rotary, positions, query_offsets, causal, lengths, packed sequences and
  // cache. Nothing is appended to a cache: rows stand behind what it holds.
  //
  // Errors: as Forward. Then nothing was written.
  Status ProjectHeads(const TensorView<const float>& query,
                      const TensorView<const float>& key,
                      const TensorView<const float>& value,
                      const LayerOptions& options,
                      const ProjectedHeads& outputs,
                      Workspace* workspace) const;

  // The configuration with all defaults filled in.
  const Config& config() const { return config_; }

 private:
  MultiHeadAttention();

  Config config_;
  ProjectionSet<std::unique_ptr<Linear>> projections_;
  std::unique_ptr<ExtraKeys> extra_;  // null: none
};

}  // namespace headwise

#endif  // HEADWISE_MULTI_HEAD_ATTENTION_H_
