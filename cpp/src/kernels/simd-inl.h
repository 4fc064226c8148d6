// Our own vector primitives: the only file that knows relaxed SIMD or where
// Highway's versions differ. No #include guard but Highway's toggle: it is
// read once per instruction set.
#if defined(HEADWISE_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADWISE_KERNELS_SIMD_INL_H_
#undef HEADWISE_KERNELS_SIMD_INL_H_
#else
#define HEADWISE_KERNELS_SIMD_INL_H_
#endif

#include <cstddef>

#if defined(__FAST_MATH__) || defined(_M_FP_FAST)
#error "Masks are infinities and NaN has a meaning: compile without -ffast-math"
#endif

#include "hwy/highway.h"
#include "kernels/exp_table.h"

HWY_BEFORE_NAMESPACE();
namespace headwise {
namespace kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;

// a * b + c. Highway's own multiplies, then adds, on every WASM: it does not
// know relaxed SIMD. In the plain WASM build two roundings are what makes the
// bits equal in every engine. Not called MulAdd: argument-dependent lookup
// would find Highway's, the more specialised overload, and silently use that.
template <class V>
HWY_INLINE V MultiplyAdd(V a, V b, V c) {
#if HWY_TARGET == HWY_WASM && defined(__wasm_relaxed_simd__)
  return V{wasm_f32x4_relaxed_madd(a.raw, b.raw, c.raw)};
#else
  return hn::MulAdd(a, b, c);
#endif
}

// Four elements of four rows, times `scale`, as four columns: element i of
// every row at to + i * to_stride.
HWY_INLINE void TransposeFour(const float* HWY_RESTRICT from, size_t row_stride,
                              float scale, float* HWY_RESTRICT to,
                              size_t to_stride) {
  const hn::FixedTag<float, 4> d;
  const auto factor = hn::Set(d, scale);
  const auto r0 = hn::Mul(hn::LoadU(d, from), factor);
  const auto r1 = hn::Mul(hn::LoadU(d, from + row_stride), factor);
  const auto r2 = hn::Mul(hn::LoadU(d, from + 2 * row_stride), factor);
  const auto r3 = hn::Mul(hn::LoadU(d, from + 3 * row_stride), factor);
  const auto low01 = hn::InterleaveLower(d, r0, r1);
  const auto low23 = hn::InterleaveLower(d, r2, r3);
  const auto high01 = hn::InterleaveUpper(d, r0, r1);
  const auto high23 = hn::InterleaveUpper(d, r2, r3);
  hn::StoreU(hn::ConcatLowerLower(d, low23, low01), d, to);
  hn::StoreU(hn::ConcatUpperUpper(d, low23, low01), d, to + to_stride);
  hn::StoreU(hn::ConcatLowerLower(d, high23, high01), d, to + 2 * to_stride);
  hn::StoreU(hn::ConcatUpperUpper(d, high23, high01), d, to + 3 * to_stride);
}

// exp(x) for x <= 0 (or NaN, which stays NaN), within 1.2e-7 relative; results
// below the smallest normal float become 0. exp(0) is exactly 1.
//
// x = n ln 2 + r with |r| <= ln 2 / 2, exp(x) = 2^n exp(r). Adding and
// subtracting 1.5 * 2^23 rounds to an integer and leaves it in the low bits
// of the sum, ready to be shifted into the exponent: a rounding and a
// conversion instruction cost several times as much in the WASM engines.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpNonPositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  const ExpTable& t = exp_table;
  const V shifted = MultiplyAdd(x, hn::Set(d, t.log2e), hn::Set(d, t.magic));
  const V n = hn::Sub(shifted, hn::Set(d, t.magic));
  V r = MultiplyAdd(n, hn::Set(d, t.minus_ln2_high), x);
  r = MultiplyAdd(n, hn::Set(d, t.minus_ln2_low), r);
  V p = MultiplyAdd(hn::Set(d, t.c6), r, hn::Set(d, t.c5));
  p = MultiplyAdd(p, r, hn::Set(d, t.c4));
  p = MultiplyAdd(p, r, hn::Set(d, t.c3));
  p = MultiplyAdd(p, r, hn::Set(d, t.c2));
  const V one = hn::Set(d, t.one);
  p = MultiplyAdd(p, r, one);
  p = MultiplyAdd(p, r, one);
  const V power =
      hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)),
                             hn::BitCast(di, one)));
  // A NaN compares false and stays.
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, t.smallest)),
                            hn::Mul(p, power));
}

}  // namespace HWY_NAMESPACE
}  // namespace kernels
}  // namespace headwise
HWY_AFTER_NAMESPACE();

#endif  // HEADWISE_KERNELS_SIMD_INL_H_
