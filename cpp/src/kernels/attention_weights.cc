// Weights and scores as people ask to see them, recomputed from the same tiles
// of scores that the forward pass uses: nothing L x S is kept by that pass.
#include "kernels/target_policy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_weights.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include <cstring>

#include "hwy/highway.h"
#include "kernels/kernels.h"
#include "kernels/scores-inl.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headwise {
namespace kernels {
namespace HWY_NAMESPACE {

// weights[j] = exp(score - maximum) / total over one span of a chunk.
HWY_INLINE void WriteWeights(const AttentionArgs& args, size_t row,
                             const TileSpan& span, const float* scores,
                             float* HWY_RESTRICT weights, bool accumulate) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto shift = hn::Set(d, Finite(args.maximum[row]));
  const auto total = hn::Set(d, args.total[row]);
  for (size_t j = span.panel_lo; j < span.hi; j += lanes) {
    const size_t left = span.hi - j;
    auto w = hn::Div(
        ExpNonPositive(d, hn::Sub(hn::LoadU(d, scores + j), shift)), total);
    if (left >= lanes) {
      if (accumulate) w = hn::Add(w, hn::LoadU(d, weights + j));
      hn::StoreU(w, d, weights + j);
    } else {
      if (accumulate) w = hn::Add(w, hn::LoadN(d, weights + j, left));
      hn::StoreN(w, d, weights + j, left);
    }
  }
}

HWY_INLINE void FillWeights(float value, size_t lo, size_t hi,
                            float* HWY_RESTRICT weights, bool accumulate) {
  for (size_t j = lo; j < hi; ++j) {
    weights[j] = accumulate ? weights[j] + value : value;
  }
}

// One row of one chunk.
HWY_INLINE void WeightsOfRow(const AttentionArgs& args, size_t row,
                             const KeyChunk& chunk, const TileSpan& span,
                             const float* scores, float* weights,
                             bool accumulate) {
  const float total = args.total[row];
  if (total == 0.0f) {
    return FillWeights(args.empty_value, 0, chunk.count, weights, accumulate);
  }
  // exp(-infinity) / total: 0, or NaN in a row that is NaN.
  const float zero = 0.0f / total;
  FillWeights(zero, 0, span.panel_lo, weights, accumulate);
  WriteWeights(args, row, span, scores, weights, accumulate);
  FillWeights(zero, span.hi, chunk.count, weights, accumulate);
}

void AttentionWeights(const AttentionArgs& args, float* weights,
                      size_t weights_stride, bool accumulate) {
  const size_t width = 2 * hn::Lanes(FloatTag());
  for (size_t c = 0; c < args.chunk_count; ++c) {
    const KeyChunk& chunk = args.chunks[c];
    float* of_chunk = weights + (chunk.column - args.first_column);
    ForEachTile(args.seeing_rows, [&](size_t row, auto rows) HWY_ATTR {
      const TileSpan span = SpanOfTile(args, row, rows, chunk, width);
      if (!span.empty()) {
        TileScores<decltype(rows)::value>(args, row, chunk, span,
                                          ScoreStage::kBiased, args.scores);
      }
      for (size_t r = 0; r < rows; ++r) {
        WeightsOfRow(args, row + r, chunk, span, args.scores + r * kChunk,
                     of_chunk + (row + r) * weights_stride, accumulate);
      }
    });
    for (size_t row = args.seeing_rows; row < args.rows; ++row) {
      FillWeights(args.empty_value, 0, chunk.count,
                  of_chunk + row * weights_stride, accumulate);
    }
  }
}

void AttentionScores(const AttentionArgs& args, ScoreStage stage, float* scores,
                     size_t scores_stride) {
  const size_t width = 2 * hn::Lanes(FloatTag());
  for (size_t c = 0; c < args.chunk_count; ++c) {
    const KeyChunk& chunk = args.chunks[c];
    const TileSpan span = MakeSpan(0, chunk.count, width);
    ForEachTile(args.rows, [&](size_t row, auto rows) HWY_ATTR {
      TileScores<decltype(rows)::value>(args, row, chunk, span, stage,
                                        args.scores);
      for (size_t r = 0; r < rows; ++r) {
        std::memcpy(scores + (row + r) * scores_stride +
                        (chunk.column - args.first_column),
                    args.scores + r * kChunk, chunk.count * sizeof(float));
      }
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kernels
}  // namespace headwise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headwise {
namespace kernels {

HWY_EXPORT(AttentionWeights);
void AttentionWeights(const AttentionArgs& args, float* weights,
                      size_t weights_stride, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(AttentionWeights)
  (args, weights, weights_stride, accumulate);
}

HWY_EXPORT(AttentionScores);
void AttentionScores(const AttentionArgs& args, ScoreStage stage, float* scores,
                     size_t scores_stride) {
  HWY_DYNAMIC_DISPATCH(AttentionScores)(args, stage, scores, scores_stride);
}

}  // namespace kernels
}  // namespace headwise
#endif  // HWY_ONCE
