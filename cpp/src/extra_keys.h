// The learned key and value of add_bias_kv, and the zeros of add_zero_attn.
#ifndef HEADWISE_SRC_EXTRA_KEYS_H_
#define HEADWISE_SRC_EXTRA_KEYS_H_

#include <cstddef>

#include "memory.h"

namespace headwise {

// Rows behind the projected ones: bias_k (if there is one), then zeros.
struct ExtraKeys {
  size_t rows = 0;
  size_t key_width = 0;    // Hkv * D
  size_t value_width = 0;  // Hkv * Dv
  AlignedBuffer<float> key;
  AlignedBuffer<float> value;

  [[nodiscard]] bool Allocate() {
    if (!key.Allocate(rows * key_width) ||
        !value.Allocate(rows * value_width)) {
      return false;
    }
    for (size_t i = 0; i < key.size(); ++i) key.data()[i] = 0.0f;
    for (size_t i = 0; i < value.size(); ++i) value.data()[i] = 0.0f;
    return true;
  }
};

}  // namespace headwise

#endif  // HEADWISE_SRC_EXTRA_KEYS_H_
