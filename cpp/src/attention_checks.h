// What a call of scaled dot-product attention must satisfy.
#ifndef HEADWISE_SRC_ATTENTION_CHECKS_H_
#define HEADWISE_SRC_ATTENTION_CHECKS_H_

#include <cstddef>

#include "headwise/attention.h"
#include "headwise/status.h"

namespace headwise {

struct AttentionSizes {
  size_t batch = 0;
  size_t heads = 0;
  size_t kv_heads = 0;
  size_t query_length = 0;
  size_t key_length = 0;
};

// Masks broadcast, lengths lie in range, options do not contradict.
Status CheckOptions(const AttentionSizes& sizes,
                    const AttentionOptions& options);
// Weights are asked for with a place to put them.
Status CheckWeights(const AttentionSizes& sizes, WeightsKind kind,
                    const float* weights);

}  // namespace headwise

#endif  // HEADWISE_SRC_ATTENTION_CHECKS_H_
