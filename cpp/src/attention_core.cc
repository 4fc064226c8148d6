#include "attention_core.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kernels.h"
#include "memory.h"
#include "parallel.h"
#include "visibility.h"

namespace headwise {
namespace {

using kernels::kChunk;
using kernels::kQueryBlock;

// The call with its sizes, as the steps below pass it on.
struct Call {
  const HeadsView<const float>& query;
  const KeySource& source;
  const AttentionOptions& options;
  const AttentionOutputs& outputs;
  AttentionSizes sizes;
  RowRange rows;
  float scale;

  // Columns of a row of weights or scores.
  size_t columns() const { return sizes.key_length + options.extra_key.rows; }
  // The first of `row`s values in an array [B, H, L, width].
  size_t RowStart(size_t b, size_t head, size_t row, size_t width) const {
    return ((b * sizes.heads + head) * sizes.query_length + row) * width;
  }
};

// The product over no elements is 0; a scale of infinity would make it NaN.
float ScaleOf(const AttentionOptions& options, size_t head_dim) {
  if (options.scale.has_value()) return *options.scale;
  return head_dim == 0 ? 1.0f : 1.0f / std::sqrt(static_cast<float>(head_dim));
}

// The rows of a mask that a block of queries meets.
template <typename T>
kernels::MaskRows<T> RowsOf(const MaskView<T>& mask, size_t b, size_t head,
                            size_t row) {
  if (!mask.present()) return {};
  return {mask.Row(b, head, row), mask.row_stride(), mask.key_stride()};
}

// Packs the queries of rows [row, row + rows) of one head and describes the
// block to the kernels. Positions count from the anchor of `keys`, which for
// scores at every key is not that of `visible`, the keys that are no padding.
kernels::AttentionArgs DescribeBlock(const Call& call, const KeyRange& keys,
                                     const KeyRange& visible, size_t b,
                                     size_t head, size_t row, size_t rows,
                                     const AttentionScratch& scratch) {
  const AttentionOptions& options = call.options;
  // Shrinking comes before the product and enlarging after it, so that nothing
  // overflows on the way to a score that does not.
  const bool enlarges = std::fabs(call.scale) > 1.0f;
  kernels::PackTiles(call.query.Row(b, head, row), call.query.row_stride, rows,
                     call.query.cols, enlarges ? 1.0f : call.scale,
                     scratch.query_tiles);
  const size_t shift = visible.anchor - keys.anchor;
  for (size_t r = 0; r < rows; ++r) {
    VisibleKeys(options, call.sizes, visible, b, row + r, &scratch.begin[r],
                &scratch.end[r]);
    // A rolling cache keeps its first tokens in sight.
    scratch.lead[r] = std::min(call.source.lead, scratch.end[r]);
    scratch.begin[r] += shift;
    scratch.end[r] += shift;
  }
  kernels::AttentionArgs args;
  args.chunks = scratch.keys.chunks;
  args.chunk_count = scratch.keys.chunk_count;
  args.columns = call.sizes.key_length;
  args.head_dim = call.query.cols;
  args.v_head_dim = call.outputs.output.cols;
  args.query_tiles = scratch.query_tiles;
  args.score_factor = enlarges ? call.scale : 1.0f;
  args.rows = rows;
  args.seeing_rows = rows;
  if (options.query_lengths != nullptr) {
    const size_t length = static_cast<size_t>(options.query_lengths[b]);
    args.seeing_rows = std::min(rows, length > row ? length - row : 0);
  }
  args.lead = scratch.lead;
  args.begin = scratch.begin;
  args.end = scratch.end;
  args.softcap = options.softcap;
  if (options.alibi_slopes != nullptr) {
    args.alibi_slope = options.alibi_slopes[head];
    args.first_position =
        static_cast<float>(QueryPosition(options, call.sizes, b, row) -
                           static_cast<int64_t>(keys.anchor));
  }
  if (options.sinks != nullptr) args.sink = options.sinks[head];
  if (options.head_gates != nullptr) args.gate = options.head_gates[head];
  args.attend = RowsOf(options.attend_mask, b, head, row);
  args.bias = RowsOf(options.attn_bias, b, head, row);
  if (keys.holes) {
    args.padding = {options.key_padding_mask + b * call.sizes.key_length, 0, 1};
  }
  args.scores = scratch.scores;
  args.sums = scratch.sums;
  args.maximum = scratch.maximum;
  args.total = scratch.total;
  if (call.outputs.output.data != nullptr) {
    args.output = call.outputs.output.Row(b, head, row);
  }
  args.output_stride = call.outputs.output.row_stride;
  args.empty_value = options.empty_rows == EmptyRows::kNan
                         ? std::numeric_limits<float>::quiet_NaN()
                         : 0.0f;
  return args;
}

// Weights of one block of rows. Keys outside the range are padding: weight 0,
// or whatever makes a NaN row NaN throughout.
void WriteWeights(const Call& call, const KeyRange& keys, size_t b, size_t head,
                  size_t row, const kernels::AttentionArgs& args) {
  const size_t columns = call.columns();
  const size_t key_length = call.sizes.key_length;
  const bool averaged = call.outputs.weights_kind == WeightsKind::kAveraged;
  float* rows = call.outputs.weights +
                (averaged ? (b * call.sizes.query_length + row) * columns
                          : call.RowStart(b, head, row, columns));
  // Heads come in rising order, so the mean adds them up in rising order.
  const bool accumulate = averaged && head != 0;
  kernels::AttentionWeights(args, rows, columns, accumulate);
  for (size_t r = 0; r < args.rows; ++r) {
    const float total = args.total[r];
    const float fill = total == 0.0f ? args.empty_value : 0.0f / total;
    float* weights = rows + r * columns;
    for (size_t j = 0; j < key_length; ++j) {
      if (j == keys.anchor) j += keys.count;
      if (j >= key_length) break;
      weights[j] = accumulate ? weights[j] + fill : fill;
    }
    if (averaged && head + 1 == call.sizes.heads) {
      const float heads = static_cast<float>(call.sizes.heads);
      for (size_t j = 0; j < columns; ++j) weights[j] /= heads;
    }
  }
}

// Log-sum-exp and maximum, where asked for.
void WriteStatistics(const Call& call, size_t b, size_t head, size_t row,
                     const kernels::AttentionArgs& args) {
  const size_t first = call.RowStart(b, head, row, 1);
  for (size_t r = 0; r < args.rows; ++r) {
    const bool empty = args.total[r] == 0.0f;
    if (call.outputs.lse != nullptr) {
      call.outputs.lse[first + r] =
          empty ? -std::numeric_limits<float>::infinity()
                : args.maximum[r] + std::log(args.total[r]);
    }
    if (call.outputs.row_max != nullptr) {
      // Which of NaN and the others a vector maximum keeps is the machine's
      // whim.
      call.outputs.row_max[first + r] =
          std::isnan(args.total[r]) ? args.total[r] : args.maximum[r];
    }
  }
}

// Calls body(head, first row, rows) for the blocks of the query heads that
// share one key/value head.
template <typename Body>
void ForEachBlock(const Call& call, size_t kv_head, const Body& body) {
  const size_t group = call.sizes.heads / call.sizes.kv_heads;
  for (size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (size_t row = call.rows.begin; row < call.rows.end;
         row += kQueryBlock) {
      body(head, row, std::min(kQueryBlock, call.rows.end - row));
    }
  }
}

// Output, and what else is asked for, of one key/value head's query heads.
void AttendHeads(const Call& call, size_t b, size_t kv_head,
                 AttentionScratch* scratch) {
  const KeyRange keys = FindKeyRange(call.options, b, call.sizes.key_length);
  if (call.source.cache != nullptr) {
    PackCachedKeys(*call.source.cache, b, kv_head, &scratch->keys);
  } else {
    PackKeys(*call.source.key, call.source.value, b, kv_head, keys.anchor,
             keys.count, &scratch->keys);
  }
  PackExtraKeys(call.options.extra_key, call.options.extra_value, b, kv_head,
                call.sizes.key_length, &scratch->keys);
  ForEachBlock(call, kv_head, [&](size_t head, size_t row, size_t rows) {
    const kernels::AttentionArgs args =
        DescribeBlock(call, keys, keys, b, head, row, rows, *scratch);
    kernels::Attend(args);
    if (call.outputs.weights_kind != WeightsKind::kNone) {
      WriteWeights(call, keys, b, head, row, args);
    }
    WriteStatistics(call, b, head, row, args);
  });
}

// Scores are asked for at every key, padding included.
void WriteScores(const Call& call, size_t b, size_t kv_head,
                 AttentionScratch* scratch) {
  const size_t key_length = call.sizes.key_length;
  const KeyRange visible = FindKeyRange(call.options, b, key_length);
  KeyRange all;
  all.count = key_length;
  all.holes = call.options.key_padding_mask != nullptr;
  if (call.source.cache != nullptr) {
    PackCachedKeys(*call.source.cache, b, kv_head, &scratch->keys);
  } else {
    PackKeys(*call.source.key, nullptr, b, kv_head, 0, key_length,
             &scratch->keys);
  }
  PackExtraKeys(call.options.extra_key, call.options.extra_value, b, kv_head,
                key_length, &scratch->keys);
  const auto stage = static_cast<kernels::ScoreStage>(
      static_cast<int>(call.outputs.scores_kind) -
      static_cast<int>(ScoresKind::kRaw));
  const size_t columns = call.columns();
  ForEachBlock(call, kv_head, [&](size_t head, size_t row, size_t rows) {
    kernels::AttentionScores(
        DescribeBlock(call, all, visible, b, head, row, rows, *scratch), stage,
        call.outputs.scores + call.RowStart(b, head, row, columns), columns);
    if (call.source.cache == nullptr) return;
    // Entries of a cache have lengths of their own.
    for (size_t r = 0; r < rows; ++r) {
      float* of_row =
          call.outputs.scores + call.RowStart(b, head, row + r, columns);
      std::fill(of_row + call.source.cache->length(b), of_row + key_length,
                -std::numeric_limits<float>::infinity());
    }
  });
}

}  // namespace

AttentionScratch TakeAttentionScratch(size_t query_length, size_t key_length,
                                      size_t head_dim, size_t v_head_dim,
                                      size_t extra_keys, Arena* arena) {
  const size_t rows =
      RoundUp(std::min(query_length, kQueryBlock), kernels::kTileRows);
  AttentionScratch s;
  s.keys = TakePackedKeys(key_length, head_dim, v_head_dim, extra_keys, arena);
  s.query_tiles = arena->Take<float>(SaturatingMul(rows, head_dim));
  s.scores = arena->Take<float>(kernels::kTileRows * kChunk);
  s.sums = arena->Take<float>(
      SaturatingMul(rows, RoundUp(v_head_dim, kernels::PanelWidth())));
  s.maximum = arena->Take<float>(rows);
  s.total = arena->Take<float>(rows);
  s.lead = arena->Take<size_t>(rows);
  s.begin = arena->Take<size_t>(rows);
  s.end = arena->Take<size_t>(rows);
  return s;
}

void Attend(const HeadsView<const float>& query, const KeySource& source,
            const AttentionSizes& sizes, const AttentionOptions& options,
            const AttentionOutputs& outputs, RowRange rows, Arena* arena) {
  AttentionScratch scratch =
      TakeAttentionScratch(query.rows, source.Rows(), query.cols,
                           outputs.output.cols, options.extra_key.rows, arena);
  const Call call = {query,
                     source,
                     options,
                     outputs,
                     sizes,
                     rows,
                     ScaleOf(options, query.cols)};
  ParallelFor(sizes.batch * sizes.kv_heads, [&](size_t task) {
    const size_t b = task / sizes.kv_heads;
    const size_t kv_head = task % sizes.kv_heads;
    AttendHeads(call, b, kv_head, &scratch);
    if (outputs.scores_kind != ScoresKind::kNone) {
      WriteScores(call, b, kv_head, &scratch);
    }
  });
}

void AttendTile(const HeadsView<const float>& query,
                const HeadsView<const float>& key, const AttentionSizes& sizes,
                const AttentionOptions& options,
                const AttentionTileRequest& request, float* tile,
                Arena* arena) {
  const size_t keys = request.key_end - request.key_begin;
  AttentionScratch scratch = TakeAttentionScratch(
      request.row_end - request.row_begin, keys, query.cols, 0, 0, arena);
  AttentionOutputs nothing;
  nothing.output = HeadsView<float>::HeadsFirst(nullptr, 0, 0, 0, 0);
  KeySource source;
  source.key = &key;
  const Call call = {query,
                     source,
                     options,
                     nothing,
                     sizes,
                     {request.row_begin, request.row_end},
                     ScaleOf(options, query.cols)};
  const size_t b = request.batch_entry;
  const KeyRange visible = FindKeyRange(options, b, sizes.key_length);
  KeyRange all;
  all.count = sizes.key_length;
  all.holes = options.key_padding_mask != nullptr;
  const size_t group = sizes.heads / sizes.kv_heads;
  PackKeys(key, nullptr, b, request.head / group, request.key_begin, keys,
           &scratch.keys);
  // Packed from key_begin on, but standing where they stand.
  for (size_t c = 0; c < scratch.keys.chunk_count; ++c) {
    scratch.keys.chunks[c].first += request.key_begin;
  }
  for (size_t row = request.row_begin; row < request.row_end;
       row += kQueryBlock) {
    const size_t rows = std::min(kQueryBlock, request.row_end - row);
    kernels::AttentionArgs args =
        DescribeBlock(call, all, visible, b, request.head, row, rows, scratch);
    args.first_column = request.key_begin;
    float* to = tile + (row - request.row_begin) * keys;
    if (request.kind != TileKind::kWeights) {
      const auto stage = static_cast<kernels::ScoreStage>(
          static_cast<int>(request.kind) - static_cast<int>(TileKind::kRaw));
      kernels::AttentionScores(args, stage, to, keys);
      continue;
    }
    const float* lse = request.lse + call.RowStart(b, request.head, row, 1);
    for (size_t r = 0; r < rows; ++r) {
      args.maximum[r] = lse[r];
      args.total[r] = std::isnan(lse[r]) ? lse[r]
                      : lse[r] == -std::numeric_limits<float>::infinity()
                          ? 0.0f
                          : 1.0f;
    }
    kernels::AttentionWeights(args, to, keys, false);
  }
}

}  // namespace headwise
