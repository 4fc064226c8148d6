#include "layer_checks.h"

#include <algorithm>

#include "rotary_checks.h"
#include "view_checks.h"

namespace headwise {
namespace {

constexpr char kCall[] = "MultiHeadAttention";

Status CheckWidth(const char* name, size_t got, size_t want) {
  if (got == want) return Status();
  return Status::Error(StatusCode::kShapeMismatch,
                       "MultiHeadAttention: %s has %zu columns, this layer "
                       "needs %zu",
                       name, got, want);
}

}  // namespace

Status CheckInputs(const Config& c, const TensorView<const float>& query,
                   const TensorView<const float>& key,
                   const TensorView<const float>* value) {
  HEADWISE_RETURN_IF_ERROR(CheckWidth("query", query.cols, c.embed_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("key", key.cols, c.k_dim));
  if (value != nullptr) {
    HEADWISE_RETURN_IF_ERROR(CheckWidth("value", value->cols, c.v_dim));
  }
  if (key.batch != query.batch) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "MultiHeadAttention: query [%zu, %zu], key [%zu, %zu] "
                         "(batch, rows); batches must be equal",
                         query.batch, query.rows, key.batch, key.rows);
  }
  if (value != nullptr &&
      (value->batch != key.batch || value->rows != key.rows)) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "MultiHeadAttention: key [%zu, %zu], value [%zu, %zu] "
                         "(batch, rows); each key needs one value",
                         key.batch, key.rows, value->batch, value->rows);
  }
  HEADWISE_RETURN_IF_ERROR(CheckData(kCall, "query", query));
  HEADWISE_RETURN_IF_ERROR(CheckData(kCall, "key", key));
  return value == nullptr ? Status() : CheckData(kCall, "value", *value);
}

Status CheckOutput(const Config& c, const TensorView<const float>& query,
                   const TensorView<float>& output) {
  HEADWISE_RETURN_IF_ERROR(CheckWidth("output", output.cols, c.out_dim));
  if (output.batch != query.batch || output.rows != query.rows) {
    return Status::Error(
        StatusCode::kShapeMismatch,
        "MultiHeadAttention: query [%zu, %zu], output [%zu, %zu] (batch, "
        "rows); they must be equal",
        query.batch, query.rows, output.batch, output.rows);
  }
  HEADWISE_RETURN_IF_ERROR(CheckData(kCall, "output", output));
  return CheckDisjoint(kCall, "output", output);
}

Status CheckCache(const Config& c, const TensorView<const float>& query,
                  const TensorView<const float>& key,
                  const LayerOptions& options) {
  const KvCacheConfig& k = options.cache->config();
  if (k.batch != query.batch || k.num_kv_heads != c.num_kv_heads ||
      k.head_dim != c.head_dim || k.v_head_dim != c.v_head_dim) {
    return Status::Error(
        StatusCode::kShapeMismatch,
        "MultiHeadAttention: the cache is [%zu, %zu, .., %zu and %zu], this "
        "call needs [%zu, %zu, .., %zu and %zu]",
        k.batch, k.num_kv_heads, k.head_dim, k.v_head_dim, query.batch,
        c.num_kv_heads, c.head_dim, c.v_head_dim);
  }
  if (key.rows != query.rows) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "MultiHeadAttention: %zu queries but %zu keys; with a "
                         "cache each token brings one of each",
                         query.rows, key.rows);
  }
  if (c.add_bias_kv || c.add_zero_attn) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "MultiHeadAttention: add_bias_kv and add_zero_attn do "
                         "not go with a cache");
  }
  return Status();
}

Status CheckTurns(const Config& c, const LayerOptions& options) {
  if (options.rotary != nullptr) {
    return CheckRotary(*options.rotary, c.head_dim);
  }
  if (options.query_positions == nullptr && options.key_positions == nullptr) {
    return Status();
  }
  return Status::Error(StatusCode::kInvalidArgument,
                       "MultiHeadAttention: query_positions or key_positions "
                       "are given, but no rotary; they are positions to turn "
                       "to, masks go by query_offsets");
}

Status CheckRollingRows(size_t rows, const LayerOptions& options) {
  const bool looks_ahead =
      options.causal == Causal::kNone && options.window_right != 0;
  if (options.cache->config().window == 0 || !looks_ahead ||
      rows <= kMaxRollingQueries) {
    return Status();
  }
  return Status::Error(
      StatusCode::kInvalidArgument,
      "MultiHeadAttention: %zu rows at once that see what follows them, which "
      "a rolling cache serves for %zu; use Causal::kStart or window_right 0, "
      "or call it in pieces",
      rows, kMaxRollingQueries);
}

size_t KeyLength(size_t query_length, size_t key_length,
                 const LayerOptions& options) {
  const KvCache* cache = options.cache;
  if (cache == nullptr) return key_length;
  size_t longest = 0;
  for (size_t b = 0; b < cache->config().batch; ++b) {
    const size_t count = options.query_lengths == nullptr
                             ? query_length
                             : static_cast<size_t>(options.query_lengths[b]);
    longest = std::max(longest, cache->length(b) + count);
  }
  return longest;
}

}  // namespace headwise
