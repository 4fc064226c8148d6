// Attention on checked arguments and memory that is there: what the public
// calls share.
#ifndef HEADWISE_SRC_ATTENTION_CORE_H_
#define HEADWISE_SRC_ATTENTION_CORE_H_

#include <cstddef>
#include <cstdint>

#include "arena.h"
#include "attention_checks.h"
#include "block_scores.h"
#include "headwise/attention.h"
#include "headwise/kv_cache.h"
#include "headwise/tensor_view.h"
#include "key_chunks.h"

namespace headwise {

// Everything one head needs while it is computed. Grows with S and with
// nothing else but the block sizes.
struct AttentionScratch {
  PackedKeys keys;
  float* query_tiles;
  float* scores;
  float* sums;
  ChunkMasks chunk_masks;
  float* maximum;
  float* total;
  size_t* lead;
  size_t* begin;
  size_t* end;
};

AttentionScratch TakeAttentionScratch(size_t query_length, size_t key_length,
                                      size_t head_dim, size_t v_head_dim,
                                      size_t extra_keys, Arena* arena);

// Where keys and values come from: two tensors, or a cache.
struct KeySource {
  const HeadsView<const float>* key = nullptr;
  const HeadsView<const float>* value = nullptr;
  const KvCache* cache = nullptr;
  // First positions that stay in sight whatever the window says.
  size_t lead = 0;

  // Keys to make room for.
  size_t Rows() const {
    return cache != nullptr ? CachedRows(*cache) : key->rows;
  }
};

// Query rows [begin, end) of a call.
struct RowRange {
  size_t begin;
  size_t end;
};

// The arguments must have passed the checks of ScaledDotProductAttention and
// the arena must hold what TakeAttentionScratch takes.
void Attend(const HeadsView<const float>& query, const KeySource& source,
            const AttentionSizes& sizes, const AttentionOptions& options,
            const AttentionOutputs& outputs, RowRange rows, Arena* arena);

// As the public AttentionTile, on checked arguments; the arena must hold
// TakeAttentionScratch for the rows and keys asked for.
void AttendTile(const HeadsView<const float>& query,
                const HeadsView<const float>& key, const AttentionSizes& sizes,
                const AttentionOptions& options,
                const AttentionTileRequest& request, float* tile, Arena* arena);

}  // namespace headwise

#endif  // HEADWISE_SRC_ATTENTION_CORE_H_
