// Keys and values of one key/value head, packed chunk by chunk.
#ifndef HEADWISE_SRC_KEY_CHUNKS_H_
#define HEADWISE_SRC_KEY_CHUNKS_H_

#include <cstddef>

#include "arena.h"
#include "headwise/kv_cache.h"
#include "headwise/tensor_view.h"
#include "kernels/kernels.h"

namespace headwise {

// Room for `key_length` keys and `extra_keys` more, and what is in it.
struct PackedKeys {
  float* key_panels;
  float* value_panels;
  float* extra_key_panels;
  float* extra_value_panels;
  // One chunk as plain rows, on its way from a cache.
  float* key_rows;
  float* value_rows;
  kernels::KeyChunk* chunks;
  size_t chunk_count;
};

PackedKeys TakePackedKeys(size_t key_length, size_t head_dim, size_t v_head_dim,
                          size_t extra_keys, Arena* arena);

// Packs keys [anchor, anchor + count) and, if wanted, their values, anew.
// Without values only scores can be computed.
void PackKeys(const HeadsView<const float>& key,
              const HeadsView<const float>* value, size_t b, size_t kv_head,
              size_t anchor, size_t count, PackedKeys* packed);

// The same from a cache: all tokens of the entry that it holds.
void PackCachedKeys(const KvCache& cache, size_t b, size_t kv_head,
                    PackedKeys* packed);
// The most keys that takes room for, whole chunks where a rolling cache holds
// two stretches.
size_t CachedRows(const KvCache& cache);

// Appends the extra keys as one more chunk, at `column`.
void PackExtraKeys(const HeadsView<const float>& key,
                   const HeadsView<const float>& value, size_t b,
                   size_t kv_head, size_t column, PackedKeys* packed);

}  // namespace headwise

#endif  // HEADWISE_SRC_KEY_CHUNKS_H_
