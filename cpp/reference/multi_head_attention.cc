#include "reference/multi_head_attention.h"

#include "reference/linear.h"

namespace headwise {
namespace reference {

ExtraRows ExtraRowsOf(const Config& config, const Weights& weights) {
  const size_t rows =
      (config.add_bias_kv ? 1u : 0u) + (config.add_zero_attn ? 1u : 0u);
  ExtraRows extra;
  for (size_t h = 0; h < config.num_kv_heads; ++h) {
    for (size_t row = 0; row < rows; ++row) {
      const bool bias = config.add_bias_kv && row == 0;
      for (size_t d = 0; d < config.head_dim; ++d) {
        extra.key.push_back(bias ? weights.bias_k[h * config.head_dim + d]
                                 : 0.0f);
      }
      for (size_t d = 0; d < config.v_head_dim; ++d) {
        extra.value.push_back(bias ? weights.bias_v[h * config.v_head_dim + d]
                                   : 0.0f);
      }
    }
  }
  return extra;
}

AttentionOptions CoreOptions(const Config& config, const ExtraRows& extra,
                             const LayerOptions& options) {
  AttentionOptions core = options;
  if (!core.scale.has_value()) core.scale = config.scale;
  const size_t rows =
      extra.key.size() / (config.num_kv_heads * config.head_dim);
  if (rows == 0) return core;
  core.extra_key = HeadsView<const float>::HeadsFirst(
      extra.key.data(), 1, config.num_kv_heads, rows, config.head_dim);
  core.extra_value = HeadsView<const float>::HeadsFirst(
      extra.value.data(), 1, config.num_kv_heads, rows, config.v_head_dim);
  return core;
}

// Where query 0 of each entry stands for causality, and so turns.
std::vector<int32_t> QueryOffsets(const LayerOptions& options, size_t batch,
                                  size_t rows, size_t keys) {
  std::vector<int32_t> offsets(batch);
  for (size_t b = 0; b < batch; ++b) {
    offsets[b] = static_cast<int32_t>(PositionOf(options, b, 0, rows, keys));
  }
  return offsets;
}

MultiHeadAttentionResult MultiHeadAttention(
    const Config& config, const Weights& weights,
    const TensorView<const float>& query, const TensorView<const float>& key,
    const TensorView<const float>& value, const LayerOptions& options) {
  const size_t batch = query.batch;
  const size_t rows = query.rows;
  const size_t keys = key.rows;
  const size_t heads = config.num_heads;
  const size_t kv_heads = config.num_kv_heads;
  const size_t head_dim = config.head_dim;
  const size_t v_head_dim = config.v_head_dim;

  MultiHeadAttentionResult result;
  result.projected_query = Linear(query, weights.query, heads * head_dim);
  result.projected_key = Linear(key, weights.key, kv_heads * head_dim);
  result.value = Linear(value, weights.value, kv_heads * v_head_dim);

  result.query = result.projected_query;
  result.key = result.projected_key;
  if (options.qk_norm != nullptr) {
    const QkNorm& norm = *options.qk_norm;
    const double epsilon = static_cast<double>(norm.epsilon);
    NormaliseRows(norm.query_weight, epsilon, head_dim, &result.query);
    NormaliseRows(norm.key_weight, epsilon, head_dim, &result.key);
  }
  if (options.rotary != nullptr) {
    const std::vector<int32_t> offsets =
        QueryOffsets(options, batch, rows, keys);
    RotaryEmbedding(*options.rotary, {options.query_positions, offsets.data()},
                    batch, rows, heads, head_dim, &result.query);
    RotaryEmbedding(*options.rotary, {options.key_positions, nullptr}, batch,
                    keys, kv_heads, head_dim, &result.key);
  }

  const ExtraRows extra = ExtraRowsOf(config, weights);
  // A projection puts the heads side by side: [B, L, H, D].
  using Heads = HeadsView<const double>;
  result.attention = ScaledDotProductAttention(
      Heads::HeadsLast(result.query.data(), batch, heads, rows, head_dim),
      Heads::HeadsLast(result.key.data(), batch, kv_heads, keys, head_dim),
      Heads::HeadsLast(result.value.data(), batch, kv_heads, keys, v_head_dim),
      CoreOptions(config, extra, options));

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
  if (options.output_gate != nullptr) {
    for (size_t n = 0; n < result.concat.size(); ++n) {
      result.concat[n] *= static_cast<double>(options.output_gate[n]);
    }
  }
  result.output =
      Linear(TensorView<const double>(result.concat.data(), batch, rows, width),
             weights.out, config.out_dim);
  return result;
}

}  // namespace reference
}  // namespace headwise
