#include "block_scores.h"

#include "memory.h"
#include "visibility.h"

namespace headwise {

static_assert(BlockMask::kKeys == kernels::kChunk &&
                  BlockMask::kQueries == kernels::kQueryBlock,
              "a block is what a kernel takes at once");

ChunkMasks TakeChunkMasks(size_t rows, size_t chunks, Arena* arena) {
  return {arena->Take<kernels::ChunkMask>(chunks),
          arena->Take<BlockMask::Bits>(SaturatingMul(chunks, rows))};
}

void FillChunkMasks(const AttentionOptions& options, const Block& block,
                    size_t rows, const kernels::KeyChunk* chunks, size_t count,
                    size_t anchor, const ChunkMasks& to) {
  const BlockMask& mask = *options.block_mask;
  const size_t b = block.sequence.index;
  const size_t query =
      static_cast<size_t>(QueryPosition(options, block.sequence, block.row) -
                          mask.shape().first_query);
  for (size_t c = 0; c < count; ++c) {
    kernels::ChunkMask& of_chunk = to.masks[c];
    of_chunk = {};
    if (chunks[c].always || rows == 0) continue;
    const size_t key = anchor + chunks[c].first;
    switch (mask.Look(b, block.head, query, rows, key, chunks[c].count)) {
      case BlockMask::Sees::kAll:
        continue;
      case BlockMask::Sees::kNone:
        of_chunk.sees = kernels::ChunkMask::Sees::kNone;
        continue;
      case BlockMask::Sees::kSome:
        break;
    }
    BlockMask::Bits* bits = to.bits + c * block.rows;
    for (size_t r = 0; r < rows; ++r) {
      mask.RowBits(b, block.head, query + r, key, bits[r]);
    }
    of_chunk.sees = kernels::ChunkMask::Sees::kSome;
    of_chunk.bits = bits;
  }
}

ScoreModCall::ScoreModCall(const AttentionOptions& options, const Block& block,
                           size_t anchor)
    : options_(options),
      block_(block),
      query_position_(QueryPosition(options, block.sequence, block.row)),
      anchor_(anchor) {}

kernels::ScoreHook ScoreModCall::hook() const {
  if (options_.score_mod == nullptr) return {};
  const auto call = [](const void* context, size_t row, size_t rows, size_t key,
                       size_t keys, float* scores) {
    const ScoreModCall& self = *static_cast<const ScoreModCall*>(context);
    ScoreTile tile;
    tile.entry = self.block_.sequence.index;
    tile.head = self.block_.head;
    tile.row = self.block_.row + row;
    tile.query_position = self.query_position_ + static_cast<int64_t>(row);
    tile.key_position = self.anchor_ + key;
    tile.rows = rows;
    tile.keys = keys;
    tile.scores = scores;
    tile.row_stride = kernels::kChunk;
    self.options_.score_mod(self.options_.score_context, tile);
  };
  return {call, this};
}

}  // namespace headwise
