#include "masks.h"

#include <algorithm>
#include <string>
#include <utility>

namespace headwise {
namespace conformance {
namespace {

template <typename T>
MaskView<T> View(const Mask<T>& mask) {
  MaskView<T> view;
  if (!mask.present) return view;
  // An empty vector may have no address, but the mask is there.
  static const T kNothing = T();
  view.data = mask.values.empty() ? &kNothing : mask.values.data();
  view.batch = mask.shape[0];
  view.heads = mask.shape[1];
  view.rows = mask.shape[2];
  view.keys = mask.shape[3];
  return view;
}

template <typename T>
Mask<T> BroadcastTo(const Mask<T>& mask, const std::array<size_t, 4>& shape) {
  for (size_t axis = 0; axis < 4; ++axis) {
    if (mask.shape[axis] == shape[axis] || mask.shape[axis] == 1) continue;
    throw CaseError("a mask of " +
                    ShapeText(Shape(mask.shape.begin(), mask.shape.end())) +
                    " does not broadcast to " +
                    ShapeText(Shape(shape.begin(), shape.end())));
  }
  Mask<T> result;
  result.present = true;
  result.shape = shape;
  const MaskView<T> view = View(mask);
  for (size_t b = 0; b < shape[0]; ++b) {
    for (size_t h = 0; h < shape[1]; ++h) {
      for (size_t i = 0; i < shape[2]; ++i) {
        const T* row = view.Row(b, h, i);
        for (size_t j = 0; j < shape[3]; ++j) {
          result.values.push_back(row[j * view.key_stride()]);
        }
      }
    }
  }
  return result;
}

// Whether a padding hides key j of entry b.
bool Padded(const Masks& masks, const Sizes& sizes, size_t b, size_t j) {
  if (!masks.lengths.empty() && int64_t(j) >= masks.lengths[b]) return true;
  return !masks.padding.empty() && masks.padding[b * sizes.keys + j] != 0;
}

// Whether causality or a window hides key j from query i.
bool OutOfReach(const Masks& masks, size_t b, size_t i, size_t j) {
  const int64_t offset = masks.offsets.empty() ? 0 : masks.offsets[b];
  const int64_t ahead = int64_t(j) - (int64_t(i) + offset);
  return (masks.causal && ahead > 0) ||
         (masks.window_left >= 0 && -ahead > masks.window_left) ||
         (masks.window_right >= 0 && ahead > masks.window_right);
}

// Every hidden key gets a number added instead: `out_of_reach` where positions
// hide it, else `masked`.
void MakeFinite(const Sizes& sizes, float masked, float out_of_reach,
                Masks* masks) {
  const std::array<size_t, 4> full = {sizes.batch, sizes.heads, sizes.queries,
                                      sizes.keys};
  Mask<float> bias;
  if (masks->bias.present) {
    bias = BroadcastTo(masks->bias, full);
  } else {
    bias.present = true;
    bias.shape = full;
    bias.values.resize(sizes.batch * sizes.heads * sizes.queries * sizes.keys);
  }
  Mask<uint8_t> attend;
  if (masks->attend.present) attend = BroadcastTo(masks->attend, full);
  size_t n = 0;
  for (size_t b = 0; b < sizes.batch; ++b) {
    for (size_t h = 0; h < sizes.heads; ++h) {
      for (size_t i = 0; i < sizes.queries; ++i) {
        for (size_t j = 0; j < sizes.keys; ++j, ++n) {
          float value = 0.0f;
          if (OutOfReach(*masks, b, i, j)) {
            value = out_of_reach;
          } else if (Padded(*masks, sizes, b, j) ||
                     (attend.present && attend.values[n] == 0)) {
            value = masked;
          }
          if (value == 0.0f ||
              bias.values[n] == -std::numeric_limits<float>::infinity()) {
            continue;
          }
          // Two lowest numbers must not add up to -infinity, which would hide
          // for good.
          bias.values[n] = std::max(kLowest, bias.values[n] + value);
        }
      }
    }
  }
  const std::vector<int32_t> offsets = std::move(masks->offsets);
  *masks = Masks();
  masks->offsets = offsets;
  masks->bias = std::move(bias);
}

// What a window of the library can say; a wider one hides nothing.
int32_t WindowSide(int64_t side) {
  if (side < 0 || side > std::numeric_limits<int32_t>::max()) return -1;
  return static_cast<int32_t>(side);
}

}  // namespace

Mask<uint8_t> BoolMask(const Tensor& tensor, const std::array<size_t, 4>& shape,
                       bool invert) {
  if (SizeOf(Shape(shape.begin(), shape.end())) != tensor.values.size()) {
    throw CaseError(tensor.name + " " + ShapeText(tensor.shape) +
                    " does not fit the inputs");
  }
  Mask<uint8_t> mask;
  mask.present = true;
  mask.shape = shape;
  for (const double value : tensor.values) {
    mask.values.push_back((value != 0.0) != invert ? 1 : 0);
  }
  return mask;
}

Mask<float> FloatMask(const Tensor& tensor,
                      const std::array<size_t, 4>& shape) {
  if (SizeOf(Shape(shape.begin(), shape.end())) != tensor.values.size()) {
    throw CaseError(tensor.name + " " + ShapeText(tensor.shape) +
                    " does not fit the inputs");
  }
  Mask<float> mask;
  mask.present = true;
  mask.shape = shape;
  mask.values = tensor.Floats();
  return mask;
}

std::array<size_t, 4> ToRank4(const Shape& shape) {
  std::array<size_t, 4> result = {1, 1, 1, 1};
  std::copy(shape.begin(), shape.end(), result.end() - shape.size());
  return result;
}

Mask<float> AddMasks(const Mask<float>& a, const Mask<float>& b) {
  std::array<size_t, 4> shape;
  for (size_t axis = 0; axis < 4; ++axis) {
    shape[axis] = a.shape[axis] == 1 ? b.shape[axis] : a.shape[axis];
  }
  Mask<float> sum = BroadcastTo(a, shape);
  const Mask<float> other = BroadcastTo(b, shape);
  for (size_t i = 0; i < sum.values.size(); ++i) {
    sum.values[i] += other.values[i];
  }
  return sum;
}

void FoldPadding(const Sizes& sizes, Masks* masks) {
  if (masks->padding.empty() && masks->lengths.empty()) return;
  Mask<uint8_t> attend;
  attend.present = true;
  attend.shape = {sizes.batch, 1, 1, sizes.keys};
  if (masks->attend.present) {
    for (size_t axis = 0; axis < 3; ++axis) {
      attend.shape[axis] =
          std::max(attend.shape[axis], masks->attend.shape[axis]);
    }
    attend = BroadcastTo(masks->attend, attend.shape);
  } else {
    attend.values.assign(sizes.batch * sizes.keys, 1);
  }
  const size_t rows = attend.shape[1] * attend.shape[2];
  for (size_t n = 0; n < attend.values.size(); ++n) {
    const size_t j = n % sizes.keys;
    const size_t b = n / sizes.keys / rows;
    if (Padded(*masks, sizes, b, j)) attend.values[n] = 0;
  }
  masks->attend = std::move(attend);
  masks->padding.clear();
  masks->lengths.clear();
}

AttentionOptions MaskOptions(const AttentionOptions& base, const Sizes& sizes,
                             const FiniteRule& rule, Case* c, Masks* masks) {
  AttentionOptions options = base;
  const FullyMasked fully_masked = c->fully_masked();
  options.empty_rows =
      fully_masked == FullyMasked::kNan ? EmptyRows::kNan : EmptyRows::kZero;
  if (fully_masked == FullyMasked::kUniform) {
    MakeFinite(sizes, rule.uniform, rule.uniform, masks);
  } else if (fully_masked == FullyMasked::kFinite || rule.always) {
    MakeFinite(sizes, rule.finite, kLowest, masks);
  }
  options.attend_mask = View(masks->attend);
  options.attn_bias = View(masks->bias);
  if (!masks->padding.empty()) options.key_padding_mask = masks->padding.data();
  if (!masks->lengths.empty()) options.key_lengths = masks->lengths.data();
  if (masks->causal) options.causal = Causal::kStart;
  options.window_left = WindowSide(masks->window_left);
  options.window_right = WindowSide(masks->window_right);
  if (!masks->offsets.empty()) options.query_offsets = masks->offsets.data();
  return options;
}

}  // namespace conformance
}  // namespace headwise
