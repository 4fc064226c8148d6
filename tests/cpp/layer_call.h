// One forward call of a small layer with room for every result.
#ifndef HEADWISE_TESTS_CPP_LAYER_CALL_H_
#define HEADWISE_TESTS_CPP_LAYER_CALL_H_

#include <cstddef>
#include <vector>

#include "headwise/multi_head_attention.h"
#include "headwise/workspace.h"
#include "layer_case.h"
#include "test_util.h"

namespace headwise {

inline Config SmallConfig() {
  Config config;
  config.embed_dim = 24;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 5;
  config.v_head_dim = 7;
  config.k_dim = 11;
  config.v_dim = 13;
  config.out_dim = 9;
  return Resolved(config);
}

// The output starts as 42s, so that a write is noticed.
struct LayerCall {
  LayerCall(size_t batch, size_t rows, size_t keys, const Config& config,
            Random* random)
      : query(batch, rows, config.embed_dim),
        key(batch, keys, config.k_dim),
        value(batch, keys, config.v_dim),
        output(batch, rows, config.out_dim),
        weights(batch * config.num_heads * rows * keys),
        lse(batch * config.num_heads * rows) {
    query.FillUniform(random, -1, 1);
    key.FillUniform(random, -1, 1);
    value.FillUniform(random, -1, 1);
    output.SetDense(std::vector<float>(batch * rows * config.out_dim, 42.0f));
    outputs.output = output.out();
    outputs.weights_kind = WeightsKind::kPerHead;
    outputs.weights = weights.data();
    outputs.lse = lse.data();
  }
  Status Run(const MultiHeadAttention& layer, Workspace* workspace) {
    return layer.Forward(query.in(), key.in(), value.in(), LayerOptions(),
                         outputs, workspace);
  }
  Tensor query, key, value, output;
  std::vector<float> weights, lse;
  ForwardOutputs outputs;
};

}  // namespace headwise

#endif  // HEADWISE_TESTS_CPP_LAYER_CALL_H_
