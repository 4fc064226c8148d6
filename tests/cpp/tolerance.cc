#include "tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headwise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Weighted sums of more keys than this may be cut into parts that are merged,
// and every merge multiplies by one more exponential.
constexpr size_t kKeysPerMerge = 128;

double ErrorAt(const HeadsView<const double>& errors, size_t b, size_t h,
               size_t row, size_t col) {
  return errors.data == nullptr ? 0.0 : errors.Row(b, h, row)[col];
}

}  // namespace

double SumError(size_t terms) {
  const double n = static_cast<double>(terms);
  return kRoundoff * std::min(n, 4.0 * std::sqrt(n));
}

template <typename T>
AttentionBounds BoundAttention(const HeadsView<const T>& query,
                               const HeadsView<const T>& key,
                               const HeadsView<const T>& value,
                               const AttentionOptions& options,
                               const reference::AttentionResult& expected,
                               const AttentionInputErrors& errors) {
  const size_t heads = query.heads;
  const size_t rows = query.rows;
  const size_t keys = key.rows;
  const size_t v_cols = value.cols;
  AttentionBounds bounds;
  bounds.weights.assign(expected.weights.size(), 0.0);
  bounds.averaged_weights.assign(expected.averaged_weights.size(), 0.0);
  bounds.output.assign(expected.output.size(), 0.0);
  bounds.lse.assign(expected.lse.size(), 0.0);

  const double scale =
      std::abs(options.scale.has_value()
                   ? static_cast<double>(*options.scale)
                   : 1.0 / std::sqrt(static_cast<double>(query.cols)));
  const size_t merges = 1 + keys / kKeysPerMerge;
  std::vector<double> relative(keys);

  for (size_t b = 0; b < query.batch; ++b) {
    for (size_t h = 0; h < heads; ++h) {
      const size_t kv_head = h / (heads / key.heads);
      for (size_t i = 0; i < rows; ++i) {
        const size_t row = (b * heads + h) * rows + i;
        const double* scores = expected.scores.data() + row * keys;
        const double* weights = expected.weights.data() + row * keys;
        const double lse = expected.lse[row];
        // An empty row is exactly that; of a NaN row nothing is compared.
        if (!std::isfinite(lse)) continue;

        const double maximum =
            keys == 0 ? 0.0 : *std::max_element(scores, scores + keys);
        double mean = 0.0;
        for (size_t j = 0; j < keys; ++j) {
          if (scores[j] == -kInfinity) continue;
          double products = 0.0;
          double inherited = 0.0;
          for (size_t d = 0; d < query.cols; ++d) {
            const double q = std::abs(double{query.Row(b, h, i)[d]});
            const double k = std::abs(double{key.Row(b, kv_head, j)[d]});
            const double dq = ErrorAt(errors.query, b, h, i, d);
            const double dk = ErrorAt(errors.key, b, kv_head, j, d);
            products += scale * q * k;
            inherited += scale * (dq * k + q * dk + dq * dk);
          }
          // Two more roundings: the scale, and the query times the scale.
          relative[j] = SumError(query.cols + 2) * products + inherited +
                        kRoundoff * std::abs(scores[j]) +
                        2.0 * kRoundoff * (maximum - scores[j]);
          mean += weights[j] * relative[j];
        }
        const double shared = mean +
                              2.0 * static_cast<double>(merges) * kExpError +
                              SumError(keys + 2);

        for (size_t j = 0; j < keys; ++j) {
          if (scores[j] == -kInfinity) continue;
          const double factor = std::expm1(relative[j] + shared);
          bounds.weights[row * keys + j] =
              weights[j] * factor + 2.0 * kSmallestNormal;
          for (size_t d = 0; d < v_cols; ++d) {
            const double v = std::abs(double{value.Row(b, kv_head, j)[d]});
            const double dv = ErrorAt(errors.value, b, kv_head, j, d);
            bounds.output[row * v_cols + d] +=
                weights[j] * ((v + dv) * factor + dv) +
                2.0 * kSmallestNormal * (v + 1.0);
          }
          bounds.averaged_weights[(b * rows + i) * keys + j] +=
              (bounds.weights[row * keys + j] +
               SumError(heads + 1) * weights[j]) /
              static_cast<double>(heads);
        }
        bounds.lse[row] =
            shared +
            4.0 * kRoundoff * (1.0 + std::abs(lse) + std::abs(maximum));
      }
    }
  }
  return bounds;
}

