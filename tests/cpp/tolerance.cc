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
  const size_t own_keys = key.rows;
  const size_t keys = expected.keys;
  const size_t v_cols = value.cols;
  const HeadsView<const float>& extra_key = options.extra_key;
  const HeadsView<const float>& extra_value = options.extra_value;
  AttentionBounds bounds;
  bounds.raw.assign(expected.raw.size(), 0.0);
  bounds.capped.assign(expected.raw.size(), 0.0);
  bounds.scores.assign(expected.raw.size(), 0.0);
  bounds.row_max.assign(expected.lse.size(), 0.0);
  bounds.weights.assign(expected.weights.size(), 0.0);
  bounds.averaged_weights.assign(expected.averaged_weights.size(), 0.0);
  bounds.output.assign(expected.output.size(), 0.0);
  bounds.lse.assign(expected.lse.size(), 0.0);

  const double scale =
      std::abs(options.scale.has_value()
                   ? static_cast<double>(*options.scale)
                   : 1.0 / std::sqrt(static_cast<double>(query.cols)));
  // One more for the sink.
  const size_t merges = 2 + keys / kKeysPerMerge;

  for (size_t b = 0; b < query.batch; ++b) {
    const size_t extra_b = extra_key.batch == 1 ? 0 : b;
    const size_t extra_value_b = extra_value.batch == 1 ? 0 : b;
    for (size_t h = 0; h < heads; ++h) {
      const size_t kv_head = h / (heads / key.heads);
      const double gate =
          options.head_gates == nullptr
              ? 1.0
              : std::abs(static_cast<double>(options.head_gates[h]));
      for (size_t i = 0; i < rows; ++i) {
        const size_t row = (b * heads + h) * rows + i;
        const double* raw = expected.raw.data() + row * keys;
        const double* capped = expected.capped.data() + row * keys;
        const double* scores = expected.scores.data() + row * keys;
        const double* weights = expected.weights.data() + row * keys;
        double* score_bounds = bounds.scores.data() + row * keys;
        const double lse = expected.lse[row];
        const reference::SequenceOfRow sequence =
            reference::FindSequence(options, b, i, rows, own_keys);
        const int64_t position = reference::PositionOf(
            options, sequence.index, i - sequence.query_begin, sequence.queries,
            sequence.keys);

        for (size_t j = 0; j < keys; ++j) {
          const bool extra = j >= own_keys;
          // Nothing is computed of another sequence's key.
          if (!extra && !sequence.HasKey(j)) continue;
          double products = 0.0;
          double inherited = 0.0;
          for (size_t d = 0; d < query.cols; ++d) {
            const double q = std::abs(double{query.Row(b, h, i)[d]});
            const double k = std::abs(
                extra ? double{extra_key.Row(extra_b, kv_head, j - own_keys)[d]}
                      : double{key.Row(b, kv_head, j)[d]});
            const double dq = ErrorAt(errors.query, b, h, i, d);
            const double dk =
                extra ? 0.0 : ErrorAt(errors.key, b, kv_head, j, d);
            products += scale * q * k;
            inherited += scale * (dq * k + q * dk + dq * dk);
          }
          // Of a score that is no number nothing is compared.
          if (!std::isfinite(raw[j])) products = inherited = 0.0;
          // Two more roundings: the scale, and the query times the scale.
          const double of_raw = SumError(query.cols + 2) * products + inherited;
          // tanh makes differences smaller, never larger.
          const double of_capped =
              options.softcap == 0.0f
                  ? of_raw
                  : of_raw + kTanhError * std::abs(capped[j]);
          bounds.raw[row * keys + j] = of_raw;
          bounds.capped[row * keys + j] = of_capped;
          const double alibi = extra ? 0.0
                                     : reference::Alibi(options, h, position,
                                                        j - sequence.key_begin);
          score_bounds[j] =
              of_capped + 2.0 * kRoundoff * std::abs(alibi) +
              kRoundoff * std::abs(capped[j] + alibi) +
              (std::isfinite(scores[j]) ? kRoundoff * std::abs(scores[j]) : 0);
        }
        // An empty row is exactly that; of a NaN row nothing is compared.
        if (!std::isfinite(lse)) continue;

        const double maximum = expected.row_max[row];
        double mean = 0.0;
        double largest = 0.0;
        std::vector<double> relative(keys);
        for (size_t j = 0; j < keys; ++j) {
          if (scores[j] == -kInfinity) continue;
          relative[j] =
              score_bounds[j] + 2.0 * kRoundoff * (maximum - scores[j]);
          mean += weights[j] * relative[j];
          largest = std::max(largest, score_bounds[j]);
        }
        bounds.row_max[row] = largest;
        const double shared = mean +
                              2.0 * static_cast<double>(merges) * kExpError +
                              SumError(keys + 3);

        for (size_t j = 0; j < keys; ++j) {
          if (scores[j] == -kInfinity) continue;
          const bool extra = j >= own_keys;
          const double factor = std::expm1(relative[j] + shared);
          bounds.weights[row * keys + j] =
              weights[j] * factor + 2.0 * kSmallestNormal;
          for (size_t d = 0; d < v_cols; ++d) {
            const double v =
                std::abs(extra ? double{extra_value.Row(extra_value_b, kv_head,
                                                        j - own_keys)[d]}
                               : double{value.Row(b, kv_head, j)[d]});
            const double dv =
                extra ? 0.0 : ErrorAt(errors.value, b, kv_head, j, d);
            bounds.output[row * v_cols + d] +=
                gate * (1.0 + 2.0 * kRoundoff) *
                    (weights[j] * ((v + dv) * factor + dv)) +
                gate * kRoundoff * weights[j] * v +
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

std::vector<double> BoundNorm(const std::vector<double>& x, const float* weight,
                              double epsilon, size_t head_dim,
                              const std::vector<double>& errors) {
  const double n = static_cast<double>(head_dim);
  std::vector<double> bounds(x.size());
  for (size_t row = 0; row < x.size() / head_dim; ++row) {
    const double* values = x.data() + row * head_dim;
    const double* dx = errors.data() + row * head_dim;
    double squares = 0.0;
    double moved = 0.0;
    for (size_t d = 0; d < head_dim; ++d) {
      squares += values[d] * values[d];
      moved += 2.0 * std::abs(values[d]) * dx[d] + dx[d] * dx[d];
    }
    const double mean = squares / n + epsilon;
    // Relative, of the root: half of the mean's.
    const double of_root =
        0.5 * moved / n / mean + SumError(head_dim + 2) + 4.0 * kRoundoff;
    for (size_t d = 0; d < head_dim; ++d) {
      const double w = weight == nullptr ? 1.0 : std::abs(double{weight[d]});
      bounds[row * head_dim + d] =
          w / std::sqrt(mean) *
          (dx[d] + (std::abs(values[d]) + dx[d]) *
                       (of_root * (1.0 + of_root) + 4.0 * kRoundoff));
    }
  }
  return bounds;
}

std::vector<double> BoundRotary(const std::vector<double>& x,
                                const RotaryConfig& config, size_t head_dim,
                                const std::vector<double>& errors) {
  const reference::RotaryAngles angles = reference::AnglesOf(config, head_dim);
  const size_t pairs = angles.frequencies.size();
  std::vector<double> bounds = errors;
  for (size_t row = 0; row < x.size() / head_dim; ++row) {
    for (size_t pair = 0; pair < pairs; ++pair) {
      const size_t a = row * head_dim + (config.interleaved ? 2 * pair : pair);
      const size_t b =
          row * head_dim + (config.interleaved ? 2 * pair + 1 : pair + pairs);
      // Of the sine, the cosine, two products and a sum.
      const double bound =
          angles.magnitude *
          (errors[a] + errors[b] +
           4.0 * kRoundoff *
               (std::abs(x[a]) + std::abs(x[b]) + errors[a] + errors[b]));
      bounds[a] = bound;
      bounds[b] = bound;
    }
  }
  return bounds;
}

MultiHeadAttentionBounds BoundMultiHeadAttention(
    const Config& config, const Weights& weights,
    const TensorView<const float>& query, const TensorView<const float>& key,
    const TensorView<const float>& value, const LayerOptions& options,
    const reference::MultiHeadAttentionResult& expected) {
  const size_t batch = query.batch;
  const size_t rows = query.rows;
  const size_t keys = key.rows;
  const size_t heads = config.num_heads;
  const size_t kv_heads = config.num_kv_heads;
  const size_t v_head_dim = config.v_head_dim;

  std::vector<double> query_errors =
      BoundLinear(query, weights.query, heads * config.head_dim);
  std::vector<double> key_errors =
      BoundLinear(key, weights.key, kv_heads * config.head_dim);
  const std::vector<double> value_errors =
      BoundLinear(value, weights.value, kv_heads * v_head_dim);

  std::vector<double> normed_query = expected.projected_query;
  std::vector<double> normed_key = expected.projected_key;
  if (options.qk_norm != nullptr) {
    const QkNorm& norm = *options.qk_norm;
    const double epsilon = static_cast<double>(norm.epsilon);
    query_errors = BoundNorm(normed_query, norm.query_weight, epsilon,
                             config.head_dim, query_errors);
    key_errors = BoundNorm(normed_key, norm.key_weight, epsilon,
                           config.head_dim, key_errors);
    reference::NormaliseRows(norm.query_weight, epsilon, config.head_dim,
                             &normed_query);
    reference::NormaliseRows(norm.key_weight, epsilon, config.head_dim,
                             &normed_key);
  }
  if (options.rotary != nullptr) {
    query_errors = BoundRotary(normed_query, *options.rotary, config.head_dim,
                               query_errors);
    key_errors =
        BoundRotary(normed_key, *options.rotary, config.head_dim, key_errors);
  }

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
  const reference::ExtraRows extra = reference::ExtraRowsOf(config, weights);

  MultiHeadAttentionBounds bounds;
  bounds.attention = BoundAttention(
      query_heads(expected.query), key_heads(expected.key),
      value_heads(expected.value),
      reference::CoreOptions(config, extra, options), expected.attention,
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
  if (options.output_gate != nullptr) {
    for (size_t n = 0; n < concat_errors.size(); ++n) {
      concat_errors[n] =
          std::abs(double{options.output_gate[n]}) * concat_errors[n] +
          kRoundoff * std::abs(expected.concat[n]);
    }
  }
  bounds.concat = concat_errors;
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
