#include "cached_attention.h"

#include "view_checks.h"

namespace headwise {
namespace {

Status Contradicts(const char* option, const char* why) {
  return Status::Error(StatusCode::kInvalidArgument,
                       "attention with a cache: %s is given; %s", option, why);
}

}  // namespace

Status CheckCachedOptions(const KvCache& cache, const AttentionOptions& options,
                          WeightsKind weights, ScoresKind scores) {
  const char* kOwn = "the cache knows it; leave it away";
  if (options.key_lengths != nullptr) return Contradicts("key_lengths", kOwn);
  if (options.query_offsets != nullptr) {
    return Contradicts("query_offsets", kOwn);
  }
  if (options.cumulative_query_lengths != nullptr ||
      options.cumulative_key_lengths != nullptr) {
    return Contradicts("cumulative_query_lengths",
                       "a cache has one entry for each sequence; give a batch "
                       "with query_lengths");
  }
  if (options.key_padding_mask != nullptr) {
    return Contradicts("key_padding_mask",
                       "padding is never stored; give query_lengths");
  }
  const KvCacheConfig& c = cache.config();
  if (c.window == 0) return Status();
  const char* kNoColumns =
      "a rolling cache drops tokens, so there is no column for each; use a "
      "cache with a capacity";
  if (options.attend_mask.present()) {
    return Contradicts("attend_mask", kNoColumns);
  }
  if (options.attn_bias.present()) return Contradicts("attn_bias", kNoColumns);
  if (options.block_mask != nullptr) {
    return Contradicts("block_mask", kNoColumns);
  }
  if (options.prefix_lengths != nullptr) {
    return Contradicts("prefix_lengths", "the prefix may have been dropped");
  }
  if (weights != WeightsKind::kNone) return Contradicts("weights", kNoColumns);
  if (scores != ScoresKind::kNone) return Contradicts("scores", kNoColumns);
  if (options.window_left != -1 &&
      static_cast<size_t>(options.window_left) + 1 != c.window) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention with a cache: window_left is %d, the "
                         "cache's window %zu keeps %zu neighbours; make them "
                         "agree or leave window_left at -1",
                         static_cast<int>(options.window_left), c.window,
                         c.window - 1);
  }
  return Status();
}

CachePositions TakeCachePositions(size_t batch, Arena* arena) {
  return {arena->Take<int32_t>(batch), arena->Take<int32_t>(batch)};
}

AttentionOptions CachedOptions(const KvCache& cache,
                               const AttentionOptions& options,
                               const CachePositions& positions) {
  AttentionOptions own = options;
  own.key_lengths = positions.lengths;
  own.query_offsets = positions.offsets;
  if (own.causal == Causal::kEnd) own.causal = Causal::kStart;
  if (cache.config().window != 0) {
    own.window_left = static_cast<int32_t>(cache.config().window) - 1;
  }
  return own;
}

KeySource CachedSource(const KvCache& cache) {
  KeySource source;
  source.cache = &cache;
  source.lead = cache.config().sink_tokens;
  return source;
}

void ReadLengths(const KvCache& cache, int32_t* lengths) {
  for (size_t b = 0; b < cache.config().batch; ++b) {
    lengths[b] = static_cast<int32_t>(cache.length(b));
  }
}

namespace {

size_t QueryCount(const AttentionOptions& options, size_t b, size_t rows) {
  return options.query_lengths == nullptr
             ? rows
             : static_cast<size_t>(options.query_lengths[b]);
}

// Cropping a rolling cache may leave less than the windows of queries that
// stand before its end. Queries before the first token see nothing anyway.
Status CheckHeld(const KvCache& cache, size_t rows,
                 const AttentionOptions& options) {
  const KvCacheConfig& c = cache.config();
  for (size_t b = 0; b < c.batch && c.window != 0; ++b) {
    const size_t length = cache.length(b);
    const size_t count = QueryCount(options, b, rows);
    if (count == 0 || count > length) continue;
    const size_t first = length - count;
    const size_t oldest = first < c.window ? 0 : first - (c.window - 1);
    const size_t needed = oldest < c.sink_tokens ? c.sink_tokens : oldest;
    if (needed > first || cache.Holds(b, needed)) continue;
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention with a cache: the query at position %zu of "
                         "entry %zu would see token %zu, which the rolling "
                         "cache has dropped; attend before cropping, or crop "
                         "by less",
                         first, b, needed);
  }
  return Status();
}

}  // namespace

Status CachedAttention(const HeadsView<const float>& query,
                       const KvCache& cache, const AttentionOptions& options,
                       const AttentionOutputs& outputs, Workspace* workspace) {
  const KvCacheConfig& c = cache.config();
  const size_t length = cache.max_length();
  const char* call = "attention with a cache";
  HEADWISE_RETURN_IF_ERROR(CheckPointer(call, "workspace", workspace));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "query", query));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "output", outputs.output));
  HEADWISE_RETURN_IF_ERROR(CheckDisjoint(call, "output", outputs.output));
  using InHeads = HeadsView<const float>;
  HEADWISE_RETURN_IF_ERROR(CheckShapes(
      query,
      InHeads::HeadsFirst(nullptr, c.batch, c.num_kv_heads, length, c.head_dim),
      InHeads::HeadsFirst(nullptr, c.batch, c.num_kv_heads, length,
                          c.v_head_dim),
      outputs.output));
  const AttentionSizes sizes = {c.batch, query.heads, c.num_kv_heads,
                                query.rows, length};
  HEADWISE_RETURN_IF_ERROR(CheckOptions(sizes, options));
  HEADWISE_RETURN_IF_ERROR(CheckCachedOptions(
      cache, options, outputs.weights_kind, outputs.scores_kind));
  HEADWISE_RETURN_IF_ERROR(
      CheckWeights(sizes, 0, outputs.weights_kind, outputs.weights));
  HEADWISE_RETURN_IF_ERROR(
      CheckScores(sizes, 0, outputs.scores_kind, outputs.scores));
  if (options.extra_key.rows != 0 || options.extra_value.rows != 0) {
    return Contradicts("extra_key", "append it to the cache instead");
  }
  if (c.window != 0 && query.rows > kMaxRollingQueries) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention with a cache: %zu queries at once, a "
                         "rolling cache serves %zu; call it in pieces",
                         query.rows, kMaxRollingQueries);
  }
  HEADWISE_RETURN_IF_ERROR(CheckHeld(cache, query.rows, options));
  const KeySource source = CachedSource(cache);
  Arena counter;
  TakeCachePositions(c.batch, &counter);
  TakeAttentionScratch(query.rows, source.Rows(), c.head_dim, c.v_head_dim, 0,
                       &counter);
  HEADWISE_RETURN_IF_ERROR(workspace->Reserve(counter.used()));
  Arena arena(workspace->data());
  const CachePositions positions = TakeCachePositions(c.batch, &arena);
  ReadLengths(cache, positions.lengths);
  for (size_t b = 0; b < c.batch; ++b) {
    positions.offsets[b] =
        positions.lengths[b] -
        static_cast<int32_t>(QueryCount(options, b, query.rows));
  }
  const AttentionOptions own = CachedOptions(cache, options, positions);
  HEADWISE_RETURN_IF_ERROR(CheckBlockMask(sizes, own));
  Attend(query, source, sizes, own, outputs, {0, query.rows}, &arena);
  return Status();
}

}  // namespace headwise
