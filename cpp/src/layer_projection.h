// From inputs to the queries, keys and values of all heads.
#ifndef HEADWISE_SRC_LAYER_PROJECTION_H_
#define HEADWISE_SRC_LAYER_PROJECTION_H_

#include <memory>

#include "arena.h"
#include "cached_attention.h"
#include "headwise/config.h"
#include "headwise/multi_head_attention.h"
#include "headwise/status.h"
#include "headwise/tensor_view.h"

namespace headwise {

// Projected rows, heads side by side.
struct Projected {
  float* query;  // [B, L, H * D]
  float* key;    // [B, S, Hkv * D]
  float* value;  // [B, S, Hkv * Dv]
};

struct ProjectionScratch {
  Projected projected;
  float* product;
  CachePositions positions;
};
ProjectionScratch TakeProjectionScratch(const Config& config, size_t batch,
                                        size_t query_length, size_t key_length,
                                        Arena* arena);

// Projects, normalises and turns, as `options` say. With a cache the offsets
// of scratch.positions are filled: rows stand behind what it holds. value null:
// its heads are left out. Everything must have been checked.
Status ProjectIntoHeads(
    const Config& config,
    const ProjectionSet<std::unique_ptr<Linear>>& projections,
    const TensorView<const float>& query, const TensorView<const float>& key,
    const TensorView<const float>* value, const LayerOptions& options,
    const ProjectionScratch& scratch);

}  // namespace headwise

#endif  // HEADWISE_SRC_LAYER_PROJECTION_H_
