#include "rotary_checks.h"

#include <cmath>

#include "memory.h"

namespace headwise {
namespace {

Status Positive(const char* name, double value) {
  if (std::isfinite(value) && value > 0) return Status();
  return Status::Error(StatusCode::kInvalidConfig,
                       "rotary: %s is %g; it must be positive", name, value);
}

}  // namespace

Status CheckRotary(const RotaryConfig& c, size_t head_dim) {
  const size_t dim = RotaryDim(c, head_dim);
  if (dim < 2 || dim % 2 != 0 || dim > head_dim || dim > kMaxRotaryDim) {
    return Status::Error(StatusCode::kInvalidConfig,
                         "rotary: dim is %zu; it must be even, at least 2 and "
                         "at most the head size %zu (and %zu)",
                         dim, head_dim, kMaxRotaryDim);
  }
  HEADWISE_RETURN_IF_ERROR(Positive("base", c.base));
  if (static_cast<int>(c.scaling) < 0 ||
      static_cast<int>(c.scaling) > static_cast<int>(RotaryScaling::kLlama3)) {
    return Status::Error(StatusCode::kInvalidConfig,
                         "rotary: scaling %d is no value of its enum",
                         static_cast<int>(c.scaling));
  }
  if (c.scaling != RotaryScaling::kNone) {
    HEADWISE_RETURN_IF_ERROR(Positive("factor", c.factor));
  }
  if (c.scaling == RotaryScaling::kNtk && dim == 2) {
    return Status::Error(StatusCode::kInvalidConfig,
                         "rotary: kNtk has no meaning for dim 2; use kLinear");
  }
  if (c.scaling == RotaryScaling::kYarn ||
      c.scaling == RotaryScaling::kLlama3) {
    HEADWISE_RETURN_IF_ERROR(Positive("original_length", c.original_length));
  }
  if (c.scaling == RotaryScaling::kYarn) {
    HEADWISE_RETURN_IF_ERROR(Positive("beta_fast", c.beta_fast));
    HEADWISE_RETURN_IF_ERROR(Positive("beta_slow", c.beta_slow));
  }
  if (c.scaling == RotaryScaling::kLlama3 &&
      !(c.high_frequency_factor > c.low_frequency_factor)) {
    return Status::Error(StatusCode::kInvalidConfig,
                         "rotary: high_frequency_factor is %g; it must be "
                         "above low_frequency_factor %g",
                         c.high_frequency_factor, c.low_frequency_factor);
  }
  if (c.axes > RotaryConfig::kMaxAxes) {
    return Status::Error(StatusCode::kInvalidConfig,
                         "rotary: axes is %zu; it must be 0 to %zu", c.axes,
                         RotaryConfig::kMaxAxes);
  }
  size_t pairs = 0;
  for (size_t axis = 0; axis < c.axes; ++axis) {
    pairs = SaturatingAdd(pairs, c.sections[axis]);
  }
  if (c.axes != 0 && pairs != dim / 2) {
    return Status::Error(StatusCode::kInvalidConfig,
                         "rotary: sections add up to %zu; they must to %zu, "
                         "half the turned width",
                         pairs, dim / 2);
  }
  return Status();
}

}  // namespace headwise
