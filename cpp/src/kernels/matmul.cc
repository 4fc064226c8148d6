// c = a b^T + bias on packed operands.
//
// A panel of b (depth x 2 vectors: 24 KiB at depth 768 on WASM) is read from
// the first-level cache by every tile of a. Deep products are cut into blocks
// of kDepthBlock so that this stays so; the sum goes on from the stored value,
// which changes no bit.
#include "kernels/target_policy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/kernels.h"
#include "kernels/simd-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headwise {
namespace kernels {
namespace HWY_NAMESPACE {

constexpr size_t kDepthBlock = 768;

// One tile: rows of a by one panel of b. `valid` columns are stored.
template <size_t kRows>
HWY_INLINE void MatMulTile(const float* tile, const float* panel, size_t steps,
                           const float* bias, float* c, size_t c_stride,
                           size_t valid) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const bool whole = valid >= 2 * lanes;
  const auto columns = [&](size_t half) HWY_ATTR {
    const size_t first = half * lanes;
    return valid <= first ? size_t{0} : HWY_MIN(lanes, valid - first);
  };
  const auto init = [&](size_t row, size_t half) HWY_ATTR {
    if (bias != nullptr) return hn::LoadU(d, bias + half * lanes);
    const float* from = c + row * c_stride + half * lanes;
    return whole ? hn::LoadU(d, from) : hn::LoadN(d, from, columns(half));
  };
  const auto store = [&](size_t row, size_t half, auto sum) HWY_ATTR {
    float* to = c + row * c_stride + half * lanes;
    if (whole) {
      hn::StoreU(sum, d, to);
    } else {
      hn::StoreN(sum, d, to, columns(half));
    }
  };
  TileProduct<kRows, 1, kTileRows>(d, tile, panel, steps, init, store);
}

// All rows by one panel of b, for `steps` of the depth from `k` on. Not
// inlined, so that an engine can replace its first, quick code while a product
// lasts.
HWY_NOINLINE void MatMulPanel(const MatMulArgs& args, size_t k, size_t steps,
                              size_t col) {
  const size_t width = 2 * hn::Lanes(FloatTag());
  const float* panel = args.panels + col * args.depth + k * width;
  const float* bias = k == 0 ? args.bias + col : nullptr;
  const size_t valid = args.cols - col;
  for (size_t row = 0; row < args.rows; row += kTileRows) {
    const float* tile = args.tiles + row * args.depth + k * kTileRows;
    float* c = args.c + row * args.c_stride + col;
    switch (args.rows - row) {
      case 1:
        MatMulTile<1>(tile, panel, steps, bias, c, args.c_stride, valid);
        break;
      case 2:
        MatMulTile<2>(tile, panel, steps, bias, c, args.c_stride, valid);
        break;
      case 3:
        MatMulTile<3>(tile, panel, steps, bias, c, args.c_stride, valid);
        break;
      default:
        MatMulTile<4>(tile, panel, steps, bias, c, args.c_stride, valid);
    }
  }
}

// The one row there is, by kRowPanels whole panels.
HWY_NOINLINE void MatMulRow(const MatMulArgs& args, size_t k, size_t steps,
                            size_t col) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const size_t width = 2 * lanes;
  const float* start = k == 0 ? args.bias + col : args.c + col;
  const auto at = [&](size_t panel, size_t half) {
    return panel * width + half * lanes;
  };
  RowProduct<kTileRows>(
      d, args.tiles + k * kTileRows, args.panels + col * args.depth + k * width,
      width * args.depth, steps,
      [&](size_t panel, size_t half)
          HWY_ATTR { return hn::LoadU(d, start + at(panel, half)); },
      [&](size_t panel, size_t half, auto sum)
          HWY_ATTR { hn::StoreU(sum, d, args.c + col + at(panel, half)); });
}

void MatMul(const MatMulArgs& args) {
  const size_t width = 2 * hn::Lanes(FloatTag());
  for (size_t k = 0; k == 0 || k < args.depth; k += kDepthBlock) {
    const size_t steps = HWY_MIN(kDepthBlock, args.depth - k);
    size_t col = 0;
    for (; args.rows == 1 && col + kRowPanels * width <= args.cols;
         col += kRowPanels * width) {
      MatMulRow(args, k, steps, col);
    }
    for (; col < args.cols; col += width) MatMulPanel(args, k, steps, col);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kernels
}  // namespace headwise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headwise {
namespace kernels {

HWY_EXPORT(MatMul);
void MatMul(const MatMulArgs& args) { HWY_DYNAMIC_DISPATCH(MatMul)(args); }

}  // namespace kernels
}  // namespace headwise
#endif  // HWY_ONCE
