#include "reference/multi_head_attention.h"

#include "reference/linear.h"

namespace headwise {
namespace reference {

MultiHeadAttentionResult MultiHeadAttention(
    const Config& config, const Weights& weights,
    const TensorView<const float>& query, const TensorView<const float>& key,
    const TensorView<const float>& value, const AttentionOptions& options) {
  const size_t batch = query.batch;
  const size_t rows = query.rows;
  const size_t keys = key.rows;
  const size_t heads = config.num_heads;
  const size_t kv_heads = config.num_kv_heads;
  const size_t v_head_dim = config.v_head_dim;

  MultiHeadAttentionResult result;
  result.query = Linear(query, weights.query, heads * config.head_dim);
  result.key = Linear(key, weights.key, kv_heads * config.head_dim);
  result.value = Linear(value, weights.value, kv_heads * v_head_dim);

  AttentionOptions with_scale = options;
  if (!with_scale.scale.has_value()) with_scale.scale = config.scale;
  // A projection puts the heads side by side: [B, L, H, D].
  using Heads = HeadsView<const double>;
  result.attention = ScaledDotProductAttention(
      Heads::HeadsLast(result.query.data(), batch, heads, rows,
                       config.head_dim),
      Heads::HeadsLast(result.key.data(), batch, kv_heads, keys,
                       config.head_dim),
      Heads::HeadsLast(result.value.data(), batch, kv_heads, keys, v_head_dim),
      with_scale);

  // Concat(head_1, ..., head_H): [B, H, L, Dv] to [B, L, H * Dv].
  const size_t width = heads * v_head_dim;
  result.concat.resize(batch * rows * width);
  for (size_t b = 0; b < batch; ++b) {
    for (size_t h = 0; h < heads; ++h) {
      for (size_t i = 0; i < rows; ++i) {
        for (size_t d = 0; d < v_head_dim; ++d) {
          result.concat[(b * rows + i) * width + h * v_head_dim + d] =
              result.attention
                  .output[((b * heads + h) * rows + i) * v_head_dim + d];
        }
      }
    }
  }
  result.output =
      Linear(TensorView<const double>(result.concat.data(), batch, rows, width),
             weights.out, config.out_dim);
  return result;
}

}  // namespace reference
}  // namespace headwise
