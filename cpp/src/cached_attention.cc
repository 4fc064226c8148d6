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
      CheckWeights(sizes, outputs.weights_kind, outputs.weights));
  HEADWISE_RETURN_IF_ERROR(
      CheckScores(sizes, outputs.scores_kind, outputs.scores));
  if (options.extra_key.rows != 0) {
    return Contradicts("extra_key", "append it to the cache instead");
  }
  if (c.window != 0 && query.rows > kMaxRollingQueries) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention with a cache: %zu queries at once, a "
                         "rolling cache serves %zu; call it in pieces",
                         query.rows, kMaxRollingQueries);
  }
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
    const int32_t queries = options.query_lengths != nullptr
                                ? options.query_lengths[b]
                                : static_cast<int32_t>(query.rows);
    positions.offsets[b] = positions.lengths[b] - queries;
  }
  Attend(query, source, sizes, CachedOptions(cache, options, positions),
         outputs, {0, query.rows}, &arena);
  return Status();
}

}  // namespace headwise
