// Multi-head attention in float64: project, attend, project.
#ifndef HEADWISE_REFERENCE_MULTI_HEAD_ATTENTION_H_
#define HEADWISE_REFERENCE_MULTI_HEAD_ATTENTION_H_

#include <vector>

#include "headwise/attention.h"
#include "headwise/config.h"
#include "headwise/multi_head_attention.h"
#include "headwise/tensor_view.h"
#include "reference/attention.h"

namespace headwise {
namespace reference {

// Everything on the way, for whoever needs more than the output.
struct MultiHeadAttentionResult {
  std::vector<double> query;   // [B, L, H * D]
  std::vector<double> key;     // [B, S, Hkv * D]
  std::vector<double> value;   // [B, S, Hkv * Dv]
  AttentionResult attention;   // per head
  std::vector<double> concat;  // [B, L, H * Dv]
  std::vector<double> output;  // [B, L, outDim]
};

// `config` has its defaults filled in (headwise::Resolve).
MultiHeadAttentionResult MultiHeadAttention(
    const Config& config, const Weights& weights,
    const TensorView<const float>& query, const TensorView<const float>& key,
    const TensorView<const float>& value, const AttentionOptions& options);

}  // namespace reference
}  // namespace headwise

#endif  // HEADWISE_REFERENCE_MULTI_HEAD_ATTENTION_H_
