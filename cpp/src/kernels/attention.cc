// Fused attention over one block of query rows: scores, softmax, weighted sum.
//
// Per tile of 4 rows and chunk of 128 keys, from scratch:
//   m_c = max s_j      p_j = exp(s_j - m_c)      l_c = sum p_j
//   o_c = sum p_j v_j
// and into the running (m, l, o), chunks from left to right:
//   m' = max(m, m_c)   a = exp(m - m')           b = exp(m_c - m')
//   l' = a l + b l_c   o' = a o + b o_c          at the end: output = o / l
//
// A chunk without a visible key is the identity of the merge (a = 1 exactly,
// b l_c = b o_c = 0), and hidden keys add exact zeros. So the bits of a row
// depend on the keys it sees and their positions, never on what else the call
// computes. One bit escapes that: a fused multiply-add can round to -0, which
// any further zero turns into +0. So +0 is added to every result.
#include "kernels/target_policy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/kernels.h"
#include "kernels/scores-inl.h"
#include "kernels/simd-inl.h"
#include "kernels/tile-inl.h"
#include "memory.h"

HWY_BEFORE_NAMESPACE();
namespace headwise {
namespace kernels {
namespace HWY_NAMESPACE {

// What a tile carries from one chunk to the merge.
struct ChunkState {
  float maximum[kTileRows];
  float total[kTileRows];
  float keep[kTileRows];  // a: factor of what was summed before
  float take[kTileRows];  // b: factor of this chunk
};

// exp of four numbers <= 0, by the same code as everything else.
HWY_INLINE void ExpRows(float* HWY_RESTRICT x) {
  const hn::CappedTag<float, kTileRows> d;
  for (size_t i = 0; i < kTileRows; i += hn::Lanes(d)) {
    hn::StoreU(ExpNonPositive(d, hn::LoadU(d, x + i)), d, x + i);
  }
}

// Subtracting an infinite maximum from an infinite score gives NaN: right for
// +infinity (contract: the row is NaN), wrong where nothing was seen.
HWY_INLINE float Finite(float maximum) {
  return maximum == -std::numeric_limits<float>::infinity() ? 0.0f : maximum;
}

// In rising order. Highway's ReduceSum has an order of its own choosing, which
// may change with its version, and with it the bits of every build.
template <class D>
HWY_INLINE float SumInOrder(D d, hn::Vec<D> v) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  float sum = lanes[0];
  for (size_t i = 1; i < hn::Lanes(d); ++i) sum += lanes[i];
  return sum;
}

// Scores of one row become exp(score - maximum), in place.
template <class D>
HWY_INLINE void ChunkSoftmax(D d, const TileSpan& span,
                             float* HWY_RESTRICT scores, float* maximum,
                             float* total) {
  const size_t lanes = hn::Lanes(d);
  auto max = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (size_t j = span.panel_lo; j < span.panel_hi; j += lanes) {
    max = hn::Max(max, hn::LoadU(d, scores + j));
  }
  *maximum = hn::ReduceMax(d, max);
  const auto shift = hn::Set(d, Finite(*maximum));
  // Lane t adds the keys t, t + lanes, ... in rising order.
  auto sum = hn::Zero(d);
  for (size_t j = span.panel_lo; j < span.panel_hi; j += lanes) {
    const auto p = ExpNonPositive(d, hn::Sub(hn::LoadU(d, scores + j), shift));
    sum = hn::Add(sum, p);
    hn::StoreU(p, d, scores + j);
  }
  *total = SumInOrder(d, sum);
}

// sums = sums * keep + chunk * take, for one column panel.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void MergeSum(D d, const ChunkState& state, size_t r, V chunk,
                         float* HWY_RESTRICT sums) {
  const V kept = hn::Mul(hn::LoadU(d, sums), hn::Set(d, state.keep[r]));
  hn::StoreU(MultiplyAdd(chunk, hn::Set(d, state.take[r]), kept), d, sums);
}

// Weighted sum of a chunk's values, merged into sums [rows][padded_cols].
// values: [column panel][key][2 vectors].
template <size_t kRows>
HWY_INLINE void AddValues(const AttentionArgs& args, const TileSpan& span,
                          size_t chunk_keys, const ChunkState& state,
                          const float* values, float* sums) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const size_t stride = RoundUp(args.v_head_dim, 2 * lanes);
  for (size_t col = 0; col < args.v_head_dim; col += 2 * lanes) {
    TileProduct<kRows, kChunk, 1>(
        d, args.scores + span.lo,
        values + col * chunk_keys + span.lo * 2 * lanes, span.hi - span.lo,
        [&](size_t, size_t) HWY_ATTR { return hn::Zero(d); },
        [&](size_t r, size_t half, auto sum) HWY_ATTR {
          MergeSum(d, state, r, sum, sums + r * stride + col + half * lanes);
        });
  }
}

