// Attention on checked arguments and memory that is there: what
// ScaledDotProductAttention and MultiHeadAttention share.
#ifndef HEADWISE_SRC_ATTENTION_CORE_H_
#define HEADWISE_SRC_ATTENTION_CORE_H_

#include <cstddef>
#include <cstdint>

#include "arena.h"
#include "headwise/attention.h"
#include "headwise/tensor_view.h"

namespace headwise {

// Everything one head needs while it is computed. Grows with S and with
// nothing else but the block sizes.
struct AttentionScratch {
  float* key_panels;
  float* value_panels;
  uint8_t* chunk_nonfinite;
  float* query_tiles;
  float* scores;
  float* sums;
  float* maximum;
  float* total;
  size_t* begin;
  size_t* end;
};

AttentionScratch TakeAttentionScratch(size_t query_length, size_t key_length,
                                      size_t head_dim, size_t v_head_dim,
                                      Arena* arena);

// As ScaledDotProductAttention. The arguments must have passed its checks and
// the arena must hold AttentionWorkspaceBytes.
void Attend(const HeadsView<const float>& query,
            const HeadsView<const float>& key,
            const HeadsView<const float>& value,
            const AttentionOptions& options, const AttentionOutputs& outputs,
            Arena* arena);

}  // namespace headwise

#endif  // HEADWISE_SRC_ATTENTION_CORE_H_
