#include "layer_projection.h"

#include <algorithm>
#include <cmath>

#include "headwise/rotary.h"
#include "product.h"
#include "sequence.h"
#include "visibility.h"

namespace headwise {
namespace {

template <typename T>
bool SameView(const TensorView<T>& a, const TensorView<T>& b) {
  return a.data == b.data && a.batch == b.batch && a.rows == b.rows &&
         a.cols == b.cols && a.batch_stride == b.batch_stride &&
         a.row_stride == b.row_stride;
}

// Dense [B, rows, out_features].
ProductTarget Dense(const Linear& linear, size_t rows, float* output) {
  return {&linear.packed(), output, rows * linear.out_features(),
          linear.out_features()};
}

// Inputs that are one and the same (self-attention) are packed once and meet
// all their weights in one product. `scratch`: TakeProductScratch.
void ProjectInputs(const ProjectionSet<std::unique_ptr<Linear>>& p,
                   const TensorView<const float>& query,
                   const TensorView<const float>& key,
                   const TensorView<const float>* value,
                   const Projected& projected, float* scratch) {
  const TensorView<const float>* inputs[3] = {&query, &key, value};
  const size_t input_count = value == nullptr ? 2 : 3;
  const ProductTarget targets[3] = {
      Dense(*p.query, query.rows, projected.query),
      Dense(*p.key, key.rows, projected.key),
      Dense(*p.value, key.rows, projected.value)};
  bool done[3] = {};
  for (size_t i = 0; i < input_count; ++i) {
    if (done[i]) continue;
    ProductTarget shared[3];
    size_t count = 0;
    for (size_t j = i; j < input_count; ++j) {
      if (done[j] || !SameView(*inputs[i], *inputs[j])) continue;
      shared[count++] = targets[j];
      done[j] = true;
    }
    Product(*inputs[i], shared, count, scratch);
  }
}

// Each row of x becomes x / sqrt(mean(x^2) + epsilon) * weight (null: 1).
void NormaliseRows(const float* weight, float epsilon,
                   const HeadsView<float>& x) {
  for (size_t b = 0; b < x.batch; ++b) {
    for (size_t head = 0; head < x.heads; ++head) {
      for (size_t i = 0; i < x.rows; ++i) {
        float* row = x.Row(b, head, i);
        double squares = 0.0;
        for (size_t d = 0; d < x.cols; ++d) {
          squares += static_cast<double>(row[d]) * static_cast<double>(row[d]);
        }
        const double mean = squares / static_cast<double>(x.cols);
        const float factor = static_cast<float>(
            1.0 / std::sqrt(mean + static_cast<double>(epsilon)));
        for (size_t d = 0; d < x.cols; ++d) {
          row[d] *= factor;
          if (weight != nullptr) row[d] *= weight[d];
        }
      }
    }
  }
}

// The rows [begin, begin + length) of one entry turn, the first at `position`.
Status TurnFrom(const RotaryConfig& rotary, size_t entry, size_t begin,
                size_t length, int64_t position, const HeadsView<float>& x) {
  HeadsView<float> own = x;
  own.data = x.Row(entry, 0, begin);
  own.batch = 1;
  own.rows = length;
  const int32_t offset = static_cast<int32_t>(position);
  RotaryPositions positions;
  positions.offsets = &offset;
  return RotaryEmbedding(rotary, positions, own);
}

Status TurnGiven(const RotaryConfig& rotary, const int32_t* given,
                 const int32_t* offsets, const HeadsView<float>& x) {
  RotaryPositions positions;
  positions.positions = given;
  positions.offsets = offsets;
  return RotaryEmbedding(rotary, positions, x);
}

// By the positions that causality and windows count, unless others are given.
Status Turn(const LayerOptions& options, const int32_t* offsets,
            const HeadsView<float>& query, const HeadsView<float>& key) {
  const RotaryConfig& rotary = *options.rotary;
  const bool cached = options.cache != nullptr;
  const bool by_offset =
      !IsPacked(options) && (cached || options.causal != Causal::kEnd);
  const AttentionSizes sizes = {query.batch, query.heads, key.heads, query.rows,
                                key.rows};
  const size_t sequences = SequenceCount(sizes, options);
  if (options.query_positions != nullptr || by_offset) {
    HEADWISE_RETURN_IF_ERROR(
        TurnGiven(rotary, options.query_positions, offsets, query));
  } else {
    for (size_t n = 0; n < sequences; ++n) {
      const Sequence s = SequenceAt(sizes, options, n);
      HEADWISE_RETURN_IF_ERROR(TurnFrom(rotary, s.entry, s.query_begin,
                                        s.query_length,
                                        QueryPosition(options, s, 0), query));
    }
  }
  if (options.key_positions != nullptr || !IsPacked(options)) {
    // Keys of a cache's call stand where its queries do.
    return TurnGiven(rotary, options.key_positions, cached ? offsets : nullptr,
                     key);
  }
  for (size_t n = 0; n < sequences; ++n) {
    const Sequence s = SequenceAt(sizes, options, n);
    HEADWISE_RETURN_IF_ERROR(
        TurnFrom(rotary, s.entry, s.key_begin, s.key_length, 0, key));
  }
  return Status();
}

// Normalises and turns what was projected.
Status ShapeProjected(const LayerOptions& options, const int32_t* offsets,
                      const HeadsView<float>& query,
                      const HeadsView<float>& key) {
  if (options.qk_norm != nullptr) {
    const QkNorm& norm = *options.qk_norm;
    NormaliseRows(norm.query_weight, norm.epsilon, query);
    NormaliseRows(norm.key_weight, norm.epsilon, key);
  }
  if (options.rotary == nullptr) return Status();
  return Turn(options, offsets, query, key);
}

}  // namespace

ProjectionScratch TakeProjectionScratch(const Config& c, size_t batch,
                                        size_t query_length, size_t key_length,
                                        Arena* arena) {
  const size_t query_rows = SaturatingMul(batch, query_length);
  const size_t key_rows = SaturatingMul(batch, key_length);
  ProjectionScratch s;
  s.projected.query =
      arena->Take<float>(SaturatingMul(query_rows, c.num_heads * c.head_dim));
  s.projected.key =
      arena->Take<float>(SaturatingMul(key_rows, c.num_kv_heads * c.head_dim));
  s.projected.value = arena->Take<float>(
      SaturatingMul(key_rows, c.num_kv_heads * c.v_head_dim));
  // Every product of a call uses the same room, so it fits the largest, that
  // of the output included.
  const size_t depth =
      std::max({c.num_heads * c.v_head_dim, c.embed_dim, c.k_dim, c.v_dim});
  s.product = TakeProductScratch(std::max(query_rows, key_rows), depth, arena);
  s.positions = TakeCachePositions(batch, arena);
  return s;
}

Status ProjectIntoHeads(
    const Config& c, const ProjectionSet<std::unique_ptr<Linear>>& projections,
    const TensorView<const float>& query, const TensorView<const float>& key,
    const TensorView<const float>* value, const LayerOptions& options,
    const ProjectionScratch& scratch) {
  const Projected& to = scratch.projected;
  ProjectInputs(projections, query, key, value, to, scratch.product);
  const int32_t* offsets = options.query_offsets;
  if (options.cache != nullptr) {
    ReadLengths(*options.cache, scratch.positions.offsets);
    offsets = scratch.positions.offsets;
  }
  using Heads = HeadsView<float>;
  return ShapeProjected(options, offsets,
                        Heads::HeadsLast(to.query, query.batch, c.num_heads,
                                         query.rows, c.head_dim),
                        Heads::HeadsLast(to.key, key.batch, c.num_kv_heads,
                                         key.rows, c.head_dim));
}

}  // namespace headwise
