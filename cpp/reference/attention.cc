#include "reference/attention.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace headwise {
namespace reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The position of query i among the keys of batch entry b.
int64_t Position(const AttentionOptions& options, size_t b, size_t i,
                 size_t rows, size_t keys) {
  int64_t offset = 0;
  if (options.causal == Causal::kEnd) {
    const int64_t valid_keys = options.key_lengths != nullptr
                                   ? options.key_lengths[b]
                                   : static_cast<int64_t>(keys);
    const int64_t valid_queries = options.query_lengths != nullptr
                                      ? options.query_lengths[b]
                                      : static_cast<int64_t>(rows);
    offset = valid_keys - valid_queries;
  } else if (options.query_offsets != nullptr) {
    offset = options.query_offsets[b];
  }
  return offset + static_cast<int64_t>(i);
}

// Whether every mask lets query i of head h look at key j. The bias has its
// own say: see Score.
bool MayLook(const AttentionOptions& options, size_t b, size_t h, size_t i,
             size_t j, size_t rows, size_t keys) {
  if (options.query_lengths != nullptr &&
      static_cast<int64_t>(i) >= options.query_lengths[b]) {
    return false;
  }
  if (options.key_lengths != nullptr &&
      static_cast<int64_t>(j) >= options.key_lengths[b]) {
    return false;
  }
  if (options.key_padding_mask != nullptr &&
      options.key_padding_mask[b * keys + j] != 0) {
    return false;
  }
  if (options.causal != Causal::kNone &&
      static_cast<int64_t>(j) > Position(options, b, i, rows, keys)) {
    return false;
  }
  const MaskView<uint8_t>& mask = options.attend_mask;
  return !mask.present() || mask.Row(b, h, i)[j * mask.key_stride()] != 0;
}

// scale * q.k + bias. A bias of -infinity hides, whatever q.k is.
template <typename T>
double Score(const T* query, const T* key, size_t head_dim, double scale,
             double bias) {
  if (bias == -kInfinity) return -kInfinity;
  double score = 0.0;
  for (size_t d = 0; d < head_dim; ++d) {
    score +=
        scale * static_cast<double>(query[d]) * static_cast<double>(key[d]);
  }
  return score + bias;
}

// Weights of one row of scores, and the log of the sum of their exponentials.
// NaN or +infinity among the scores makes all of the row NaN.
double Softmax(const double* scores, size_t keys, EmptyRows empty_rows,
               double* weights) {
  bool poisoned = false;
  double maximum = -kInfinity;
  for (size_t j = 0; j < keys; ++j) {
    if (std::isnan(scores[j]) || scores[j] == kInfinity) poisoned = true;
    if (scores[j] > maximum) maximum = scores[j];
  }
  if (poisoned) {
    for (size_t j = 0; j < keys; ++j) weights[j] = kNan;
    return kNan;
  }
  if (maximum == -kInfinity) {
    const double empty = empty_rows == EmptyRows::kNan ? kNan : 0.0;
    for (size_t j = 0; j < keys; ++j) weights[j] = empty;
    return -kInfinity;
  }
  double sum = 0.0;
  for (size_t j = 0; j < keys; ++j) sum += std::exp(scores[j] - maximum);
  for (size_t j = 0; j < keys; ++j) {
    weights[j] = std::exp(scores[j] - maximum) / sum;
  }
  return maximum + std::log(sum);
}

}  // namespace

template <typename T>
AttentionResult ScaledDotProductAttention(const HeadsView<const T>& query,
                                          const HeadsView<const T>& key,
                                          const HeadsView<const T>& value,
                                          const AttentionOptions& options) {
  AttentionResult result;
  result.batch = query.batch;
  result.heads = query.heads;
  result.rows = query.rows;
  result.keys = key.rows;
  result.v_cols = value.cols;
  const size_t rows = query.rows;
  const size_t keys = key.rows;
  const size_t all_rows = query.batch * query.heads * rows;
  result.scores.assign(all_rows * keys, -kInfinity);
  result.weights.assign(all_rows * keys, 0.0);
  result.averaged_weights.assign(query.batch * rows * keys, 0.0);
  result.output.assign(all_rows * value.cols, 0.0);
  result.lse.assign(all_rows, -kInfinity);

  const double scale = options.scale.has_value()
                           ? static_cast<double>(*options.scale)
                           : 1.0 / std::sqrt(static_cast<double>(query.cols));
  const MaskView<float>& bias = options.attn_bias;

  for (size_t b = 0; b < query.batch; ++b) {
    for (size_t h = 0; h < query.heads; ++h) {
      const size_t kv_head = h / (query.heads / key.heads);
      for (size_t i = 0; i < rows; ++i) {
        const size_t row = (b * query.heads + h) * rows + i;
        double* scores = result.scores.data() + row * keys;
        double* weights = result.weights.data() + row * keys;
        double* output = result.output.data() + row * value.cols;

        for (size_t j = 0; j < keys; ++j) {
          if (!MayLook(options, b, h, i, j, rows, keys)) continue;
          const double added =
              bias.present() ? bias.Row(b, h, i)[j * bias.key_stride()] : 0.0;
          scores[j] = Score(query.Row(b, h, i), key.Row(b, kv_head, j),
                            query.cols, scale, added);
        }
        result.lse[row] = Softmax(scores, keys, options.empty_rows, weights);

        const bool empty = result.lse[row] == -kInfinity;
        for (size_t d = 0; d < value.cols; ++d) {
          if (empty) {
            output[d] = options.empty_rows == EmptyRows::kNan ? kNan : 0.0;
            continue;
          }
          for (size_t j = 0; j < keys; ++j) {
            // Left out, not multiplied by 0: 0 * NaN is NaN.
            if (scores[j] == -kInfinity) continue;
            output[d] +=
                weights[j] * static_cast<double>(value.Row(b, kv_head, j)[d]);
          }
        }
        for (size_t j = 0; j < keys; ++j) {
          result.averaged_weights[(b * rows + i) * keys + j] +=
              weights[j] / static_cast<double>(query.heads);
        }
      }
    }
  }
  return result;
}

template AttentionResult ScaledDotProductAttention(
    const HeadsView<const float>&, const HeadsView<const float>&,
    const HeadsView<const float>&, const AttentionOptions&);
template AttentionResult ScaledDotProductAttention(
    const HeadsView<const double>&, const HeadsView<const double>&,
    const HeadsView<const double>&, const AttentionOptions&);

}  // namespace reference
}  // namespace headwise