// The same where the chunk's values hold NaN or infinity: 0 * NaN is NaN, so
// hidden keys must be left out, not multiplied by 0. `hidden` tells which:
// [kTileRows][kChunk]. Rare, so it need not be fast; the order of addition is
// the same.
HWY_INLINE void AddFlaggedValues(const AttentionArgs& args, size_t rows,
                                 const TileSpan& span, size_t chunk_keys,
                                 const ChunkState& state, const float* values,
                                 const uint8_t* hidden, float* sums) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const size_t stride = RoundUp(args.v_head_dim, 2 * lanes);
  for (size_t r = 0; r < rows; ++r) {
    const float* p = args.scores + r * kChunk;
    for (size_t col = 0; col < args.v_head_dim; col += lanes) {
      const float* panel = values +
                           col / (2 * lanes) * (2 * lanes) * chunk_keys +
                           col % (2 * lanes);
      auto sum = hn::Zero(d);
      for (size_t j = span.lo; j < span.hi; ++j) {
        if (hidden[r * kChunk + j]) continue;
        sum = MultiplyAdd(hn::Set(d, p[j]), hn::LoadU(d, panel + j * 2 * lanes),
                          sum);
      }
      MergeSum(d, state, r, sum, sums + r * stride + col);
    }
  }
}

// One tile of rows against one chunk.
template <size_t kRows>
HWY_INLINE void AttendChunk(const AttentionArgs& args, size_t row,
                            const TileSpan& span, const float* values,
                            bool nonfinite, float* sums) {
  const FloatTag d;
  float* scores = args.scores;
  TileScores<kRows>(args, row, span, scores);

  uint8_t hidden[kTileRows * kChunk];
  if (nonfinite) {
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t j = span.lo; j < span.hi; ++j) {
        hidden[r * kChunk + j] =
            scores[r * kChunk + j] == -std::numeric_limits<float>::infinity();
      }
    }
  }

  ChunkState state = {};
  bool anything = false;
  for (size_t r = 0; r < kRows; ++r) {
    ChunkSoftmax(d, span, scores + r * kChunk, &state.maximum[r],
                 &state.total[r]);
    // A NaN total is something.
    anything |= state.total[r] != 0.0f;
  }
  if (!anything) return;

  for (size_t r = 0; r < kRows; ++r) {
    const float before = args.maximum[row + r];
    const float after = HWY_MAX(before, state.maximum[r]);
    state.keep[r] = before - Finite(after);
    state.take[r] = state.maximum[r] - Finite(after);
    args.maximum[row + r] = after;
  }
  ExpRows(state.keep);
  ExpRows(state.take);
  for (size_t r = 0; r < kRows; ++r) {
    float& total = args.total[row + r];
    total = total * state.keep[r] + state.total[r] * state.take[r];
  }

  const size_t chunk_keys = HWY_MIN(kChunk, args.key_count - span.chunk_first);
  if (nonfinite) {
    AddFlaggedValues(args, kRows, span, chunk_keys, state, values, hidden,
                     sums);
  } else {
    AddValues<kRows>(args, span, chunk_keys, state, values, sums);
  }
}

