// The functional core by its JavaScript names.
#include <emscripten/bind.h>

#include "conversions.h"
#include "headwise/headwise.h"
#include "module_state.h"

namespace headwise {
namespace bindings {
namespace {

AttentionOptions Options(const AttentionBlock& call) {
  AttentionOptions options;
  ReadOptions(call, &options);
  return options;
}

AttentionOutputs Outputs(const AttentionBlock& c) {
  AttentionOutputs outputs;
  outputs.output =
      Heads<float>(c.output, c.batch, c.numHeads, c.queryLength, c.vHeadDim,
                   c.outputBatchStride, c.outputHeadStride, c.outputRowStride);
  ReadOutputs(c, &outputs);
  return outputs;
}

int Attend(double block) {
  const AttentionBlock& c = *At<const AttentionBlock>(block);
  return Keep(ScaledDotProductAttention(QueryView(c), KeyView(c), ValueView(c),
                                        Options(c), Outputs(c),
                                        &SharedWorkspace()));
}

int AttendToCache(double block, const KvCache& cache) {
  const AttentionBlock& c = *At<const AttentionBlock>(block);
  return Keep(CachedAttention(QueryView(c), cache, Options(c), Outputs(c),
                              &SharedWorkspace()));
}

int Tile(double block, double tile_block) {
  const AttentionBlock& c = *At<const AttentionBlock>(block);
  const TileBlock& t = *At<const TileBlock>(tile_block);
  AttentionTileRequest request;
  request.kind = ToEnum<TileKind>(t.kind);
  request.batch_entry = Size(t.batchEntry);
  request.head = Size(t.head);
  request.row_begin = Size(t.rowBegin);
  request.row_end = Size(t.rowEnd);
  request.key_begin = Size(t.keyBegin);
  request.key_end = Size(t.keyEnd);
  request.lse = At<const float>(t.savedLse);
  return Keep(AttentionTile(QueryView(c), KeyView(c), Options(c), request,
                            At<float>(t.tile), &SharedWorkspace()));
}

int ReserveAttention(double query_length, double key_length, double head_dim,
                     double v_head_dim, double extra_keys) {
  return Keep(SharedWorkspace().Reserve(AttentionWorkspaceBytes(
      Size(query_length), Size(key_length), Size(head_dim), Size(v_head_dim),
      Size(extra_keys))));
}

// parts: `count` pairs of offsets, output and lse.
int Merge(double parts, double count, double rows, double cols, double output,
          double lse) {
  constexpr size_t kMaxParts = 256;
  AttentionPart list[kMaxParts];
  if (!(count >= 0 && count <= kMaxParts)) {
    return Keep(Status::Error(StatusCode::kInvalidArgument,
                              "mergeAttention: %g parts; at most %zu go in one "
                              "call",
                              count, kMaxParts));
  }
  const double* offsets = At<const double>(parts);
  for (size_t i = 0; i < Size(count); ++i) {
    list[i].output = At<const float>(offsets[2 * i]);
    list[i].lse = At<const float>(offsets[2 * i + 1]);
  }
  return Keep(MergeAttention(list, Size(count), Size(rows), Size(cols),
                             At<float>(output), At<float>(lse)));
}

int Turn(double block) {
  const TurnBlock& c = *At<const TurnBlock>(block);
  const HeadsView<float> x =
      Heads<float>(c.x, c.xBatch, c.xHeads, c.xRows, c.xCols, c.xBatchStride,
                   c.xHeadStride, c.xRowStride);
  RotaryPositions positions;
  positions.positions = At<const int32_t>(c.positions);
  positions.offsets = At<const int32_t>(c.offsets);
  if (c.cos == 0) {
    return Keep(RotaryEmbedding(ReadRotary(c.config), positions, x));
  }
  RotaryTable table;
  table.cos = At<const float>(c.cos);
  table.sin = At<const float>(c.sin);
  table.rows = Size(c.tableRows);
  table.half_dim = Size(c.halfDim);
  table.interleaved = c.tableInterleaved != 0;
  return Keep(RotaryEmbedding(table, positions, x));
}

}  // namespace

EMSCRIPTEN_BINDINGS(headwise_attention) {
  using emscripten::function;
  function("scaledDotProductAttention", &Attend);
  function("cachedAttention", &AttendToCache);
  function("attentionTile", &Tile);
  function("reserveAttention", &ReserveAttention);
  function("mergeAttention", &Merge);
  function("rotaryEmbedding", &Turn);
}

}  // namespace bindings
}  // namespace headwise
