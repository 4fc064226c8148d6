// Scores of a tile of query rows against one chunk of keys, masks applied:
// what the forward pass, and whoever asks for the weights, starts from.
#if defined(HEADWISE_KERNELS_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADWISE_KERNELS_SCORES_INL_H_
#undef HEADWISE_KERNELS_SCORES_INL_H_
#else
#define HEADWISE_KERNELS_SCORES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/kernels.h"
#include "kernels/simd-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headwise {
namespace kernels {
namespace HWY_NAMESPACE {

// Positions are relative to the first key of the chunk. [lo, hi) covers what
// some row of the tile may see; [panel_lo, panel_hi) is the same in whole
// panels: what is computed. The last panel may reach beyond the keys.
struct TileSpan {
  size_t chunk_first = 0;  // first key of the chunk, relative to the anchor
  size_t lo = 0;
  size_t hi = 0;
  size_t panel_lo = 0;
  size_t panel_hi = 0;
};

HWY_INLINE size_t ClampToChunk(size_t key, size_t chunk_first) {
  if (key <= chunk_first) return 0;
  return HWY_MIN(key - chunk_first, kChunk);
}

// The part of a chunk that `rows` rows, from `row`, may see by position.
HWY_INLINE TileSpan SpanOf(const AttentionArgs& args, size_t row, size_t rows,
                           size_t chunk_first, size_t width) {
  TileSpan span;
  span.chunk_first = chunk_first;
  span.lo = kChunk;
  for (size_t r = row; r < row + rows; ++r) {
    const size_t lo = ClampToChunk(args.begin[r], chunk_first);
    const size_t hi = ClampToChunk(args.end[r], chunk_first);
    if (lo >= hi) continue;
    span.lo = HWY_MIN(span.lo, lo);
    span.hi = HWY_MAX(span.hi, hi);
  }
  span.panel_lo = span.lo / width * width;
  span.panel_hi = (span.hi + width - 1) / width * width;
  return span;
}

// Loads `d`-many mask bytes or biases; beyond `left` values nothing is read.
template <class DFrom, typename T = hn::TFromD<DFrom>>
HWY_INLINE hn::Vec<DFrom> LoadMask(DFrom d, const T* from, size_t key_stride,
                                   size_t left) {
  if (key_stride == 0) return hn::Set(d, *from);
  if (left >= hn::Lanes(d)) return hn::LoadU(d, from);
  return hn::LoadN(d, from, left);
}

// Hides where the mask bytes are zero (kHideZero) or non-zero.
template <bool kHideZero, class D>
HWY_INLINE void HideByBytes(D d, const uint8_t* mask, size_t key_stride,
                            size_t key_count, const TileSpan& span,
                            float* HWY_RESTRICT scores) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint8_t, D> du8;
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (size_t j = span.panel_lo; j < span.hi; j += hn::Lanes(d)) {
    const size_t key = span.chunk_first + j;
    const auto bytes =
        LoadMask(du8, mask + key * key_stride, key_stride, key_count - key);
    const auto zero =
        hn::RebindMask(d, hn::Eq(hn::PromoteTo(du, bytes), hn::Zero(du)));
    const auto score = hn::LoadU(d, scores + j);
    hn::StoreU(kHideZero ? hn::IfThenElse(zero, hidden, score)
                         : hn::IfThenElse(zero, score, hidden),
               d, scores + j);
  }
}

// Adds the bias. -infinity hides whatever the score is: NaN or +infinity plus
// -infinity would give NaN.
template <class D>
HWY_INLINE void AddBias(D d, const float* bias, size_t key_stride,
                        size_t key_count, const TileSpan& span,
                        float* HWY_RESTRICT scores) {
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (size_t j = span.panel_lo; j < span.hi; j += hn::Lanes(d)) {
    const size_t key = span.chunk_first + j;
    const auto b =
        LoadMask(d, bias + key * key_stride, key_stride, key_count - key);
    const auto sum = hn::Add(hn::LoadU(d, scores + j), b);
    hn::StoreU(hn::IfThenElse(hn::Eq(b, hidden), hidden, sum), d, scores + j);
  }
}

// Hides what the row may not see by position.
template <class D>
HWY_INLINE void HideOutside(D d, size_t lo, size_t hi, const TileSpan& span,
                            float* HWY_RESTRICT scores) {
  if (lo <= span.panel_lo && hi >= span.panel_hi) return;
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  // Positions within a chunk are exact in a float.
  const auto first = hn::Set(d, static_cast<float>(lo));
  const auto end = hn::Set(d, static_cast<float>(hi));
  for (size_t j = span.panel_lo; j < span.panel_hi; j += hn::Lanes(d)) {
    const auto at = hn::Iota(d, static_cast<float>(j));
    const auto seen = hn::And(hn::Ge(at, first), hn::Lt(at, end));
    const auto score = hn::LoadU(d, scores + j);
    hn::StoreU(hn::IfThenElse(seen, score, hidden), d, scores + j);
  }
}

// Order of the contract: scale * q.k, then the bias,
// then the masks. scores: [kTileRows][kChunk], written at [panel_lo, panel_hi).
template <size_t kRows>
HWY_INLINE void TileScores(const AttentionArgs& args, size_t row,
                           const TileSpan& span, float* HWY_RESTRICT scores) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, args.score_factor);
  const float* tile = args.query_tiles + row * args.head_dim;
  const float* panels = args.key_panels + span.chunk_first * args.head_dim;
  for (size_t j = span.panel_lo; j < span.panel_hi; j += 2 * lanes) {
    TileProduct<kRows, 1, kTileRows>(
        d, tile, panels + j * args.head_dim, args.head_dim,
        [&](size_t, size_t) HWY_ATTR { return hn::Zero(d); },
        [&](size_t r, size_t half, auto sum) HWY_ATTR {
          hn::StoreU(hn::Mul(sum, factor), d,
                     scores + r * kChunk + j + half * lanes);
        });
  }
  for (size_t r = 0; r < kRows; ++r) {
    float* of_row = scores + r * kChunk;
    const size_t i = row + r;
    if (args.bias.data != nullptr) {
      AddBias(d, args.bias.data + i * args.bias.row_stride,
              args.bias.key_stride, args.key_count, span, of_row);
    }
    if (args.attend.data != nullptr) {
      HideByBytes<true>(d, args.attend.data + i * args.attend.row_stride,
                        args.attend.key_stride, args.key_count, span, of_row);
    }
    if (args.padding.data != nullptr) {
      HideByBytes<false>(d, args.padding.data + i * args.padding.row_stride,
                         args.padding.key_stride, args.key_count, span, of_row);
    }
    HideOutside(d, ClampToChunk(args.begin[i], span.chunk_first),
                ClampToChunk(args.end[i], span.chunk_first), span, of_row);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kernels
}  // namespace headwise
HWY_AFTER_NAMESPACE();

#endif  // HEADWISE_KERNELS_SCORES_INL_H_
