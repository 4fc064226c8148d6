#include "reference/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace headwise {
namespace reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

int64_t LengthOr(const int32_t* lengths, size_t b, size_t otherwise) {
  return lengths != nullptr ? lengths[b] : static_cast<int64_t>(otherwise);
}

// Which chunk of attention_chunk positions a position is in.
int64_t ChunkOf(int64_t position, int64_t chunk) {
  const int64_t quotient = position / chunk;
  return position % chunk < 0 ? quotient - 1 : quotient;
}

// Whether a query at `position` may see key j, by where both stand.
bool NearEnough(const AttentionOptions& options, size_t b, int64_t position,
                int64_t j) {
  if (options.causal != Causal::kNone && j > position &&
      j >= LengthOr(options.prefix_lengths, b, 0)) {
    return false;
  }
  if (options.window_left >= 0 && position - j > options.window_left) {
    return false;
  }
  if (options.window_right >= 0 && j - position > options.window_right) {
    return false;
  }
  return options.attention_chunk == 0 ||
         ChunkOf(position, options.attention_chunk) ==
             ChunkOf(j, options.attention_chunk);
}

// Whether the block mask lets a query at `position` see key j, of one sequence.
bool BlockMaskLets(const BlockMask* mask, size_t sequence, size_t h,
                   int64_t position, size_t j) {
  if (mask == nullptr) return true;
  BlockMask::Bits bits;
  mask->RowBits(sequence, h,
                static_cast<size_t>(position - mask->shape().first_query), j,
                bits);
  return (bits[0] & 1) != 0;
}

// Whether every mask lets query i of head h look at key j, both counted as in
// the masks' own axes. The bias has its own say: -infinity hides.
bool MayLook(const AttentionOptions& options, const SequenceOfRow& sequence,
             size_t b, size_t h, size_t i, size_t j, size_t keys) {
  if (!sequence.HasKey(j)) return false;
  const size_t n = sequence.index;
  const size_t own_i = i - sequence.query_begin;
  const size_t own_j = j - sequence.key_begin;
  if (static_cast<int64_t>(own_j) >=
      LengthOr(options.key_lengths, n, sequence.keys)) {
    return false;
  }
  if (options.key_padding_mask != nullptr &&
      options.key_padding_mask[b * keys + j] != 0) {
    return false;
  }
  const int64_t position =
      PositionOf(options, n, own_i, sequence.queries, sequence.keys);
  if (!NearEnough(options, n, position, static_cast<int64_t>(own_j)) ||
      !BlockMaskLets(options.block_mask, n, h, position, own_j)) {
    return false;
  }
  const MaskView<uint8_t>& mask = options.attend_mask;
  return !mask.present() || mask.Row(b, h, i)[j * mask.key_stride()] != 0;
}

// scale * q.k.
template <typename T, typename K>
double RawScore(const T* query, const K* key, size_t head_dim, double scale) {
  double score = 0.0;
  for (size_t d = 0; d < head_dim; ++d) {
    score +=
        scale * static_cast<double>(query[d]) * static_cast<double>(key[d]);
  }
  return score;
}

double Cap(double score, double softcap) {
  return softcap == 0.0 ? score : softcap * std::tanh(score / softcap);
}

// Weights of one row of scores, and the log of the sum of their exponentials.
// NaN or +infinity among the scores makes all of the row NaN. `sink` is one
// more score without a weight; -infinity: none.
double Softmax(const double* scores, size_t keys, double sink,
               EmptyRows empty_rows, double* weights) {
  bool poisoned = false;
  double maximum = sink;
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
  double sum = std::exp(sink - maximum);
  for (size_t j = 0; j < keys; ++j) sum += std::exp(scores[j] - maximum);
  for (size_t j = 0; j < keys; ++j) {
    weights[j] = std::exp(scores[j] - maximum) / sum;
  }
  return maximum + std::log(sum);
}

}  // namespace

SequenceOfRow FindSequence(const AttentionOptions& options, size_t b, size_t i,
                           size_t rows, size_t keys) {
  const int32_t* queries_end = options.cumulative_query_lengths;
  if (queries_end == nullptr) return {b, 0, rows, 0, keys};
  size_t n = 0;
  while (i >= static_cast<size_t>(queries_end[n + 1])) ++n;
  const auto begin = [n](const int32_t* cumulative) {
    return static_cast<size_t>(cumulative[n]);
  };
  const auto length = [n](const int32_t* cumulative) {
    return static_cast<size_t>(cumulative[n + 1] - cumulative[n]);
  };
  const int32_t* keys_end = options.cumulative_key_lengths;
  return {n, begin(queries_end), length(queries_end), begin(keys_end),
          length(keys_end)};
}

int64_t PositionOf(const AttentionOptions& options, size_t b, size_t i,
                   size_t rows, size_t keys) {
  int64_t offset = 0;
  if (options.causal == Causal::kEnd) {
    offset = LengthOr(options.key_lengths, b, keys) -
             LengthOr(options.query_lengths, b, rows);
  } else if (options.query_offsets != nullptr) {
    offset = options.query_offsets[b];
  }
  return offset + static_cast<int64_t>(i);
}

