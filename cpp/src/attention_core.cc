#include "attention_core.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "block_scores.h"
#include "kernels/kernels.h"
#include "memory.h"
#include "parallel.h"
#include "sequence.h"
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

// Packs the queries of a block and describes it to the kernels. Positions count
// from the anchor of `keys`, which for scores at every key is not that of
// `visible`, the keys that are no padding.
kernels::AttentionArgs DescribeBlock(const Call& call, const KeyRange& keys,
                                     const KeyRange& visible,
                                     const Block& block,
                                     const ScoreModCall& score_mod,
                                     const AttentionScratch& scratch) {
  const AttentionOptions& options = call.options;
  const Sequence& sequence = block.sequence;
  const size_t b = block.entry();
  const size_t head = block.head;
  const size_t row = block.view_row();
  const size_t rows = block.rows;
  // Shrinking comes before the product and enlarging after it, so that nothing
  // overflows on the way to a score that does not.
  const bool enlarges = std::fabs(call.scale) > 1.0f;
  kernels::PackTiles(call.query.Row(b, head, row), call.query.row_stride, rows,
                     call.query.cols, enlarges ? 1.0f : call.scale,
                     scratch.query_tiles);
  const size_t shift = visible.anchor - keys.anchor;
  for (size_t r = 0; r < rows; ++r) {
    VisibleKeys(options, sequence, visible, block.row + r, &scratch.begin[r],
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
    const size_t length =
        static_cast<size_t>(options.query_lengths[sequence.index]);
    args.seeing_rows =
        std::min(rows, length > block.row ? length - block.row : 0);
  }
  args.lead = scratch.lead;
  args.begin = scratch.begin;
  args.end = scratch.end;
  if (options.block_mask != nullptr) {
    FillChunkMasks(options, block, args.seeing_rows, args.chunks,
                   args.chunk_count, keys.anchor, scratch.chunk_masks);
    args.chunk_masks = scratch.chunk_masks.masks;
  }
  args.score_hook = score_mod.hook();
  args.softcap = options.softcap;
  if (options.alibi_slopes != nullptr) {
    args.alibi_slope = options.alibi_slopes[head];
    args.first_position = QueryPosition(options, sequence, block.row) -
                          static_cast<int64_t>(keys.anchor);
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

// What a weight is that no key of the row's sequence has.
float HiddenWeight(const kernels::AttentionArgs& args, size_t r) {
  return args.total[r] == 0.0f ? args.empty_value : 0.0f / args.total[r];
}

// Weights of one block of rows. Keys outside the range are padding or belong to
// another sequence: weight 0, or whatever makes a NaN row NaN throughout.
void WriteWeights(const Call& call, const KeyRange& keys, const Block& block,
                  const kernels::AttentionArgs& args) {
  const size_t b = block.entry();
  const size_t head = block.head;
  const size_t row = block.view_row();
  const size_t columns = call.columns();
  const size_t key_length = call.sizes.key_length;
  const size_t first = block.sequence.key_begin + keys.anchor;
  const bool averaged = call.outputs.weights_kind == WeightsKind::kAveraged;
  float* rows = call.outputs.weights +
                (averaged ? (b * call.sizes.query_length + row) * columns
                          : call.RowStart(b, head, row, columns));
  // Heads come in rising order, so the mean adds them up in rising order.
  const bool accumulate = averaged && head != 0;
  kernels::AttentionWeights(args, rows, columns, accumulate);
  for (size_t r = 0; r < args.rows; ++r) {
    const float fill = HiddenWeight(args, r);
    float* weights = rows + r * columns;
    for (size_t j = 0; j < key_length; ++j) {
      if (j == first) j += keys.count;
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
void WriteStatistics(const Call& call, const Block& block,
                     const kernels::AttentionArgs& args) {
  const size_t first =
      call.RowStart(block.entry(), block.head, block.view_row(), 1);
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

// `index` counted from `begin`, clamped to the `length` elements that begin
// there.
size_t FromStart(size_t index, size_t begin, size_t length) {
  return std::min(index - std::min(index, begin), length);
}

// Of the call's rows, those of a sequence, counted from its start.
RowRange RowsIn(const Call& call, const Sequence& sequence) {
  const size_t begin = sequence.query_begin;
  const size_t length = sequence.query_length;
  return {FromStart(call.rows.begin, begin, length),
          FromStart(call.rows.end, begin, length)};
}

// Calls body(block) for the blocks of one head of a sequence.
template <typename Body>
void ForEachBlock(const Call& call, const Sequence& sequence, size_t head,
                  const Body& body) {
  const RowRange rows = RowsIn(call, sequence);
  for (size_t row = rows.begin; row < rows.end; row += kQueryBlock) {
    body(Block{sequence, head, row, std::min(kQueryBlock, rows.end - row)});
  }
}

// Calls body(head) for the query heads that share one key/value head.
template <typename Body>
void ForEachHead(const Call& call, size_t kv_head, const Body& body) {
  const size_t group = call.sizes.heads / call.sizes.kv_heads;
  for (size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    body(head);
  }
}

// Packs the sequence's keys in `keys`, with their values if wanted, and the
// extra ones behind them.
void PackSequence(const Call& call, const Sequence& sequence,
                  const KeyRange& keys, size_t kv_head, bool with_values,
                  PackedKeys* packed) {
  const KeySource& source = call.source;
  if (source.cache != nullptr) {
    PackCachedKeys(*source.cache, sequence.entry, kv_head, packed);
  } else {
    PackKeys(*source.key, with_values ? source.value : nullptr, sequence.entry,
             kv_head, sequence.key_begin + keys.anchor, keys.count, packed);
  }
  PackExtraKeys(call.options.extra_key, call.options.extra_value,
                sequence.entry, kv_head, call.sizes.key_length, packed);
}

// Output, and what else is asked for, of one key/value head's query heads.
void AttendHeads(const Call& call, const Sequence& sequence, size_t kv_head,
                 AttentionScratch* scratch) {
  const KeyRange keys = FindKeyRange(call.options, call.sizes, sequence);
  PackSequence(call, sequence, keys, kv_head, true, &scratch->keys);
  ForEachHead(call, kv_head, [&](size_t head) {
    ForEachBlock(call, sequence, head, [&](const Block& block) {
      const ScoreModCall score_mod(call.options, block, keys.anchor);
      const kernels::AttentionArgs args =
          DescribeBlock(call, keys, keys, block, score_mod, *scratch);
      kernels::Attend(args);
      if (call.outputs.weights_kind != WeightsKind::kNone) {
        WriteWeights(call, keys, block, args);
      }
      WriteStatistics(call, block, args);
    });
  });
}

// All keys of a sequence, padding included.
KeyRange AllKeys(const Call& call, const Sequence& sequence) {
  KeyRange all;
  all.count = sequence.key_length;
  all.holes = call.options.key_padding_mask != nullptr;
  return all;
}

kernels::ScoreStage StageOf(int kind, int raw) {
  return static_cast<kernels::ScoreStage>(kind - raw);
}

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Scores are asked for at every key, padding included.
void WriteScores(const Call& call, const Sequence& sequence, size_t kv_head,
                 AttentionScratch* scratch) {
  const KeyRange visible = FindKeyRange(call.options, call.sizes, sequence);
  const KeyRange all = AllKeys(call, sequence);
  PackSequence(call, sequence, all, kv_head, false, &scratch->keys);
  const auto stage = StageOf(static_cast<int>(call.outputs.scores_kind),
                             static_cast<int>(ScoresKind::kRaw));
  const size_t columns = call.columns();
  // Entries of a cache have lengths of their own.
  const size_t keys = call.source.cache == nullptr
                          ? sequence.key_length
                          : call.source.cache->length(sequence.entry);
  ForEachHead(call, kv_head, [&](size_t head) {
    ForEachBlock(call, sequence, head, [&](const Block& block) {
      float* scores =
          call.outputs.scores +
          call.RowStart(block.entry(), head, block.view_row(), columns);
      const ScoreModCall score_mod(call.options, block, all.anchor);
      kernels::AttentionScores(
          DescribeBlock(call, all, visible, block, score_mod, *scratch), stage,
          scores, columns);
      for (size_t r = 0; r < block.rows; ++r) {
        float* row = scores + r * columns;
        std::fill(row, row + sequence.key_begin, kHidden);
        std::fill(row + sequence.key_begin + keys, row + call.sizes.key_length,
                  kHidden);
      }
    });
  });
}

// The part of a tile that lies in one sequence: weights, or scores.
void WriteTile(const Call& call, const Sequence& sequence,
               const AttentionTileRequest& request, float* tile,
               AttentionScratch* scratch) {
  const size_t width = request.key_end - request.key_begin;
  const KeyRange visible = FindKeyRange(call.options, call.sizes, sequence);
  const KeyRange all = AllKeys(call, sequence);
  // Keys asked for, counted from the sequence's first.
  const size_t key_begin =
      FromStart(request.key_begin, sequence.key_begin, sequence.key_length);
  const size_t key_end =
      FromStart(request.key_end, sequence.key_begin, sequence.key_length);
  const size_t group = call.sizes.heads / call.sizes.kv_heads;
  PackKeys(*call.source.key, nullptr, sequence.entry, request.head / group,
           sequence.key_begin + key_begin, key_end - key_begin, &scratch->keys);
  // Packed from key_begin on, but standing where they stand.
  for (size_t c = 0; c < scratch->keys.chunk_count; ++c) {
    scratch->keys.chunks[c].first += key_begin;
  }
  // Keys of other sequences stand before and behind.
  const size_t inside = key_end - key_begin;
  const size_t before =
      inside == 0 ? 0 : sequence.key_begin + key_begin - request.key_begin;
  ForEachBlock(call, sequence, request.head, [&](const Block& block) {
    const ScoreModCall score_mod(call.options, block, all.anchor);
    kernels::AttentionArgs args =
        DescribeBlock(call, all, visible, block, score_mod, *scratch);
    args.first_column = request.key_begin;
    float* to = tile + (block.view_row() - request.row_begin) * width;
    const bool weights = request.kind == TileKind::kWeights;
    if (weights) {
      const float* lse = request.lse + call.RowStart(block.entry(), block.head,
                                                     block.view_row(), 1);
      for (size_t r = 0; r < block.rows; ++r) {
        args.maximum[r] = lse[r];
        args.total[r] = std::isnan(lse[r])  ? lse[r]
                        : lse[r] == kHidden ? 0.0f
                                            : 1.0f;
      }
      kernels::AttentionWeights(args, to, width, false);
    } else {
      kernels::AttentionScores(args,
                               StageOf(static_cast<int>(request.kind),
                                       static_cast<int>(TileKind::kRaw)),
                               to, width);
    }
    for (size_t r = 0; r < block.rows; ++r) {
      const float fill = weights ? HiddenWeight(args, r) : kHidden;
      float* row = to + r * width;
      std::fill(row, row + before, fill);
      std::fill(row + before + inside, row + width, fill);
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
  s.chunk_masks = TakeChunkMasks(
      rows, SaturatingAdd(CeilDiv(key_length, kChunk), 1), arena);
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
  const size_t sequences = SequenceCount(sizes, options);
  ParallelFor(sequences * sizes.kv_heads, [&](size_t task) {
    const Sequence sequence = SequenceAt(sizes, options, task / sizes.kv_heads);
    const size_t kv_head = task % sizes.kv_heads;
    AttendHeads(call, sequence, kv_head, &scratch);
    if (outputs.scores_kind != ScoresKind::kNone) {
      WriteScores(call, sequence, kv_head, &scratch);
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
  if (!IsPacked(options)) {
    return WriteTile(call, SequenceAt(sizes, options, request.batch_entry),
                     request, tile, &scratch);
  }
  for (size_t n = 0; n < options.packed_sequences; ++n) {
    WriteTile(call, SequenceAt(sizes, options, n), request, tile, &scratch);
  }
}

}  // namespace headwise
