#include "headwise/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "arena.h"
#include "attention_checks.h"
#include "attention_core.h"
#include "kernels/kernels.h"
#include "parallel.h"
#include "view_checks.h"
#include "visibility.h"

namespace headwise {
namespace {

using kernels::kChunk;
using kernels::kQueryBlock;

// The call with its sizes, as the steps below pass it on.
struct Call {
  const HeadsView<const float>& query;
  const HeadsView<const float>& key;
  const HeadsView<const float>& value;
  const AttentionOptions& options;
  const AttentionOutputs& outputs;
  AttentionSizes sizes;
  float scale;
};

void PackKeysAndValues(const Call& call, const KeyRange& keys, size_t b,
                       size_t kv_head, const AttentionScratch& scratch) {
  if (keys.count == 0) return;
  kernels::PackPanels(call.key.Row(b, kv_head, keys.anchor),
                      call.key.row_stride, keys.count, call.key.cols,
                      scratch.key_panels);
  const size_t padded_v = RoundUp(call.value.cols, kernels::PanelWidth());
  for (size_t first = 0; first < keys.count; first += kChunk) {
    scratch.chunk_nonfinite[first / kChunk] = kernels::PackValues(
        call.value.Row(b, kv_head, keys.anchor + first), call.value.row_stride,
        std::min(kChunk, keys.count - first), call.value.cols,
        scratch.value_panels + first * padded_v);
  }
}

// The rows of a mask that a block of queries meets, from the anchor on.
template <typename T>
kernels::MaskRows<T> RowsOf(const MaskView<T>& mask, size_t b, size_t head,
                            size_t row, size_t anchor) {
  if (!mask.present()) return {};
  return {mask.Row(b, head, row) + anchor * mask.key_stride(),
          mask.row_stride(), mask.key_stride()};
}

// Weights of one block of rows. Keys outside the range are padding: weight 0,
// or whatever makes a NaN row NaN throughout.
void WriteWeights(const Call& call, const KeyRange& keys, size_t b, size_t head,
                  size_t row, const kernels::AttentionArgs& args) {
  const size_t key_length = call.sizes.key_length;
  const bool averaged = call.outputs.weights_kind == WeightsKind::kAveraged;
  const size_t slice = averaged ? b : b * call.sizes.heads + head;
  float* rows = call.outputs.weights +
                (slice * call.sizes.query_length + row) * key_length;
  // Heads come in rising order, so the mean adds them up in rising order.
  const bool accumulate = averaged && head != 0;
  kernels::AttentionWeights(args, rows + keys.anchor, key_length, accumulate);
  for (size_t r = 0; r < args.rows; ++r) {
    const float total = args.total[r];
    const float fill = total == 0.0f ? args.empty_value : 0.0f / total;
    float* weights = rows + r * key_length;
    for (size_t j = 0; j < key_length; ++j) {
      if (j == keys.anchor) j += keys.count;
      if (j >= key_length) break;
      weights[j] = accumulate ? weights[j] + fill : fill;
    }
    if (averaged && head + 1 == call.sizes.heads) {
      const float heads = static_cast<float>(call.sizes.heads);
      for (size_t j = 0; j < key_length; ++j) weights[j] /= heads;
    }
  }
}

void WriteLse(const Call& call, size_t b, size_t head, size_t row,
              const kernels::AttentionArgs& args) {
  float* lse = call.outputs.lse +
               (b * call.sizes.heads + head) * call.sizes.query_length + row;
  for (size_t r = 0; r < args.rows; ++r) {
    lse[r] = args.total[r] == 0.0f ? -std::numeric_limits<float>::infinity()
                                   : args.maximum[r] + std::log(args.total[r]);
  }
}

// Query rows [row, row + rows) of one head.
void AttendBlock(const Call& call, const KeyRange& keys, size_t b, size_t head,
                 size_t row, size_t rows, const AttentionScratch& scratch) {
  const AttentionOptions& options = call.options;
  // Shrinking comes before the product and enlarging after it, so that nothing
  // overflows on the way to a score that does not.
  const bool enlarges = std::fabs(call.scale) > 1.0f;
  kernels::PackTiles(call.query.Row(b, head, row), call.query.row_stride, rows,
                     call.query.cols, enlarges ? 1.0f : call.scale,
                     scratch.query_tiles);
  for (size_t r = 0; r < rows; ++r) {
    VisibleKeys(options, call.sizes, keys, b, row + r, &scratch.begin[r],
                &scratch.end[r]);
  }
  kernels::AttentionArgs args;
  args.key_count = keys.count;
  args.key_panels = scratch.key_panels;
  args.value_panels = scratch.value_panels;
  args.chunk_nonfinite = scratch.chunk_nonfinite;
  args.head_dim = call.query.cols;
  args.v_head_dim = call.value.cols;
  args.query_tiles = scratch.query_tiles;
  args.score_factor = enlarges ? call.scale : 1.0f;
  args.rows = rows;
  args.begin = scratch.begin;
  args.end = scratch.end;
  args.attend = RowsOf(options.attend_mask, b, head, row, keys.anchor);
  args.bias = RowsOf(options.attn_bias, b, head, row, keys.anchor);
  if (keys.holes) {
    args.padding = {
        options.key_padding_mask + b * call.sizes.key_length + keys.anchor, 0,
        1};
  }
  args.scores = scratch.scores;
  args.sums = scratch.sums;
  args.maximum = scratch.maximum;
  args.total = scratch.total;
  args.output = call.outputs.output.Row(b, head, row);
  args.output_stride = call.outputs.output.row_stride;
  args.empty_value = options.empty_rows == EmptyRows::kNan
                         ? std::numeric_limits<float>::quiet_NaN()
                         : 0.0f;
  kernels::Attend(args);
  if (call.outputs.weights_kind != WeightsKind::kNone) {
    WriteWeights(call, keys, b, head, row, args);
  }
  if (call.outputs.lse != nullptr) WriteLse(call, b, head, row, args);
}

Status CheckShapes(const HeadsView<const float>& query,
                   const HeadsView<const float>& key,
                   const HeadsView<const float>& value,
                   const HeadsView<float>& output) {
  if (key.batch != query.batch || value.batch != query.batch ||
      output.batch != query.batch) {
    return Status::Error(
        StatusCode::kShapeMismatch,
        "attention: batch sizes differ: query %zu, key %zu, value %zu, output "
        "%zu",
        query.batch, key.batch, value.batch, output.batch);
  }
  if (key.rows != value.rows) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "attention: %zu keys but %zu values; each key needs "
                         "one value",
                         key.rows, value.rows);
  }
  if (query.cols != key.cols) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "attention: query head size %zu differs from key head "
                         "size %zu",
                         query.cols, key.cols);
  }
  if (key.heads != value.heads || key.heads == 0 || query.heads == 0 ||
      query.heads % key.heads != 0) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "attention: %zu query heads, %zu key heads, %zu value "
                         "heads; keys and values must have the same number, "
                         "and the queries a multiple of it",
                         query.heads, key.heads, value.heads);
  }
  if (output.heads != query.heads || output.rows != query.rows ||
      output.cols != value.cols) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "attention: output heads, rows, columns [%zu, %zu, "
                         "%zu] must be [%zu, %zu, %zu]",
                         output.heads, output.rows, output.cols, query.heads,
                         query.rows, value.cols);
  }
  return Status();
}

}  // namespace