double Alibi(const AttentionOptions& options, size_t h, int64_t position,
             size_t j) {
  if (options.alibi_slopes == nullptr) return 0.0;
  return -static_cast<double>(options.alibi_slopes[h]) *
         std::abs(static_cast<double>(position - static_cast<int64_t>(j)));
}

template <typename T>
AttentionResult ScaledDotProductAttention(const HeadsView<const T>& query,
                                          const HeadsView<const T>& key,
                                          const HeadsView<const T>& value,
                                          const AttentionOptions& options) {
  const HeadsView<const float>& extra_key = options.extra_key;
  const HeadsView<const float>& extra_value = options.extra_value;
  const size_t rows = query.rows;
  const size_t own_keys = key.rows;
  const size_t keys = own_keys + extra_key.rows;
  AttentionResult result;
  result.batch = query.batch;
  result.heads = query.heads;
  result.rows = rows;
  result.keys = keys;
  result.v_cols = value.cols;
  const size_t all_rows = query.batch * query.heads * rows;
  result.raw.assign(all_rows * keys, 0.0);
  result.capped.assign(all_rows * keys, 0.0);
  result.scores.assign(all_rows * keys, -kInfinity);
  result.weights.assign(all_rows * keys, 0.0);
  result.averaged_weights.assign(query.batch * rows * keys, 0.0);
  result.output.assign(all_rows * value.cols, 0.0);
  result.lse.assign(all_rows, -kInfinity);
  result.row_max.assign(all_rows, -kInfinity);

  const double scale = options.scale.has_value()
                           ? static_cast<double>(*options.scale)
                           : 1.0 / std::sqrt(static_cast<double>(query.cols));
  const double softcap = static_cast<double>(options.softcap);
  const MaskView<float>& bias = options.attn_bias;

  for (size_t b = 0; b < query.batch; ++b) {
    const size_t extra_b = extra_key.batch == 1 ? 0 : b;
    const size_t extra_value_b = extra_value.batch == 1 ? 0 : b;
    for (size_t h = 0; h < query.heads; ++h) {
      const size_t kv_head = h / (query.heads / key.heads);
      const double gate = options.head_gates == nullptr
                              ? 1.0
                              : static_cast<double>(options.head_gates[h]);
      for (size_t i = 0; i < rows; ++i) {
        const size_t row = (b * query.heads + h) * rows + i;
        double* raw = result.raw.data() + row * keys;
        double* capped = result.capped.data() + row * keys;
        double* scores = result.scores.data() + row * keys;
        double* weights = result.weights.data() + row * keys;
        double* output = result.output.data() + row * value.cols;
        const SequenceOfRow sequence =
            FindSequence(options, b, i, rows, own_keys);
        const size_t own_i = i - sequence.query_begin;
        // A query beyond its sequence's length has no softmax at all.
        const bool padding =
            static_cast<int64_t>(own_i) >=
            LengthOr(options.query_lengths, sequence.index, sequence.queries);
        const int64_t position = PositionOf(options, sequence.index, own_i,
                                            sequence.queries, sequence.keys);

        for (size_t j = 0; j < keys; ++j) {
          const bool extra = j >= own_keys;
          if (!extra && !sequence.HasKey(j)) {
            raw[j] = capped[j] = -kInfinity;
            continue;
          }
          raw[j] = extra
                       ? RawScore(query.Row(b, h, i),
                                  extra_key.Row(extra_b, kv_head, j - own_keys),
                                  query.cols, scale)
                       : RawScore(query.Row(b, h, i), key.Row(b, kv_head, j),
                                  query.cols, scale);
          capped[j] = Cap(raw[j], softcap);
          if (padding) continue;
          if (extra) {
            scores[j] = capped[j];
            continue;
          }
          if (!MayLook(options, sequence, b, h, i, j, own_keys)) continue;
          const double added =
              bias.present() ? bias.Row(b, h, i)[j * bias.key_stride()] : 0.0;
          // A bias of -infinity hides, whatever the score is.
          if (added == -kInfinity) continue;
          scores[j] = capped[j] +
                      Alibi(options, h, position, j - sequence.key_begin) +
                      added;
        }
        const double sink = padding || options.sinks == nullptr
                                ? -kInfinity
                                : static_cast<double>(options.sinks[h]);
        result.lse[row] =
            Softmax(scores, keys, sink, options.empty_rows, weights);
        result.row_max[row] = sink;
        for (size_t j = 0; j < keys; ++j) {
          result.row_max[row] = std::max(result.row_max[row], scores[j]);
        }
        if (std::isnan(result.lse[row])) result.row_max[row] = kNan;

        const bool empty = result.lse[row] == -kInfinity;
        for (size_t d = 0; d < value.cols; ++d) {
          if (empty) {
            output[d] = options.empty_rows == EmptyRows::kNan ? kNan : 0.0;
            continue;
          }
          for (size_t j = 0; j < keys; ++j) {
            // Left out, not multiplied by 0: 0 * NaN is NaN.
            if (scores[j] == -kInfinity) continue;
            const double v =
                j < own_keys
                    ? static_cast<double>(value.Row(b, kv_head, j)[d])
                    : extra_value.Row(extra_value_b, kv_head, j - own_keys)[d];
            output[d] += weights[j] * v;
          }
          output[d] *= gate;
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
