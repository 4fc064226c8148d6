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
#include "layer_checks.h"
#include "layer_projection.h"
#include "product.h"
#include "view_checks.h"

namespace headwise {
namespace {

using InHeads = HeadsView<const float>;

struct Scratch {
  ProjectionScratch projection;
  float* context;   // [B, L, H * Dv]
  int32_t* counts;  // [B]: rows of a block that are appended
};

Scratch TakeScratch(const Config& c, size_t batch, size_t query_length,
                    size_t key_length, Arena* arena) {
  Scratch s;
  s.projection =
      TakeProjectionScratch(c, batch, query_length, key_length, arena);
  s.context = arena->Take<float>(SaturatingMul(
      SaturatingMul(batch, query_length), c.num_heads * c.v_head_dim));
  s.counts = arena->Take<int32_t>(batch);
  return s;
}

// `positions` is scratch.
Status CheckMaskPositions(const AttentionSizes& sizes,
                          const LayerOptions& options,
                          const CachePositions& positions) {
  const KvCache* cache = options.cache;
  if (cache == nullptr) return CheckBlockMask(sizes, options);
  // Where the queries and keys will stand.
  ReadLengths(*cache, positions.offsets);
  for (size_t b = 0; b < sizes.batch; ++b) {
    positions.lengths[b] =
        positions.offsets[b] + (options.query_lengths == nullptr
                                    ? static_cast<int32_t>(sizes.query_length)
                                    : options.query_lengths[b]);
  }
  return CheckBlockMask(sizes, CachedOptions(*cache, options, positions));
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

// CheckRollingRows counts on it.
static_assert(kMaxRollingQueries == kernels::kQueryBlock,
              "a call that sees what follows must fit into one block");

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
      CachedOptions(*cache, options, scratch.projection.positions);
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
    ReadLengths(*cache, scratch.projection.positions.lengths);
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
  HEADWISE_RETURN_IF_ERROR(CheckInputs(c, query, key, &value));
  HEADWISE_RETURN_IF_ERROR(CheckOutput(c, query, outputs.output));
  HEADWISE_RETURN_IF_ERROR(CheckPacking(projections_.query->packed()));
  if (options.extra_key.rows != 0 || options.extra_value.rows != 0) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "MultiHeadAttention: extra_key belongs to the "
                         "functional core; use add_bias_kv");
  }
  if (options.cache != nullptr) {
    HEADWISE_RETURN_IF_ERROR(CheckCache(c, query, key, options));
    HEADWISE_RETURN_IF_ERROR(CheckCachedOptions(
        *options.cache, options, outputs.weights_kind, outputs.scores_kind));
    HEADWISE_RETURN_IF_ERROR(CheckRollingRows(query.rows, options));
    HEADWISE_RETURN_IF_ERROR(
        options.cache->CheckRoom(query.rows, options.query_lengths));
  }
  const AttentionSizes sizes = {batch, c.num_heads, c.num_kv_heads, query.rows,
                                KeyLength(query.rows, key.rows, options)};
  const size_t extra_keys = extra_ == nullptr ? 0 : extra_->rows;
  HEADWISE_RETURN_IF_ERROR(CheckOptions(sizes, options));
  HEADWISE_RETURN_IF_ERROR(
      CheckWeights(sizes, extra_keys, outputs.weights_kind, outputs.weights));
  HEADWISE_RETURN_IF_ERROR(
      CheckScores(sizes, extra_keys, outputs.scores_kind, outputs.scores));
  HEADWISE_RETURN_IF_ERROR(CheckTurns(c, options));
  HEADWISE_RETURN_IF_ERROR(
      Reserve(batch, query.rows, key.rows, workspace, options.cache));

  Arena arena(workspace->data());
  const Scratch scratch = TakeScratch(c, batch, query.rows, key.rows, &arena);
  HEADWISE_RETURN_IF_ERROR(
      CheckMaskPositions(sizes, options, scratch.projection.positions));
  const Projected& heads = scratch.projection.projected;
  HEADWISE_RETURN_IF_ERROR(ProjectIntoHeads(c, projections_, query, key, &value,
                                            options, scratch.projection));

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
  const InHeads q = InHeads::HeadsLast(heads.query, batch, c.num_heads,
                                       query.rows, c.head_dim);
  const InHeads k = InHeads::HeadsLast(heads.key, batch, c.num_kv_heads,
                                       key.rows, c.head_dim);
  const InHeads v = InHeads::HeadsLast(heads.value, batch, c.num_kv_heads,
                                       key.rows, c.v_head_dim);
  if (options.cache != nullptr) {
    HEADWISE_RETURN_IF_ERROR(AttendCached(q, k, v, sizes, core, options.cache,
                                          core_outputs, scratch, arena));
  } else {
    KeySource source;
    source.key = &k;
    source.value = &v;
    Attend(q, source, sizes, core, core_outputs, {0, query.rows}, &arena);
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
          &target, 1, scratch.projection.product);
  return Status();
}

}  // namespace headwise
