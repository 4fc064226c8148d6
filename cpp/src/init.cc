#include "init.h"

#include <cmath>

namespace headwise {

float UniformSource::Next(float bound) {
  state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  // 24 bits: every value is exact in a float.
  const float unit = static_cast<float>(z >> 40) * 0x1.0p-24f;
  return (2.0f * unit - 1.0f) * bound;
}

float UniformSource::NextNormal() {
  // The first of (0, 1], so that its logarithm exists.
  const double u = (1.0 - static_cast<double>(Next(1.0f))) / 2.0;
  const double angle = 3.14159265358979323846 * static_cast<double>(Next(1.0f));
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(angle));
}

void UniformSource::Fill(float bound, size_t count, float* values) {
  for (size_t i = 0; i < count; ++i) values[i] = Next(bound);
}

}  // namespace headwise
