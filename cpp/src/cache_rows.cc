#include "cache_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "half_float.h"

namespace headwise {
namespace {

void StoreInt8(const float* from, size_t count, int8_t* to, float* scale) {
  float largest = 0.0f;
  bool finite = true;
  for (size_t i = 0; i < count; ++i) {
    finite = finite && std::isfinite(from[i]);
    largest = std::max(largest, std::fabs(from[i]));
  }
  *scale = finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
  const float inverse = finite && *scale > 0.0f ? 1.0f / *scale : 0.0f;
  for (size_t i = 0; i < count; ++i) {
    const float code = finite ? std::nearbyint(from[i] * inverse) : 0.0f;
    to[i] = static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f));
  }
}

}  // namespace

size_t BytesOf(CacheType type) {
  switch (type) {
    case CacheType::kFloat32:
      return 4;
    case CacheType::kFloat16:
    case CacheType::kBFloat16:
      return 2;
    case CacheType::kInt8:
      return 1;
  }
  return 4;
}

void StoreRow(CacheType type, const float* from, size_t count, void* to,
              float* scale) {
  switch (type) {
    case CacheType::kFloat32:
      std::memcpy(to, from, count * sizeof(float));
      return;
    case CacheType::kFloat16:
      std::transform(from, from + count, static_cast<uint16_t*>(to),
                     Float16From);
      return;
    case CacheType::kBFloat16:
      std::transform(from, from + count, static_cast<uint16_t*>(to),
                     BFloat16From);
      return;
    case CacheType::kInt8:
      StoreInt8(from, count, static_cast<int8_t*>(to), scale);
      return;
  }
}

void LoadRow(CacheType type, const void* from, float scale, size_t count,
             float* to) {
  switch (type) {
    case CacheType::kFloat32:
      std::memcpy(to, from, count * sizeof(float));
      return;
    case CacheType::kFloat16: {
      const uint16_t* halves = static_cast<const uint16_t*>(from);
      std::transform(halves, halves + count, to, FloatFromFloat16);
      return;
    }
    case CacheType::kBFloat16: {
      const uint16_t* halves = static_cast<const uint16_t*>(from);
      std::transform(halves, halves + count, to, FloatFromBFloat16);
      return;
    }
    case CacheType::kInt8: {
      const int8_t* codes = static_cast<const int8_t*>(from);
      for (size_t i = 0; i < count; ++i) {
        to[i] = scale * static_cast<float>(codes[i]);
      }
      return;
    }
  }
}

}  // namespace headwise
