// The microkernel: a tile of up to 4 rows by one panel of two vectors.
#if defined(HEADWISE_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADWISE_KERNELS_TILE_INL_H_
#undef HEADWISE_KERNELS_TILE_INL_H_
#else
#define HEADWISE_KERNELS_TILE_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headwise {
namespace kernels {
namespace HWY_NAMESPACE {

// finish(row, half, sum) for each row < kRows and half 0, 1, where
//   sum = init(row, half) + sum over s < steps, in rising order, of
//         a[row * kRowStride + s * kStepStride] * b[s][half]
//
// One accumulator per output element and one order of addition: the bits of an
// element do not depend on the height of the tile it was computed in. The
// strides are compile-time constants, so that all loads of a step share one
// base register. Explicit names, as vectors cannot be array elements in
// Highway's model.
template <size_t kRows, size_t kRowStride, size_t kStepStride, class D,
          class Init, class Finish>
HWY_INLINE void TileProduct(D d, const float* HWY_RESTRICT a,
                            const float* HWY_RESTRICT b, size_t steps,
                            const Init& init, const Finish& finish) {
  static_assert(kRows >= 1 && kRows <= 4, "a tile has 1 to 4 rows");
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  V c00 = init(0, 0);
  V c01 = init(0, 1);
  V c10 = c00, c11 = c01, c20 = c00, c21 = c01, c30 = c00, c31 = c01;
  if constexpr (kRows > 1) c10 = init(1, 0), c11 = init(1, 1);
  if constexpr (kRows > 2) c20 = init(2, 0), c21 = init(2, 1);
  if constexpr (kRows > 3) c30 = init(3, 0), c31 = init(3, 1);
  for (size_t s = 0; s < steps; ++s) {
    const V b0 = hn::LoadU(d, b);
    const V b1 = hn::LoadU(d, b + lanes);
    const V a0 = hn::Set(d, a[0]);
    c00 = MultiplyAdd(a0, b0, c00);
    c01 = MultiplyAdd(a0, b1, c01);
    if constexpr (kRows > 1) {
      const V a1 = hn::Set(d, a[1 * kRowStride]);
      c10 = MultiplyAdd(a1, b0, c10);
      c11 = MultiplyAdd(a1, b1, c11);
    }
    if constexpr (kRows > 2) {
      const V a2 = hn::Set(d, a[2 * kRowStride]);
      c20 = MultiplyAdd(a2, b0, c20);
      c21 = MultiplyAdd(a2, b1, c21);
    }
    if constexpr (kRows > 3) {
      const V a3 = hn::Set(d, a[3 * kRowStride]);
      c30 = MultiplyAdd(a3, b0, c30);
      c31 = MultiplyAdd(a3, b1, c31);
    }
    a += kStepStride;
    b += 2 * lanes;
  }
  finish(0, 0, c00);
  finish(0, 1, c01);
  if constexpr (kRows > 1) finish(1, 0, c10), finish(1, 1, c11);
  if constexpr (kRows > 2) finish(2, 0, c20), finish(2, 1, c21);
  if constexpr (kRows > 3) finish(3, 0, c30), finish(3, 1, c31);
}

// The same for one row by kRowPanels panels of b, `panel_stride` apart, with
// init(panel, half) and finish(panel, half, sum): a single row by one panel has
// two sums, and would wait for each addition to end before the next.
inline constexpr size_t kRowPanels = 4;
template <size_t kStepStride, class D, class Init, class Finish>
HWY_INLINE void RowProduct(D d, const float* HWY_RESTRICT a,
                           const float* HWY_RESTRICT b, size_t panel_stride,
                           size_t steps, const Init& init,
                           const Finish& finish) {
  static_assert(kRowPanels == 4, "the panels are written out");
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  const float* HWY_RESTRICT b1 = b + panel_stride;
  const float* HWY_RESTRICT b2 = b + 2 * panel_stride;
  const float* HWY_RESTRICT b3 = b + 3 * panel_stride;
  V c00 = init(0, 0), c01 = init(0, 1), c10 = init(1, 0), c11 = init(1, 1);
  V c20 = init(2, 0), c21 = init(2, 1), c30 = init(3, 0), c31 = init(3, 1);
  for (size_t s = 0; s < steps; ++s) {
    const V a0 = hn::Set(d, a[0]);
    c00 = MultiplyAdd(a0, hn::LoadU(d, b), c00);
    c01 = MultiplyAdd(a0, hn::LoadU(d, b + lanes), c01);
    c10 = MultiplyAdd(a0, hn::LoadU(d, b1), c10);
    c11 = MultiplyAdd(a0, hn::LoadU(d, b1 + lanes), c11);
    c20 = MultiplyAdd(a0, hn::LoadU(d, b2), c20);
    c21 = MultiplyAdd(a0, hn::LoadU(d, b2 + lanes), c21);
    c30 = MultiplyAdd(a0, hn::LoadU(d, b3), c30);
    c31 = MultiplyAdd(a0, hn::LoadU(d, b3 + lanes), c31);
    a += kStepStride;
    b += 2 * lanes;
    b1 += 2 * lanes;
    b2 += 2 * lanes;
    b3 += 2 * lanes;
  }
  finish(0, 0, c00), finish(0, 1, c01), finish(1, 0, c10), finish(1, 1, c11);
  finish(2, 0, c20), finish(2, 1, c21), finish(3, 0, c30), finish(3, 1, c31);
}

}  // namespace HWY_NAMESPACE
}  // namespace kernels
}  // namespace headwise
HWY_AFTER_NAMESPACE();

#endif  // HEADWISE_KERNELS_TILE_INL_H_
