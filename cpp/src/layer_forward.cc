// A forward pass: project, turn, (append,) attend, project. Orchestration only.
#include <algorithm>
#include <cstring>

#include "arena.h"
#include "attention_checks.h"
#include "attention_core.h"
#include "cached_attention.h"
#include "extra_keys.h"
#include "headwise/multi_head_attention.h"
#include "kernels/kernels.h"
#include "layer_projection.h"
#include "product.h"
#include "rotary_checks.h"
#include "view_checks.h"

namespace headwise {
namespace {

using InHeads = HeadsView<const float>;

struct Scratch {
  Projected projected;
  float* context;  // [B, L, H * Dv]
  float* product;
  CachePositions positions;
  int32_t* counts;  // [B]: rows of a block that are appended
};

Scratch TakeScratch(const Config& c, size_t batch, size_t query_length,
                    size_t key_length, Arena* arena) {
  const size_t query_rows = SaturatingMul(batch, query_length);
  const size_t key_rows = SaturatingMul(batch, key_length);
  const size_t context_width = c.num_heads * c.v_head_dim;
  Scratch s;
  s.projected.query =
      arena->Take<float>(SaturatingMul(query_rows, c.num_heads * c.head_dim));
  s.projected.key =
      arena->Take<float>(SaturatingMul(key_rows, c.num_kv_heads * c.head_dim));
  s.projected.value = arena->Take<float>(
      SaturatingMul(key_rows, c.num_kv_heads * c.v_head_dim));
  s.context = arena->Take<float>(SaturatingMul(query_rows, context_width));
  // Every product uses the same room, so it fits the largest.
  size_t depth = context_width;
  for (size_t width : {c.embed_dim, c.k_dim, c.v_dim}) {
    if (width > depth) depth = width;
  }
  s.product = TakeProductScratch(query_rows > key_rows ? query_rows : key_rows,
                                 depth, arena);
  s.positions = TakeCachePositions(batch, arena);
  s.counts = arena->Take<int32_t>(batch);
  return s;
}

Status CheckWidth(const char* name, size_t got, size_t want) {
  if (got == want) return Status();
  return Status::Error(StatusCode::kShapeMismatch,
                       "MultiHeadAttention: %s has %zu columns, this layer "
                       "needs %zu",
                       name, got, want);
}

Status CheckForward(const Config& c, const TensorView<const float>& query,
                    const TensorView<const float>& key,
                    const TensorView<const float>& value,
                    const TensorView<float>& output) {
  HEADWISE_RETURN_IF_ERROR(CheckWidth("query", query.cols, c.embed_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("key", key.cols, c.k_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("value", value.cols, c.v_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("output", output.cols, c.out_dim));
  if (key.batch != query.batch || value.batch != query.batch ||
      output.batch != query.batch || key.rows != value.rows ||
      output.rows != query.rows) {
    return Status::Error(
        StatusCode::kShapeMismatch,
        "MultiHeadAttention: query [%zu, %zu], key [%zu, %zu], value [%zu, "
        "%zu], output [%zu, %zu] (batch, rows); batches must be equal, key and "
        "value rows too, output rows those of the query",
        query.batch, query.rows, key.batch, key.rows, value.batch, value.rows,
        output.batch, output.rows);
  }
  const char* call = "MultiHeadAttention";
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "query", query));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "key", key));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "value", value));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "output", output));
  return CheckDisjoint(call, "output", output);
}

Status CheckCache(const Config& c, const TensorView<const float>& query,
                  const TensorView<const float>& key,
                  const LayerOptions& options, const ForwardOutputs& outputs) {
  const KvCache& cache = *options.cache;
  const KvCacheConfig& k = cache.config();
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
  HEADWISE_RETURN_IF_ERROR(CheckCachedOptions(
      cache, options, outputs.weights_kind, outputs.scores_kind));
  return cache.CheckRoom(query.rows, options.query_lengths);
}

// What the attention will see: the keys of the call, or those of the cache
// with the call's among them.
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

// The rows of one sequence turn by positions that start with it.
Status TurnPacked(const RotaryConfig& rotary, const int32_t* offsets,
                  const int32_t* cumulative, size_t sequences,
                  const HeadsView<float>& x) {
  for (size_t n = 0; n < sequences; ++n) {
    HeadsView<float> own = x;
    own.data += static_cast<size_t>(cumulative[n]) * x.row_stride;
    own.rows = static_cast<size_t>(cumulative[n + 1] - cumulative[n]);
    RotaryPositions positions;
    if (offsets != nullptr) positions.offsets = offsets + n;
    HEADWISE_RETURN_IF_ERROR(RotaryEmbedding(rotary, positions, own));
  }
  return Status();
}

