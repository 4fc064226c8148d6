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
#include <type_traits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/kernels.h"
#include "kernels/simd-inl.h"
#include "kernels/tile-inl.h"
#include "memory.h"

HWY_BEFORE_NAMESPACE();
namespace headwise {
namespace kernels {
namespace HWY_NAMESPACE {

// Positions within one chunk. [lo, hi) covers what some row of the tile may
// see; [panel_lo, panel_hi) is the same in whole panels: what is computed. The
// last panel may reach beyond the keys.
struct TileSpan {
  size_t lo = 0;
  size_t hi = 0;
  size_t panel_lo = 0;
  size_t panel_hi = 0;

  bool empty() const { return lo >= hi; }
};

HWY_INLINE TileSpan MakeSpan(size_t lo, size_t hi, size_t width) {
  TileSpan span;
  span.lo = lo;
  span.hi = hi;
  span.panel_lo = lo / width * width;
  span.panel_hi = RoundUp(hi, width);
  return span;
}

// What a row may see of one chunk by position: [0, lead) and [lo, hi).
struct RowSpan {
  size_t lead = 0;
  size_t lo = 0;
  size_t hi = 0;
};

HWY_INLINE size_t ClampToChunk(size_t key, const KeyChunk& chunk) {
  if (key <= chunk.first) return 0;
  return HWY_MIN(key - chunk.first, chunk.count);
}

// The chunk's mask, or null where it hides nothing.
HWY_INLINE const ChunkMask* MaskOf(const AttentionArgs& args,
                                   const KeyChunk& chunk) {
  if (args.chunk_masks == nullptr || chunk.always) return nullptr;
  const ChunkMask* mask = args.chunk_masks + (&chunk - args.chunks);
  return mask->sees == ChunkMask::Sees::kAll ? nullptr : mask;
}

// From the first to the last key that a row of bits has.
HWY_INLINE RowSpan Narrow(const RowSpan& span, const uint64_t* bits) {
  constexpr size_t kWords = kChunk / 64;
  size_t first = 0;
  while (first < kWords && bits[first] == 0) ++first;
  if (first == kWords) return {};
  size_t last = kWords - 1;
  while (bits[last] == 0) --last;
  const size_t lo =
      first * 64 + hwy::Num0BitsBelowLS1Bit_Nonzero64(bits[first]);
  const size_t hi =
      last * 64 + 64 - hwy::Num0BitsAboveMS1Bit_Nonzero64(bits[last]);
  const RowSpan both = {0, HWY_MAX(span.lo, lo), HWY_MIN(span.hi, hi)};
  return both.lo < both.hi ? both : RowSpan();
}

HWY_INLINE RowSpan SpanOfRow(const AttentionArgs& args, size_t row,
                             const KeyChunk& chunk) {
  if (row >= args.seeing_rows) return {};
  if (chunk.always) return {0, 0, chunk.count};
  const RowSpan span = {ClampToChunk(args.lead[row], chunk),
                        ClampToChunk(args.begin[row], chunk),
                        ClampToChunk(args.end[row], chunk)};
  const ChunkMask* mask = MaskOf(args, chunk);
  if (mask == nullptr) return span;
  if (mask->sees == ChunkMask::Sees::kNone) return {};
  return Narrow(span, mask->bits[row]);
}

// Whether any row of the block may see any of the chunk by position. Cheaper
// than asking tile by tile, which would make a window's cost grow with the
// square of the length.
class BlockSpan {
 public:
  explicit BlockSpan(const AttentionArgs& args) {
    for (size_t row = 0; row < args.seeing_rows; ++row) {
      lead_ = HWY_MAX(lead_, args.lead[row]);
      if (args.begin[row] >= args.end[row]) continue;
      begin_ = HWY_MIN(begin_, args.begin[row]);
      end_ = HWY_MAX(end_, args.end[row]);
    }
  }
  bool Meets(const AttentionArgs& args, const KeyChunk& chunk) const {
    if (chunk.always) return true;
    const ChunkMask* mask = MaskOf(args, chunk);
    if (mask != nullptr && mask->sees == ChunkMask::Sees::kNone) return false;
    return chunk.first < lead_ ||
           (chunk.first < end_ && chunk.first + chunk.count > begin_);
  }

