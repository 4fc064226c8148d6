#include "ort_masks.h"

#include <algorithm>

namespace headwise {
namespace conformance {
namespace {

// Scores are far smaller: a key with less added is as good as hidden.
constexpr double kAsGoodAsHidden = -1000.0;

}  // namespace

FiniteRule OrtRule(Case* c) {
  FiniteRule rule;
  const double value = c->Number("mask_filter_value").value_or(rule.finite);
  rule.finite = static_cast<float>(value);
  rule.always = value > kAsGoodAsHidden;
  return rule;
}

AttentionOptions OrtOptions(Case* c) {
  AttentionOptions options;
  const double scale = c->Number("scale").value_or(0.0);
  if (scale != 0.0) options.scale = static_cast<float>(scale);
  return options;
}

void ReadOrtBias(Case* c, Masks* masks) {
  masks->causal = c->Flag("unidirectional", false);
  const Tensor* bias = c->Input("attention_bias", {{"F32"}, {1, 2, 3, 4}});
  if (bias != nullptr) masks->bias = FloatMask(*bias, ToRank4(bias->shape));
}

Mask<uint8_t> KeepMask(const Tensor& tensor,
                       const std::array<size_t, 4>& shape) {
  Tensor positive = tensor;
  for (double& value : positive.values) value = value > 0.0 ? 1.0 : 0.0;
  return BoolMask(positive, shape, /*invert=*/false);
}

std::vector<int32_t> ClampedLengths(const std::vector<double>& values,
                                    size_t begin, size_t count, size_t keys) {
  std::vector<int32_t> lengths;
  for (size_t i = begin; i < begin + count; ++i) {
    lengths.push_back(static_cast<int32_t>(
        std::clamp(values[i], 0.0, static_cast<double>(keys))));
  }
  return lengths;
}

}  // namespace conformance
}  // namespace headwise
