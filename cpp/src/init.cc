#include "init.h"

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

void UniformSource::Fill(float bound, size_t count, float* values) {
  for (size_t i = 0; i < count; ++i) values[i] = Next(bound);
}

}  // namespace headwise