 private:
  size_t lead_ = 0;
  size_t begin_ = SIZE_MAX;
  size_t end_ = 0;
};

// What hides a key: a zero byte, a bias of -infinity.
HWY_INLINE bool Hides(uint8_t attend) { return attend == 0; }
HWY_INLINE bool Hides(float bias) {
  return bias == -std::numeric_limits<float>::infinity();
}

// Shrinks [*lo, *hi) to what some of `rows` rows, from `row`, see by a mask of
// one value a key. Rows that see the ends, as most do, cost a glance.
template <typename T>
HWY_INLINE void NarrowByMask(const MaskRows<T>& mask, size_t row, size_t rows,
                             size_t column, size_t* lo, size_t* hi) {
  if (mask.data == nullptr || mask.key_stride == 0) return;
  size_t first = *hi;
  size_t last = *lo;
  for (size_t r = row; r < row + rows; ++r) {
    const T* HWY_RESTRICT seen = mask.data + r * mask.row_stride + column;
    size_t j = *lo;
    while (j < first && Hides(seen[j])) ++j;
    first = j;
    j = *hi;
    while (j > last && Hides(seen[j - 1])) --j;
    last = j;
  }
  *lo = first;
  *hi = HWY_MAX(first, last);
}

// The part of a chunk that `rows` rows, from `row`, may see by position and
// masks.
HWY_INLINE TileSpan SpanOfTile(const AttentionArgs& args, size_t row,
                               size_t rows, const KeyChunk& chunk,
                               size_t width) {
  size_t lo = kChunk;
  size_t hi = 0;
  for (size_t r = row; r < row + rows; ++r) {
    const RowSpan span = SpanOfRow(args, r, chunk);
    if (span.lo < span.hi) {
      lo = HWY_MIN(lo, span.lo);
      hi = HWY_MAX(hi, span.hi);
    }
    if (span.lead > 0) {
      lo = 0;
      hi = HWY_MAX(hi, span.lead);
    }
  }
  lo = HWY_MIN(lo, hi);
  if (!chunk.always && lo < hi) {
    NarrowByMask(args.attend, row, rows, chunk.column, &lo, &hi);
    NarrowByMask(args.bias, row, rows, chunk.column, &lo, &hi);
  }
  return lo < hi ? MakeSpan(lo, hi, width) : TileSpan();
}

// Calls body(row, rows-as-constant) for each tile of `rows` rows.
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

// Subtracting an infinite maximum from an infinite score gives NaN: right for
// +infinity (contract: the row is NaN), wrong where nothing was seen.
HWY_INLINE float Finite(float maximum) {
  return maximum == -std::numeric_limits<float>::infinity() ? 0.0f : maximum;
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
                            size_t columns, const KeyChunk& chunk,
                            const TileSpan& span, float* HWY_RESTRICT scores) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint8_t, D> du8;
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  // Whole panels: what the span leaves out at its ends is hidden here, too.
  const size_t end = HWY_MIN(span.panel_hi, chunk.count);
  for (size_t j = span.panel_lo; j < end; j += hn::Lanes(d)) {
    const size_t column = chunk.column + j;
    const auto bytes =
        LoadMask(du8, mask + column * key_stride, key_stride, columns - column);
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
                        size_t columns, const KeyChunk& chunk,
                        const TileSpan& span, float* HWY_RESTRICT scores) {
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  // Whole panels: what the span leaves out at its ends is hidden here, too.
  const size_t end = HWY_MIN(span.panel_hi, chunk.count);
  for (size_t j = span.panel_lo; j < end; j += hn::Lanes(d)) {
    const size_t column = chunk.column + j;
    const auto b =
        LoadMask(d, bias + column * key_stride, key_stride, columns - column);
    const auto sum = hn::Add(hn::LoadU(d, scores + j), b);
    hn::StoreU(hn::IfThenElse(hn::Eq(b, hidden), hidden, sum), d, scores + j);
  }
}

// Hides what the row may not see by position.
template <class D>
HWY_INLINE void HideOutside(D d, const RowSpan& row, const TileSpan& span,
                            float* HWY_RESTRICT scores) {
  if (row.lo <= span.panel_lo && row.hi >= span.panel_hi) return;
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  // Positions within a chunk are exact in a float.
  const auto lead = hn::Set(d, static_cast<float>(row.lead));
  const auto first = hn::Set(d, static_cast<float>(row.lo));
  const auto end = hn::Set(d, static_cast<float>(row.hi));
  for (size_t j = span.panel_lo; j < span.panel_hi; j += hn::Lanes(d)) {
    const auto at = hn::Iota(d, static_cast<float>(j));
    const auto seen =
        hn::Or(hn::Lt(at, lead), hn::And(hn::Ge(at, first), hn::Lt(at, end)));
    const auto score = hn::LoadU(d, scores + j);
    hn::StoreU(hn::IfThenElse(seen, score, hidden), d, scores + j);
  }
}

// softcap * tanh(score / softcap).
template <class D>
HWY_INLINE void SoftCap(D d, float softcap, const TileSpan& span,
                        float* HWY_RESTRICT scores) {
  const auto cap = hn::Set(d, softcap);
  for (size_t j = span.panel_lo; j < span.panel_hi; j += hn::Lanes(d)) {
    const auto x = hn::Div(hn::LoadU(d, scores + j), cap);
    hn::StoreU(hn::Mul(cap, hn::Tanh(d, x)), d, scores + j);
  }
}

// -slope * |position - key|; positions are exact in a float up to 2^24, and
// beyond are rounded by themselves, not by the block they are computed in.
template <class D>
HWY_INLINE void AddAlibi(D d, float slope, int64_t position,
                         const KeyChunk& chunk, const TileSpan& span,
                         float* HWY_RESTRICT scores) {
  const auto minus_slope = hn::Set(d, -slope);
  const auto own = hn::Set(d, static_cast<float>(position));
  for (size_t j = span.panel_lo; j < span.panel_hi; j += hn::Lanes(d)) {
    const auto key = hn::Iota(d, static_cast<float>(chunk.first + j));
    const auto bias = hn::Mul(minus_slope, hn::AbsDiff(own, key));
    hn::StoreU(hn::Add(hn::LoadU(d, scores + j), bias), d, scores + j);
  }
}

// Hides where the bits are 0.
template <class D>
HWY_INLINE void HideByBits(D d, const uint64_t* bits, const TileSpan& span,
                           float* HWY_RESTRICT scores) {
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  // Vectors are no longer than a word and begin at multiples of their length.
  for (size_t j = span.panel_lo; j < span.panel_hi; j += hn::Lanes(d)) {
    const uint64_t own = bits[j / 64] >> (j % 64);
    uint8_t bytes[8];
    for (size_t i = 0; i < 8; ++i) {
      bytes[i] = static_cast<uint8_t>(own >> (8 * i));
    }
    const auto seen = hn::LoadMaskBits(d, bytes);
    const auto score = hn::LoadU(d, scores + j);
    hn::StoreU(hn::IfThenElse(seen, score, hidden), d, scores + j);
  }
}

// What happens to the products of one row: softcap, or ALiBi, bias and masks.
// Not inlined into the twelve tiles that use it: it would be most
// of the module, and costs nothing beside their products.
template <class D>
HWY_NOINLINE void CapScores(D d, float softcap, const TileSpan& span,
                            float* HWY_RESTRICT scores) {
  SoftCap(d, softcap, span, scores);
}
template <class D>
HWY_NOINLINE void FinishScores(D d, const AttentionArgs& args, size_t row,
                               const KeyChunk& chunk, const TileSpan& span,
                               float* HWY_RESTRICT scores) {
  if (!chunk.always) {
    if (args.alibi_slope != 0.0f) {
      AddAlibi(d, args.alibi_slope,
               args.first_position + static_cast<int64_t>(row), chunk, span,
               scores);
    }
    if (args.bias.data != nullptr) {
      AddBias(d, args.bias.data + row * args.bias.row_stride,
              args.bias.key_stride, args.columns, chunk, span, scores);
    }
    if (args.attend.data != nullptr) {
      HideByBytes<true>(d, args.attend.data + row * args.attend.row_stride,
                        args.attend.key_stride, args.columns, chunk, span,
                        scores);
    }
    if (args.padding.data != nullptr) {
      HideByBytes<false>(d, args.padding.data + row * args.padding.row_stride,
                         args.padding.key_stride, args.columns, chunk, span,
                         scores);
    }
    const ChunkMask* mask = MaskOf(args, chunk);
    if (mask != nullptr && mask->sees == ChunkMask::Sees::kSome &&
        row < args.seeing_rows) {
      HideByBits(d, mask->bits[row], span, scores);
    }
  }
  HideOutside(d, SpanOfRow(args, row, chunk), span, scores);
}

// Order of the contract: scale * q.k, then the rest.
// scores: [kTileRows][kChunk], written at [panel_lo, panel_hi).
template <size_t kRows>
HWY_INLINE void TileScores(const AttentionArgs& args, size_t row,
                           const KeyChunk& chunk, const TileSpan& span,
                           ScoreStage stage, float* HWY_RESTRICT scores) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, args.score_factor);
  const float* tile = args.query_tiles + row * args.head_dim;
  size_t j = span.panel_lo;
  if constexpr (kRows == 1) {
    for (; j + kRowPanels * 2 * lanes <= span.panel_hi;
         j += kRowPanels * 2 * lanes) {
      RowProduct<kTileRows>(
          d, tile, chunk.keys + j * args.head_dim, 2 * lanes * args.head_dim,
          args.head_dim, [&](size_t, size_t) HWY_ATTR { return hn::Zero(d); },
          [&](size_t panel, size_t half, auto sum) HWY_ATTR {
            hn::StoreU(hn::Mul(sum, factor), d,
                       scores + j + (2 * panel + half) * lanes);
          });
    }
  }
  for (; j < span.panel_hi; j += 2 * lanes) {
    TileProduct<kRows, 1, kTileRows>(
        d, tile, chunk.keys + j * args.head_dim, args.head_dim,
        [&](size_t, size_t) HWY_ATTR { return hn::Zero(d); },
        [&](size_t r, size_t half, auto sum) HWY_ATTR {
          hn::StoreU(hn::Mul(sum, factor), d,
                     scores + r * kChunk + j + half * lanes);
        });
  }
  if (stage == ScoreStage::kRaw) return;
  if (args.softcap != 0.0f) {
    for (size_t r = 0; r < kRows; ++r) {
      CapScores(d, args.softcap, span, scores + r * kChunk);
    }
  }
  if (stage == ScoreStage::kCapped) return;
  if (args.score_hook.call != nullptr && !chunk.always) {
    args.score_hook.call(args.score_hook.context, row, kRows,
                         chunk.first + span.lo, span.hi - span.lo,
                         scores + span.lo);
  }
  for (size_t r = 0; r < kRows; ++r) {
    FinishScores(d, args, row + r, chunk, span, scores + r * kChunk);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kernels
}  // namespace headwise
HWY_AFTER_NAMESPACE();

#endif  // HEADWISE_KERNELS_SCORES_INL_H_