AttentionScratch TakeAttentionScratch(size_t query_length, size_t key_length,
                                      size_t head_dim, size_t v_head_dim,
                                      Arena* arena) {
  const size_t width = kernels::PanelWidth();
  const size_t rows =
      RoundUp(std::min(query_length, kQueryBlock), kernels::kTileRows);
  const size_t padded_v = RoundUp(v_head_dim, width);
  AttentionScratch s;
  s.key_panels =
      arena->Take<float>(SaturatingMul(RoundUp(key_length, width), head_dim));
  s.value_panels = arena->Take<float>(SaturatingMul(key_length, padded_v));
  s.chunk_nonfinite = arena->Take<uint8_t>(CeilDiv(key_length, kChunk));
  s.query_tiles = arena->Take<float>(SaturatingMul(rows, head_dim));
  s.scores = arena->Take<float>(kernels::kTileRows * kChunk);
  s.sums = arena->Take<float>(SaturatingMul(rows, padded_v));
  s.maximum = arena->Take<float>(rows);
  s.total = arena->Take<float>(rows);
  s.begin = arena->Take<size_t>(rows);
  s.end = arena->Take<size_t>(rows);
  return s;
}

void Attend(const HeadsView<const float>& query,
            const HeadsView<const float>& key,
            const HeadsView<const float>& value,
            const AttentionOptions& options, const AttentionOutputs& outputs,
            Arena* arena) {
  const AttentionScratch scratch =
      TakeAttentionScratch(query.rows, key.rows, query.cols, value.cols, arena);
  const AttentionSizes sizes = {query.batch, query.heads, key.heads, query.rows,
                                key.rows};
  // The product over no elements is 0; a scale of infinity would make it NaN.
  const float default_scale =
      query.cols == 0 ? 1.0f : 1.0f / std::sqrt(static_cast<float>(query.cols));
  const Call call = {query,
                     key,
                     value,
                     options,
                     outputs,
                     sizes,
                     options.scale.value_or(default_scale)};
  const size_t group = query.heads / key.heads;
  ParallelFor(query.batch * key.heads, [&](size_t task) {
    const size_t b = task / key.heads;
    const size_t kv_head = task % key.heads;
    const KeyRange keys = FindKeyRange(options, b, key.rows);
    PackKeysAndValues(call, keys, b, kv_head, scratch);
    for (size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (size_t row = 0; row < query.rows; row += kQueryBlock) {
        AttendBlock(call, keys, b, head, row,
                    std::min(kQueryBlock, query.rows - row), scratch);
      }
    }
  });
}

