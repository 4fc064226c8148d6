// Rotary position embedding and the norm before it, in float64.
#ifndef HEADWISE_REFERENCE_ROTARY_H_
#define HEADWISE_REFERENCE_ROTARY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "headwise/rotary.h"

namespace headwise {
namespace reference {

struct RotaryAngles {
  std::vector<double> frequencies;  // [R / 2], radians for each position
  double magnitude = 1.0;           // factor of cos and sin
};
RotaryAngles AnglesOf(const RotaryConfig& config, size_t head_dim);

// Which position axis pair i belongs to.
size_t AxisOf(const RotaryConfig& config, size_t pair);

// Where the row of an array [B, L, ...] stands on an axis.
int64_t RotaryPosition(const RotaryPositions& positions, size_t axis, size_t b,
                       size_t row, size_t batch, size_t rows);

// Turns x [B, L, heads * head_dim] in place.
void RotaryEmbedding(const RotaryConfig& config,
                     const RotaryPositions& positions, size_t batch,
                     size_t rows, size_t heads, size_t head_dim,
                     std::vector<double>* x);

// x / sqrt(mean(x^2) + epsilon) * weight for each row of head_dim values;
// weight null: 1.
void NormaliseRows(const float* weight, double epsilon, size_t head_dim,
                   std::vector<double>* x);

}  // namespace reference
}  // namespace headwise

#endif  // HEADWISE_REFERENCE_ROTARY_H_
