// What a multi-head attention layer is made of.
#ifndef HEADWISE_CONFIG_H_
#define HEADWISE_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "headwise/status.h"

namespace headwise {

struct Config {
  size_t embed_dim = 0;     // E: width of the queries
  size_t num_heads = 0;     // H
  size_t num_kv_heads = 0;  // Hkv; 0: num_heads. Fewer: grouped-query heads
  size_t head_dim = 0;      // D; 0: embed_dim / num_heads
  size_t v_head_dim = 0;    // Dv; 0: head_dim
  size_t k_dim = 0;         // width of the keys; 0: embed_dim
  size_t v_dim = 0;         // width of the values; 0: embed_dim
  size_t out_dim = 0;       // width of the output; 0: embed_dim
  bool query_bias = true;
  bool key_bias = true;
  bool value_bias = true;
  bool out_bias = true;
  // One learned key and value behind the others (PyTorch's add_bias_kv), then
  // one of zeros (add_zero_attn). Every query sees them; weights get a column
  // for each.
  bool add_bias_kv = false;
  bool add_zero_attn = false;
  std::optional<float> scale;  // default 1 / sqrt(D)
  uint64_t seed = 0;           // of the initial weights
};

// Fills in the defaults. kInvalidConfig when the sizes describe no layer: the
// message names the field, what it is and what it must be.
Status Resolve(const Config& config, Config* resolved);

}  // namespace headwise

#endif  // HEADWISE_CONFIG_H_