template <typename T>
std::vector<double> BoundLinear(const TensorView<const T>& input,
                                const LinearWeights& weights,
                                size_t out_features,
                                const std::vector<double>& input_errors) {
  const size_t in_features = input.cols;
  std::vector<double> bounds;
  for (size_t b = 0; b < input.batch; ++b) {
    for (size_t row = 0; row < input.rows; ++row) {
      const T* x = input.Row(b, row);
      const double* dx =
          input_errors.empty()
              ? nullptr
              : input_errors.data() + (b * input.rows + row) * in_features;
      for (size_t o = 0; o < out_features; ++o) {
        double products =
            weights.bias == nullptr ? 0.0 : std::abs(double{weights.bias[o]});
        double inherited = 0.0;
        for (size_t k = 0; k < in_features; ++k) {
          const double w =
              std::abs(double{weights.weight[o * in_features + k]});
          products += std::abs(double{x[k]}) * w;
          if (dx != nullptr) inherited += dx[k] * w;
        }
        bounds.push_back(SumError(in_features + 1) * (products + inherited) +
                         inherited);
      }
    }
  }
  return bounds;
}

MultiHeadAttentionBounds BoundMultiHeadAttention(
    const Config& config, const Weights& weights,
    const TensorView<const float>& query, const TensorView<const float>& key,
    const TensorView<const float>& value, const AttentionOptions& options,
    const reference::MultiHeadAttentionResult& expected) {
  const size_t batch = query.batch;
  const size_t rows = query.rows;
  const size_t keys = key.rows;
  const size_t heads = config.num_heads;
  const size_t kv_heads = config.num_kv_heads;
  const size_t v_head_dim = config.v_head_dim;

  const std::vector<double> query_errors =
      BoundLinear(query, weights.query, heads * config.head_dim);
  const std::vector<double> key_errors =
      BoundLinear(key, weights.key, kv_heads * config.head_dim);
  const std::vector<double> value_errors =
      BoundLinear(value, weights.value, kv_heads * v_head_dim);

  using Heads = HeadsView<const double>;
  const auto query_heads = [&](const std::vector<double>& data) {
    return Heads::HeadsLast(data.data(), batch, heads, rows, config.head_dim);
  };
  const auto key_heads = [&](const std::vector<double>& data) {
    return Heads::HeadsLast(data.data(), batch, kv_heads, keys,
                            config.head_dim);
  };
  const auto value_heads = [&](const std::vector<double>& data) {
    return Heads::HeadsLast(data.data(), batch, kv_heads, keys, v_head_dim);
  };
  AttentionOptions with_scale = options;
  if (!with_scale.scale.has_value()) with_scale.scale = config.scale;

  MultiHeadAttentionBounds bounds;
  bounds.attention = BoundAttention(
      query_heads(expected.query), key_heads(expected.key),
      value_heads(expected.value), with_scale, expected.attention,
      {query_heads(query_errors), key_heads(key_errors),
       value_heads(value_errors)});

  // [B, H, L, Dv] to [B, L, H * Dv], as the heads themselves.
  const size_t width = heads * v_head_dim;
  std::vector<double> concat_errors(batch * rows * width);
  for (size_t b = 0; b < batch; ++b) {
    for (size_t h = 0; h < heads; ++h) {
      for (size_t i = 0; i < rows; ++i) {
        for (size_t d = 0; d < v_head_dim; ++d) {
          concat_errors[(b * rows + i) * width + h * v_head_dim + d] =
              bounds.attention
                  .output[((b * heads + h) * rows + i) * v_head_dim + d];
        }
      }
    }
  }
  bounds.output = BoundLinear(
      TensorView<const double>(expected.concat.data(), batch, rows, width),
      weights.out, config.out_dim, concat_errors);
  return bounds;
}

template AttentionBounds BoundAttention(const HeadsView<const float>&,
                                        const HeadsView<const float>&,
                                        const HeadsView<const float>&,
                                        const AttentionOptions&,
                                        const reference::AttentionResult&,
                                        const AttentionInputErrors&);
template std::vector<double> BoundLinear(const TensorView<const float>&,
                                         const LinearWeights&, size_t,
                                         const std::vector<double>&);

}  // namespace headwise
