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

// Highway's ReduceMax starts from the lowest finite number on some targets: a
// row that sees nothing would seem to have seen something.
template <class D>
HWY_INLINE float MaxInOrder(D d, hn::Vec<D> v) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  float max = lanes[0];
  for (size_t i = 1; i < hn::Lanes(d); ++i) max = HWY_MAX(max, lanes[i]);
  return max;
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
  *maximum = MaxInOrder(d, max);
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
template <size_t kRows>
HWY_INLINE void AddValues(const AttentionArgs& args, const KeyChunk& chunk,
                          const TileSpan& span, const ChunkState& state,
                          float* sums) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const size_t stride = RoundUp(args.v_head_dim, 2 * lanes);
  size_t col = 0;
  if constexpr (kRows == 1) {
    for (; col + kRowPanels * 2 * lanes <= stride;
         col += kRowPanels * 2 * lanes) {
      RowProduct<1>(
          d, args.scores + span.lo,
          chunk.values + col * chunk.value_rows + span.lo * 2 * lanes,
          2 * lanes * chunk.value_rows, span.hi - span.lo,
          [&](size_t, size_t) HWY_ATTR { return hn::Zero(d); },
          [&](size_t panel, size_t half, auto sum) HWY_ATTR {
            MergeSum(d, state, 0, sum, sums + col + (2 * panel + half) * lanes);
          });
    }
  }
  for (; col < args.v_head_dim; col += 2 * lanes) {
    TileProduct<kRows, kChunk, 1>(
        d, args.scores + span.lo,
        chunk.values + col * chunk.value_rows + span.lo * 2 * lanes,
        span.hi - span.lo, [&](size_t, size_t) HWY_ATTR { return hn::Zero(d); },
        [&](size_t r, size_t half, auto sum) HWY_ATTR {
          MergeSum(d, state, r, sum, sums + r * stride + col + half * lanes);
        });
  }
}

// The same where the chunk's values hold NaN or infinity: 0 * NaN is NaN, so
// hidden keys must be left out, not multiplied by 0. `hidden` tells which:
// [kTileRows][kChunk]. Rare, so it need not be fast; the order of addition is
// the same.
HWY_INLINE void AddFlaggedValues(const AttentionArgs& args,
                                 const KeyChunk& chunk, size_t rows,
                                 const TileSpan& span, const ChunkState& state,
                                 const uint8_t* hidden, float* sums) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const size_t stride = RoundUp(args.v_head_dim, 2 * lanes);
  for (size_t r = 0; r < rows; ++r) {
    const float* p = args.scores + r * kChunk;
    for (size_t col = 0; col < args.v_head_dim; col += lanes) {
      const float* panel = chunk.values +
                           col / (2 * lanes) * (2 * lanes) * chunk.value_rows +
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

// One tile of rows against one chunk. A function of its own, so that an engine
// can replace its first, quick code of it while the loops around go on; see
// Wasm.cmake.
template <size_t kRows>
HWY_NOINLINE void AttendChunk(const AttentionArgs& args, size_t row,
                              const KeyChunk& chunk, const TileSpan& span,
                              float* sums) {
  const FloatTag d;
  float* scores = args.scores;
  TileScores<kRows>(args, row, chunk, span, ScoreStage::kBiased, scores);

  uint8_t hidden[kTileRows * kChunk];
  if (chunk.nonfinite) {
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

  if (chunk.nonfinite) {
    AddFlaggedValues(args, chunk, kRows, span, state, hidden, sums);
  } else {
    AddValues<kRows>(args, chunk, span, state, sums);
  }
}

// The sink joins the softmax as one more score, with no value.
HWY_INLINE void AddSink(const AttentionArgs& args, size_t rows,
                        float* HWY_RESTRICT sums, size_t stride) {
  if (args.sink == -std::numeric_limits<float>::infinity()) return;
  for (size_t row = 0; row < rows; ++row) {
    float& maximum = args.maximum[row];
    const float after = HWY_MAX(maximum, args.sink);
    float factors[kTileRows] = {maximum - after, args.sink - after, 0.0f, 0.0f};
    ExpRows(factors);
    maximum = after;
    args.total[row] = args.total[row] * factors[0] + factors[1];
    const FloatTag d;
    const auto keep = hn::Set(d, factors[0]);
    float* of_row = sums + row * stride;
    for (size_t col = 0; col < stride; col += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(hn::LoadU(d, of_row + col), keep), d, of_row + col);
    }
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
  const auto gate = hn::Set(d, args.gate);
  for (size_t col = 0; col < cols; col += hn::Lanes(d)) {
    const auto mean = hn::Div(hn::LoadU(d, sums + col), total);
    const auto v = empty ? empty_value : hn::Mul(hn::Add(mean, zero), gate);
    if (col + hn::Lanes(d) <= cols) {
      hn::StoreU(v, d, out + col);
    } else {
      hn::StoreN(v, d, out + col, cols - col);
    }
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

  const BlockSpan block(args);
  for (size_t c = 0; c < args.chunk_count; ++c) {
    const KeyChunk& chunk = args.chunks[c];
    if (!block.Meets(args, chunk)) continue;
    ForEachTile(args.seeing_rows, [&](size_t row, auto rows) HWY_ATTR {
      const TileSpan span = SpanOfTile(args, row, rows, chunk, width);
      if (span.empty()) return;
      AttendChunk<decltype(rows)::value>(args, row, chunk, span,
                                         args.sums + row * stride);
    });
  }
  AddSink(args, args.seeing_rows, args.sums, stride);
  for (size_t row = 0; row < args.rows; ++row) {
    FinishRow(args, row, args.sums + row * stride);
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

}  // namespace kernels
}  // namespace headwise
#endif  // HWY_ONCE
