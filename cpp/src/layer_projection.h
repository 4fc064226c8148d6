// From inputs to the queries, keys and values of all heads.
#ifndef HEADWISE_SRC_LAYER_PROJECTION_H_
#define HEADWISE_SRC_LAYER_PROJECTION_H_

#include <memory>

#include "headwise/config.h"
#include "headwise/multi_head_attention.h"
#include "headwise/rotary.h"
#include "headwise/tensor_view.h"

namespace headwise {

// Projected rows, heads side by side.
struct Projected {
  float* query;  // [B, L, H * D]
  float* key;    // [B, S, Hkv * D]
  float* value;  // [B, S, Hkv * Dv]
};

// Inputs that are one and the same (self-attention) are packed once and meet
// all their weights in one product. `scratch`: TakeProductScratch.
void ProjectInputs(const ProjectionSet<std::unique_ptr<Linear>>& projections,
                   const TensorView<const float>& query,
                   const TensorView<const float>& key,
                   const TensorView<const float>& value,
                   const Projected& projected, float* scratch);

// Each row of x becomes x / sqrt(mean(x^2) + epsilon) * weight (null: 1).
void NormaliseRows(const float* weight, float epsilon,
                   const HeadsView<float>& x);

}  // namespace headwise

#endif  // HEADWISE_SRC_LAYER_PROJECTION_H_
