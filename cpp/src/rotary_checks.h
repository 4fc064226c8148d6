// What a rotary configuration must satisfy.
#ifndef HEADWISE_SRC_ROTARY_CHECKS_H_
#define HEADWISE_SRC_ROTARY_CHECKS_H_

#include <cstddef>

#include "headwise/rotary.h"
#include "headwise/status.h"

namespace headwise {

// Angles of one row live on the stack.
inline constexpr size_t kMaxRotaryDim = 1024;

inline size_t RotaryDim(const RotaryConfig& config, size_t head_dim) {
  return config.dim == 0 ? head_dim : config.dim;
}

Status CheckRotary(const RotaryConfig& config, size_t head_dim);

}  // namespace headwise

#endif  // HEADWISE_SRC_ROTARY_CHECKS_H_
