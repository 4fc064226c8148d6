#include "headwise/config.h"

#include <cmath>

#include "memory.h"

namespace headwise {
namespace {

// Widths and their products must leave room for counting bytes; 32-bit
// address spaces are the small ones.
constexpr size_t kMaxWidth = size_t{1} << 24;

Status CheckWidth(const char* name, size_t value) {
  if (value >= 1 && value <= kMaxWidth) return Status();
  return Status::Error(StatusCode::kInvalidConfig,
                       "MultiHeadAttention: %s is %zu; it must be 1 to %zu",
                       name, value, kMaxWidth);
}

size_t Default(size_t value, size_t otherwise) {
  return value == 0 ? otherwise : value;
}

}  // namespace

Status Resolve(const Config& config, Config* resolved) {
  Config c = config;
  HEADWISE_RETURN_IF_ERROR(CheckWidth("embed_dim", c.embed_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("num_heads", c.num_heads));
  c.num_kv_heads = Default(c.num_kv_heads, c.num_heads);
  if (c.num_heads % c.num_kv_heads != 0) {
    return Status::Error(
        StatusCode::kInvalidConfig,
        "MultiHeadAttention: num_heads %zu is not a multiple of num_kv_heads "
        "%zu; every key/value head serves the same number of query heads",
        c.num_heads, c.num_kv_heads);
  }
  if (c.head_dim == 0) {
    if (c.embed_dim % c.num_heads != 0) {
      return Status::Error(
          StatusCode::kInvalidConfig,
          "MultiHeadAttention: embed_dim %zu is not divisible by num_heads "
          "%zu; change one of them or give head_dim",
          c.embed_dim, c.num_heads);
    }
    c.head_dim = c.embed_dim / c.num_heads;
  }
  c.v_head_dim = Default(c.v_head_dim, c.head_dim);
  c.k_dim = Default(c.k_dim, c.embed_dim);
  c.v_dim = Default(c.v_dim, c.embed_dim);
  c.out_dim = Default(c.out_dim, c.embed_dim);
  HEADWISE_RETURN_IF_ERROR(CheckWidth("head_dim", c.head_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("v_head_dim", c.v_head_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("k_dim", c.k_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("v_dim", c.v_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("out_dim", c.out_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("num_heads * head_dim",
                                      SaturatingMul(c.num_heads, c.head_dim)));
  HEADWISE_RETURN_IF_ERROR(CheckWidth(
      "num_heads * v_head_dim", SaturatingMul(c.num_heads, c.v_head_dim)));
  if (c.scale.has_value() && !std::isfinite(*c.scale)) {
    return Status::Error(StatusCode::kInvalidConfig,
                         "MultiHeadAttention: scale is %f; it must be finite",
                         static_cast<double>(*c.scale));
  }
  *resolved = c;
  return Status();
}

}  // namespace headwise
