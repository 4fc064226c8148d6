// What the calls of a layer require of their inputs.
#ifndef HEADWISE_SRC_LAYER_CHECKS_H_
#define HEADWISE_SRC_LAYER_CHECKS_H_

#include <cstddef>

#include "headwise/config.h"
#include "headwise/multi_head_attention.h"
#include "headwise/status.h"
#include "headwise/tensor_view.h"

namespace headwise {

// value null: the call does without.
Status CheckInputs(const Config& config, const TensorView<const float>& query,
                   const TensorView<const float>& key,
                   const TensorView<const float>* value);

Status CheckOutput(const Config& config, const TensorView<const float>& query,
                   const TensorView<float>& output);

// Whether options.cache, which is there, is one for this layer and call.
Status CheckCache(const Config& config, const TensorView<const float>& query,
                  const TensorView<const float>& key,
                  const LayerOptions& options);

// What the attention will see: the keys of the call, or those of the cache
// with the call's among them.
size_t KeyLength(size_t query_length, size_t key_length,
                 const LayerOptions& options);

// How queries and keys turn, if they do; positions to turn to need it.
Status CheckTurns(const Config& config, const LayerOptions& options);

// A rolling cache takes long calls in blocks, and a query that sees what
// follows it would miss the blocks to come.
Status CheckRollingRows(size_t rows, const LayerOptions& options);

}  // namespace headwise

#endif  // HEADWISE_SRC_LAYER_CHECKS_H_
