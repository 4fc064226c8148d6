// Multi-head attention in float64: project, norm and turn, attend, project.
#ifndef HEADWISE_REFERENCE_MULTI_HEAD_ATTENTION_H_
#define HEADWISE_REFERENCE_MULTI_HEAD_ATTENTION_H_

#include <vector>

#include "headwise/attention.h"
#include "headwise/config.h"
#include "headwise/multi_head_attention.h"
#include "headwise/tensor_view.h"
#include "reference/attention.h"
#include "reference/rotary.h"

namespace headwise {
namespace reference {

// Everything on the way, for whoever needs more than the output.
struct MultiHeadAttentionResult {
  std::vector<double> projected_query;  // [B, L, H * D]
  std::vector<double> projected_key;    // [B, S, Hkv * D]
  // After norm and rotation.
  std::vector<double> query;
  std::vector<double> key;
  std::vector<double> value;  // [B, S, Hkv * Dv]
  AttentionResult attention;  // per head
  // [B, L, H * Dv], after the output gate.
  std::vector<double> concat;
  std::vector<double> output;  // [B, L, outDim]
};

// bias_k and bias_v, then zeros, as a layer's extra keys: [1, Hkv, n, width].
struct ExtraRows {
  std::vector<float> key;
  std::vector<float> value;
};
ExtraRows ExtraRowsOf(const Config& config, const Weights& weights);
// `options` as the functional core gets them from a layer.
AttentionOptions CoreOptions(const Config& config, const ExtraRows& extra,
                             const LayerOptions& options);

// `config` has its defaults filled in (headwise::Resolve). options.cache is
// not looked at: a cache gives what one pass over all tokens gives.
MultiHeadAttentionResult MultiHeadAttention(
    const Config& config, const Weights& weights,
    const TensorView<const float>& query, const TensorView<const float>& key,
    const TensorView<const float>& value, const LayerOptions& options);

}  // namespace reference
}  // namespace headwise

#endif  // HEADWISE_REFERENCE_MULTI_HEAD_ATTENTION_H_
