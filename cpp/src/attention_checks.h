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

Status CheckShapes(const HeadsView<const float>& query,
                   const HeadsView<const float>& key,
                   const HeadsView<const float>& value,
                   const HeadsView<float>& output);
Status CheckExtraKeys(const HeadsView<const float>& key,
                      const HeadsView<const float>& value,
                      const AttentionOptions& options);
// Masks broadcast, lengths lie in range, options do not contradict.
Status CheckOptions(const AttentionSizes& sizes,
                    const AttentionOptions& options);
// The block mask, if there is one, knows the positions of all queries that
// count. For options whose query_offsets are those of the attention.
Status CheckBlockMask(const AttentionSizes& sizes,
                      const AttentionOptions& options);
// Weights are asked for with a place to put them, and so are scores. The extra
// keys have columns too.
Status CheckWeights(const AttentionSizes& sizes, size_t extra_keys,
                    WeightsKind kind, const float* weights);
Status CheckScores(const AttentionSizes& sizes, size_t extra_keys,
                   ScoresKind kind, const float* scores);

// The tile lies inside the call, and weights come with their lse.
Status CheckTile(const AttentionSizes& sizes,
                 const AttentionTileRequest& request, const float* tile);

}  // namespace headwise

#endif  // HEADWISE_SRC_ATTENTION_CHECKS_H_
