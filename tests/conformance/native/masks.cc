#include "masks.h"

#include <algorithm>
#include <string>

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

// Every hidden key gets `value` added instead.
void MakeFinite(const Sizes& sizes, float value, bool causal_too,
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
    const int64_t length =
        masks->lengths.empty() ? int64_t(sizes.keys) : masks->lengths[b];
    const int64_t offset = masks->offsets.empty() ? 0 : masks->offsets[b];
    for (size_t h = 0; h < sizes.heads; ++h) {
      for (size_t i = 0; i < sizes.queries; ++i) {
        for (size_t j = 0; j < sizes.keys; ++j, ++n) {
          const bool hidden =
              (attend.present && attend.values[n] == 0) ||
              int64_t(j) >= length ||
              (!masks->padding.empty() &&
               masks->padding[b * sizes.keys + j] != 0) ||
              (masks->causal && causal_too && int64_t(j) > int64_t(i) + offset);
          if (!hidden ||
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
  masks->attend = Mask<uint8_t>();
  masks->bias = std::move(bias);
  masks->padding.clear();
  masks->lengths.clear();
  if (causal_too) masks->causal = false;
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

AttentionOptions MaskOptions(const Sizes& sizes, float uniform, Case* c,
                             Masks* masks) {
  AttentionOptions options;
  switch (c->fully_masked()) {
    case FullyMasked::kAbsent:
    case FullyMasked::kZero:
      options.empty_rows = EmptyRows::kZero;
      break;
    case FullyMasked::kNan:
      options.empty_rows = EmptyRows::kNan;
      break;
    case FullyMasked::kUniform:
      MakeFinite(sizes, uniform, /*causal_too=*/true, masks);
      break;
    case FullyMasked::kFinite: {
      const double value = c->Number("mask_filter_value").value_or(-10000.0);
      MakeFinite(sizes, static_cast<float>(value), /*causal_too=*/false, masks);
      break;
    }
  }
  options.attend_mask = View(masks->attend);
  options.attn_bias = View(masks->bias);
  if (!masks->padding.empty()) options.key_padding_mask = masks->padding.data();
  if (!masks->lengths.empty()) options.key_lengths = masks->lengths.data();
  if (masks->causal) {
    options.causal = Causal::kStart;
    if (!masks->offsets.empty()) options.query_offsets = masks->offsets.data();
  }
  return options;
}

}  // namespace conformance
}  // namespace headwise
