// Packing: from rows as people hold them to the order in which the
// microkernel reads. Every element is copied once per call (weights once per
// model), so these loops are a few percent of the products they serve.
#include "kernels/target_policy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pack.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/kernels.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headwise {
namespace kernels {
namespace HWY_NAMESPACE {

size_t PanelWidth() { return 2 * hn::Lanes(FloatTag()); }

// `rows` rows of `cols` elements, times `scale`, become columns of a block
// [cols][width]; its other columns are zeros.
HWY_INLINE void PackColumns(const float* HWY_RESTRICT source, size_t row_stride,
                            size_t rows, size_t cols, float scale, size_t width,
                            float* HWY_RESTRICT to) {
  size_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float* HWY_RESTRICT from = source + r * row_stride;
    size_t k = 0;
    for (; k + 4 <= cols; k += 4) {
      TransposeFour(from + k, row_stride, scale, to + k * width + r, width);
    }
    for (; k < cols; ++k) {
      for (size_t i = 0; i < 4; ++i) {
        to[k * width + r + i] = from[i * row_stride + k] * scale;
      }
    }
  }
  for (; r < rows; ++r) {
    const float* HWY_RESTRICT from = source + r * row_stride;
    for (size_t k = 0; k < cols; ++k) to[k * width + r] = from[k] * scale;
  }
  for (; r < width; ++r) {
    for (size_t k = 0; k < cols; ++k) to[k * width + r] = 0.0f;
  }
}

void PackTiles(const float* HWY_RESTRICT source, size_t row_stride, size_t rows,
               size_t cols, float scale, float* HWY_RESTRICT tiles) {
  for (size_t first = 0; first < rows; first += kTileRows) {
    PackColumns(source + first * row_stride, row_stride,
                HWY_MIN(kTileRows, rows - first), cols, scale, kTileRows,
                tiles);
    tiles += cols * kTileRows;
  }
}

void PackPanels(const float* HWY_RESTRICT source, size_t row_stride, size_t n,
                size_t depth, float* HWY_RESTRICT panels) {
  const size_t width = PanelWidth();
  for (size_t first = 0; first < n; first += width) {
    PackColumns(source + first * row_stride, row_stride,
                HWY_MIN(width, n - first), depth, 1.0f, width, panels);
    panels += depth * width;
  }
}

void UnpackPanels(const float* HWY_RESTRICT panels, size_t n, size_t depth,
                  float* HWY_RESTRICT rows) {
  const size_t width = PanelWidth();
  for (size_t row = 0; row < n; ++row) {
    const float* HWY_RESTRICT from =
        panels + row / width * width * depth + row % width;
    for (size_t k = 0; k < depth; ++k) rows[row * depth + k] = from[k * width];
  }
}

bool PackValues(const float* HWY_RESTRICT source, size_t row_stride, size_t n,
                size_t cols, float* HWY_RESTRICT panels) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  // x * 0 is 0 for finite x and NaN otherwise; sums keep the NaN.
  auto poison = hn::Zero(d);
  for (size_t col = 0; col < cols; col += 2 * lanes) {
    for (size_t row = 0; row < n; ++row) {
      const float* HWY_RESTRICT from = source + row * row_stride;
      for (size_t half = col; half < col + 2 * lanes; half += lanes) {
        auto v = hn::Zero(d);
        if (half + lanes <= cols) {
          v = hn::LoadU(d, from + half);
        } else if (half < cols) {
          v = hn::LoadN(d, from + half, cols - half);
        }
        poison = MultiplyAdd(v, hn::Zero(d), poison);
        hn::StoreU(v, d, panels);
        panels += lanes;
      }
    }
  }
  return !hn::AllFalse(d, hn::IsNaN(poison));
}

}  // namespace HWY_NAMESPACE
}  // namespace kernels
}  // namespace headwise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headwise {
namespace kernels {

HWY_EXPORT(PanelWidth);
size_t PanelWidth() { return HWY_DYNAMIC_DISPATCH(PanelWidth)(); }

HWY_EXPORT(PackTiles);
void PackTiles(const float* source, size_t row_stride, size_t rows, size_t cols,
               float scale, float* tiles) {
  HWY_DYNAMIC_DISPATCH(PackTiles)(source, row_stride, rows, cols, scale, tiles);
}

HWY_EXPORT(PackPanels);
void PackPanels(const float* source, size_t row_stride, size_t n, size_t depth,
                float* panels) {
  HWY_DYNAMIC_DISPATCH(PackPanels)(source, row_stride, n, depth, panels);
}

HWY_EXPORT(UnpackPanels);
void UnpackPanels(const float* panels, size_t n, size_t depth, float* rows) {
  HWY_DYNAMIC_DISPATCH(UnpackPanels)(panels, n, depth, rows);
}

HWY_EXPORT(PackValues);
bool PackValues(const float* source, size_t row_stride, size_t n, size_t cols,
                float* panels) {
  return HWY_DYNAMIC_DISPATCH(PackValues)(source, row_stride, n, cols, panels);
}

}  // namespace kernels
}  // namespace headwise
#endif  // HWY_ONCE