size_t AttentionWorkspaceBytes(size_t query_length, size_t key_length,
                               size_t head_dim, size_t v_head_dim) {
  Arena counter;
  TakeAttentionScratch(query_length, key_length, head_dim, v_head_dim,
                       &counter);
  return counter.used();
}

Status ScaledDotProductAttention(const HeadsView<const float>& query,
                                 const HeadsView<const float>& key,
                                 const HeadsView<const float>& value,
                                 const AttentionOptions& options,
                                 const AttentionOutputs& outputs,
                                 Workspace* workspace) {
  HEADWISE_RETURN_IF_ERROR(CheckPointer("attention", "workspace", workspace));
  HEADWISE_RETURN_IF_ERROR(CheckShapes(query, key, value, outputs.output));
  HEADWISE_RETURN_IF_ERROR(CheckData("attention", "query", query));
  HEADWISE_RETURN_IF_ERROR(CheckData("attention", "key", key));
  HEADWISE_RETURN_IF_ERROR(CheckData("attention", "value", value));
  HEADWISE_RETURN_IF_ERROR(CheckData("attention", "output", outputs.output));
  HEADWISE_RETURN_IF_ERROR(
      CheckDisjoint("attention", "output", outputs.output));
  const AttentionSizes sizes = {query.batch, query.heads, key.heads, query.rows,
                                key.rows};
  HEADWISE_RETURN_IF_ERROR(CheckOptions(sizes, options));
  HEADWISE_RETURN_IF_ERROR(
      CheckWeights(sizes, outputs.weights_kind, outputs.weights));
  HEADWISE_RETURN_IF_ERROR(workspace->Reserve(
      AttentionWorkspaceBytes(query.rows, key.rows, query.cols, value.cols)));
  Arena arena(workspace->data());
  Attend(query, key, value, options, outputs, &arena);
  return Status();
}

}  // namespace headwise