Status Turn(const RotaryConfig& rotary, const int32_t* given,
            const int32_t* offsets, const int32_t* cumulative, size_t sequences,
            const HeadsView<float>& x) {
  if (given == nullptr && cumulative != nullptr) {
    return TurnPacked(rotary, offsets, cumulative, sequences, x);
  }
  RotaryPositions positions;
  positions.positions = given;
  if (given == nullptr) positions.offsets = offsets;
  return RotaryEmbedding(rotary, positions, x);
}

// Normalises and turns what was projected.
Status ShapeProjected(const LayerOptions& options, const int32_t* offsets,
                      const HeadsView<float>& query,
                      const HeadsView<float>& key) {
  if (options.qk_norm != nullptr) {
    const QkNorm& norm = *options.qk_norm;
    NormaliseRows(norm.query_weight, norm.epsilon, query);
    NormaliseRows(norm.key_weight, norm.epsilon, key);
  }
  if (options.rotary == nullptr) return Status();
  const RotaryConfig& rotary = *options.rotary;
  const size_t sequences = options.packed_sequences;
  HEADWISE_RETURN_IF_ERROR(Turn(rotary, options.query_positions, offsets,
                                options.cumulative_query_lengths, sequences,
                                query));
  // Keys of a cache's call stand where its queries do.
  return Turn(rotary, options.key_positions,
              options.cache != nullptr ? offsets : nullptr,
              options.cumulative_key_lengths, sequences, key);
}

AttentionOutputs CoreOutputs(const Config& c, const ForwardOutputs& outputs,
                             float* context) {
  AttentionOutputs core;
  core.output =
      HeadsView<float>::HeadsLast(context, outputs.output.batch, c.num_heads,
                                  outputs.output.rows, c.v_head_dim);
  core.weights_kind = outputs.weights_kind;
  core.weights = outputs.weights;
  core.lse = outputs.lse;
  core.row_max = outputs.row_max;
  core.scores_kind = outputs.scores_kind;
  core.scores = outputs.scores;
  return core;
}

InHeads Rows(const InHeads& all, size_t begin, size_t end) {
  InHeads part = all;
  part.data += begin * all.row_stride;
  part.rows = end - begin;
  return part;
}

// Appends and attends. A rolling cache takes a block of rows at a time, so
// that no query misses keys that later rows push out.
Status AttendCached(const InHeads& query, const InHeads& key,
                    const InHeads& value, const AttentionSizes& sizes,
                    const AttentionOptions& options, KvCache* cache,
                    const AttentionOutputs& outputs, const Scratch& scratch,
                    const Arena& arena) {
  const bool rolling = cache->config().window != 0;
  const size_t step = rolling ? kernels::kQueryBlock : query.rows;
  const AttentionOptions own =
      CachedOptions(*cache, options, scratch.positions);
  for (size_t row = 0; row < query.rows; row += step) {
    const size_t end = std::min(row + step, query.rows);
    for (size_t b = 0; b < sizes.batch; ++b) {
      const size_t count = options.query_lengths == nullptr
                               ? query.rows
                               : static_cast<size_t>(options.query_lengths[b]);
      scratch.counts[b] =
          static_cast<int32_t>(std::min(end, std::max(count, row)) - row);
    }
    HEADWISE_RETURN_IF_ERROR(cache->Append(
        Rows(key, row, end), Rows(value, row, end), scratch.counts));
    ReadLengths(*cache, scratch.positions.lengths);
    Arena block = arena;
    Attend(query, CachedSource(*cache), sizes, own, outputs, {row, end},
           &block);
  }
  return Status();
}

}  // namespace

Status MultiHeadAttention::Reserve(size_t batch, size_t query_length,
                                   size_t key_length, Workspace* workspace,
                                   const KvCache* cache) const {
  HEADWISE_RETURN_IF_ERROR(
      CheckPointer("MultiHeadAttention", "workspace", workspace));
  Arena counter;
  TakeScratch(config_, batch, query_length, key_length, &counter);
  size_t rows = key_length;
  if (cache != nullptr) {
    rows =
        CachedRows(*cache) + (cache->config().window == 0 ? query_length : 0);
  }
  TakeAttentionScratch(query_length, rows, config_.head_dim, config_.v_head_dim,
                       extra_ ? extra_->rows : 0, &counter);
  return workspace->Reserve(counter.used());
}