// output = sums / total, or the empty value.
HWY_INLINE void FinishRow(const AttentionArgs& args, size_t row,
                          const float* HWY_RESTRICT sums) {
  const FloatTag d;
  float* HWY_RESTRICT out = args.output + row * args.output_stride;
  const size_t cols = args.v_head_dim;
  const bool empty = args.total[row] == 0.0f;
  const auto total = hn::Set(d, args.total[row]);
  const auto empty_value = hn::Set(d, args.empty_value);
  const auto zero = hn::Zero(d);
  for (size_t col = 0; col < cols; col += hn::Lanes(d)) {
    const auto v =
        empty ? empty_value
              : hn::Add(hn::Div(hn::LoadU(d, sums + col), total), zero);
    if (col + hn::Lanes(d) <= cols) {
      hn::StoreU(v, d, out + col);
    } else {
      hn::StoreN(v, d, out + col, cols - col);
    }
  }
}

// Calls body(row, rows-as-constant) for each tile of a block.
template <class Body>
HWY_INLINE void ForEachTile(size_t rows, const Body& body) {
  size_t row = 0;
  for (; row + kTileRows <= rows; row += kTileRows) {
    body(row, std::integral_constant<size_t, 4>());
  }
  switch (rows - row) {
    case 3:
      return body(row, std::integral_constant<size_t, 3>());
    case 2:
      return body(row, std::integral_constant<size_t, 2>());
    case 1:
      return body(row, std::integral_constant<size_t, 1>());
  }
}

void Attend(const AttentionArgs& args) {
  const size_t width = 2 * hn::Lanes(FloatTag());
  const size_t stride = RoundUp(args.v_head_dim, width);
  for (size_t row = 0; row < args.rows; ++row) {
    args.maximum[row] = -std::numeric_limits<float>::infinity();
    args.total[row] = 0.0f;
  }
  std::memset(args.sums, 0, args.rows * stride * sizeof(float));

  for (size_t first = 0; first < args.key_count; first += kChunk) {
    const float* values = args.value_panels + first * stride;
    const bool nonfinite = args.chunk_nonfinite[first / kChunk] != 0;
    ForEachTile(args.rows, [&](size_t row, auto rows) HWY_ATTR {
      const TileSpan span = SpanOf(args, row, rows, first, width);
      if (span.lo >= span.hi) return;
      AttendChunk<decltype(rows)::value>(args, row, span, values, nonfinite,
                                         args.sums + row * stride);
    });
  }
  for (size_t row = 0; row < args.rows; ++row) {
    FinishRow(args, row, args.sums + row * stride);
  }
}

// weights[j] = exp(score - maximum) / total over one span; j counts within the
// chunk.
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

void AttentionWeights(const AttentionArgs& args, float* weights,
                      size_t weights_stride, bool accumulate) {
  const size_t width = 2 * hn::Lanes(FloatTag());
  for (size_t first = 0; first < args.key_count; first += kChunk) {
    const size_t chunk_keys = HWY_MIN(kChunk, args.key_count - first);
    ForEachTile(args.rows, [&](size_t row, auto rows) HWY_ATTR {
      TileSpan span = SpanOf(args, row, rows, first, width);
      if (span.lo < span.hi) {
        TileScores<decltype(rows)::value>(args, row, span, args.scores);
      } else {
        span.panel_lo = span.hi = 0;
      }
      for (size_t r = 0; r < rows; ++r) {
        const size_t i = row + r;
        float* to = weights + i * weights_stride + first;
        // exp(-infinity) / total: 0, or NaN in a row that is NaN.
        const float total = args.total[i];
        if (total == 0.0f) {
          FillWeights(args.empty_value, 0, chunk_keys, to, accumulate);
          continue;
        }
        const float zero = 0.0f / total;
        FillWeights(zero, 0, span.panel_lo, to, accumulate);
        WriteWeights(args, i, span, args.scores + r * kChunk, to, accumulate);
        FillWeights(zero, span.hi, chunk_keys, to, accumulate);
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

HWY_EXPORT(Attend);
void Attend(const AttentionArgs& args) { HWY_DYNAMIC_DISPATCH(Attend)(args); }

HWY_EXPORT(AttentionWeights);
void AttentionWeights(const AttentionArgs& args, float* weights,
                      size_t weights_stride, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(AttentionWeights)
  (args, weights, weights_stride, accumulate);
}

}  // namespace kernels
}  // namespace headwise
#endif  // HWY_ONCE
