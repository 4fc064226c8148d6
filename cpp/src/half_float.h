// float32 to and from the two 16-bit formats, rounding to nearest even.
#ifndef HEADWISE_SRC_HALF_FLOAT_H_
#define HEADWISE_SRC_HALF_FLOAT_H_

#include <cstdint>
#include <cstring>

namespace headwise {

inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint16_t BFloat16From(float value) {
  const uint32_t bits = BitsOf(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
inline float FloatFromBFloat16(uint16_t value) {
  return FloatOf(static_cast<uint32_t>(value) << 16);
}

inline uint16_t Float16From(float value) {
  const uint32_t bits = BitsOf(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00u;   // NaN
  if (magnitude >= 0x477FF000u) return sign | 0x7C00u;  // 65520 and above
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 leaves a multiple of 2^-24, rounded, in the low
    // bits of the sum.
    const float shifted = FloatOf(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(BitsOf(shifted) - BitsOf(0.5f));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13);
}
inline float FloatFromFloat16(uint16_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000u) << 16;
  const uint32_t magnitude = value & 0x7FFFu;
  if (magnitude >= 0x7C00u) {
    return FloatOf(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  }
  // Subnormals come out right as well: 2^112 is exact.
  const float scaled = FloatOf(magnitude << 13) * FloatOf(0x77800000u);
  return FloatOf(BitsOf(scaled) | sign);
}

}  // namespace headwise

#endif  // HEADWISE_SRC_HALF_FLOAT_H_