Status MultiHeadAttention::Forward(const TensorView<const float>& query,
                                   const TensorView<const float>& key,
                                   const TensorView<const float>& value,
                                   const LayerOptions& options,
                                   const ForwardOutputs& outputs,
                                   Workspace* workspace) const {
  const Config& c = config_;
  const size_t batch = query.batch;
  HEADWISE_RETURN_IF_ERROR(
      CheckPointer("MultiHeadAttention", "workspace", workspace));
  HEADWISE_RETURN_IF_ERROR(CheckForward(c, query, key, value, outputs.output));
  HEADWISE_RETURN_IF_ERROR(CheckPacking(projections_.query->packed()));
  if (options.extra_key.rows != 0) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "MultiHeadAttention: extra_key belongs to the "
                         "functional core; use add_bias_kv");
  }
  if (options.cache != nullptr) {
    HEADWISE_RETURN_IF_ERROR(CheckCache(c, query, key, options, outputs));
  }
  const AttentionSizes sizes = {batch, c.num_heads, c.num_kv_heads, query.rows,
                                KeyLength(query.rows, key.rows, options)};
  HEADWISE_RETURN_IF_ERROR(CheckOptions(sizes, options));
  HEADWISE_RETURN_IF_ERROR(
      CheckWeights(sizes, outputs.weights_kind, outputs.weights));
  HEADWISE_RETURN_IF_ERROR(
      CheckScores(sizes, outputs.scores_kind, outputs.scores));
  if (options.rotary != nullptr) {
    HEADWISE_RETURN_IF_ERROR(CheckRotary(*options.rotary, c.head_dim));
  }
  HEADWISE_RETURN_IF_ERROR(
      Reserve(batch, query.rows, key.rows, workspace, options.cache));

  Arena arena(workspace->data());
  const Scratch scratch = TakeScratch(c, batch, query.rows, key.rows, &arena);
  const int32_t* offsets = options.query_offsets;
  if (options.cache != nullptr) {
    ReadLengths(*options.cache, scratch.positions.offsets);
    offsets = scratch.positions.offsets;
    AttentionOptions placed = options;
    placed.query_offsets = offsets;
    placed.causal = Causal::kNone;
    HEADWISE_RETURN_IF_ERROR(CheckBlockMask(sizes, placed));
  } else {
    HEADWISE_RETURN_IF_ERROR(CheckBlockMask(sizes, options));
  }
  ProjectInputs(projections_, query, key, value, scratch.projected,
                scratch.product);
  const HeadsView<float> q = HeadsView<float>::HeadsLast(
      scratch.projected.query, batch, c.num_heads, query.rows, c.head_dim);
  const HeadsView<float> k = HeadsView<float>::HeadsLast(
      scratch.projected.key, batch, c.num_kv_heads, key.rows, c.head_dim);
  HEADWISE_RETURN_IF_ERROR(ShapeProjected(options, offsets, q, k));

  AttentionOptions core = options;
  if (!options.scale.has_value()) core.scale = c.scale;
  if (extra_ != nullptr) {
    core.extra_key = InHeads::HeadsLast(extra_->key.data(), 1, c.num_kv_heads,
                                        extra_->rows, c.head_dim);
    core.extra_value = InHeads::HeadsLast(
        extra_->value.data(), 1, c.num_kv_heads, extra_->rows, c.v_head_dim);
  }
  const AttentionOutputs core_outputs =
      CoreOutputs(c, outputs, scratch.context);
  const InHeads q_in =
      InHeads::HeadsLast(q.data, batch, c.num_heads, query.rows, c.head_dim);
  const InHeads k_in =
      InHeads::HeadsLast(k.data, batch, c.num_kv_heads, key.rows, c.head_dim);
  const InHeads v_in = InHeads::HeadsLast(
      scratch.projected.value, batch, c.num_kv_heads, key.rows, c.v_head_dim);
  if (options.cache != nullptr) {
    HEADWISE_RETURN_IF_ERROR(AttendCached(q_in, k_in, v_in, sizes, core,
                                          options.cache, core_outputs, scratch,
                                          arena));
  } else {
    KeySource source;
    source.key = &k_in;
    source.value = &v_in;
    Attend(q_in, source, sizes, core, core_outputs, {0, query.rows}, &arena);
  }

  const size_t width = c.num_heads * c.v_head_dim;
  const size_t count = batch * query.rows * width;
  if (options.output_gate != nullptr) {
    for (size_t i = 0; i < count; ++i) {
      scratch.context[i] *= options.output_gate[i];
    }
  }
  if (outputs.head_outputs != nullptr) {
    std::memcpy(outputs.head_outputs, scratch.context, count * sizeof(float));
  }
  const ProductTarget target = {
      &projections_.out->packed(), outputs.output.data,
      outputs.output.batch_stride, outputs.output.row_stride};
  Product(TensorView<const float>(scratch.context, batch, query.rows, width),
          &target, 1, scratch.product);
  return Status();
}

}  // namespace headwise
