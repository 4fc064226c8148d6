// Attention over a cache: what is known about it, worked into the options.
#ifndef HEADWISE_SRC_CACHED_ATTENTION_H_
#define HEADWISE_SRC_CACHED_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "arena.h"
#include "attention_checks.h"
#include "attention_core.h"
#include "headwise/attention.h"
#include "headwise/kv_cache.h"

namespace headwise {

// Options that contradict a cache.
Status CheckCachedOptions(const KvCache& cache, const AttentionOptions& options,
                          WeightsKind weights, ScoresKind scores);

// Where the queries of a call stand, and what the cache holds: [B] each.
struct CachePositions {
  int32_t* offsets;
  int32_t* lengths;
};
CachePositions TakeCachePositions(size_t batch, Arena* arena);

// `options` with lengths, offsets and window as the cache has them.
AttentionOptions CachedOptions(const KvCache& cache,
                               const AttentionOptions& options,
                               const CachePositions& positions);
KeySource CachedSource(const KvCache& cache);
void ReadLengths(const KvCache& cache, int32_t* lengths);

}  // namespace headwise

#endif  // HEADWISE_SRC_CACHED_ATTENTION_H_
