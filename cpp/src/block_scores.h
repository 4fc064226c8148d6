// What a block of queries gets from a block mask and from a score_mod.
#ifndef HEADWISE_SRC_BLOCK_SCORES_H_
#define HEADWISE_SRC_BLOCK_SCORES_H_

#include <cstddef>
#include <cstdint>

#include "arena.h"
#include "headwise/attention.h"
#include "headwise/block_mask.h"
#include "kernels/kernels.h"
#include "sequence.h"

namespace headwise {

// Some rows of one head, counted from the start of their sequence.
struct Block {
  const Sequence& sequence;
  size_t head;
  size_t row;
  size_t rows;

  // Of the views, masks and results.
  size_t entry() const { return sequence.entry; }
  size_t view_row() const { return sequence.query_begin + row; }
};

// Room for the masks of `chunks` chunks, and their bits.
struct ChunkMasks {
  kernels::ChunkMask* masks;
  BlockMask::Bits* bits;
};
ChunkMasks TakeChunkMasks(size_t rows, size_t chunks, Arena* arena);

// Fills in what the block's first `rows` rows see of each chunk; `anchor` is
// the position that chunks count from.
void FillChunkMasks(const AttentionOptions& options, const Block& block,
                    size_t rows, const kernels::KeyChunk* chunks, size_t count,
                    size_t anchor, const ChunkMasks& to);

// A user's score_mod as the kernels call it.
class ScoreModCall {
 public:
  ScoreModCall(const AttentionOptions& options, const Block& block,
               size_t anchor);
  // Lives as long as this object; calls nothing without a score_mod.
  kernels::ScoreHook hook() const;

 private:
  const AttentionOptions& options_;
  const Block& block_;
  int64_t query_position_;
  size_t anchor_;
};

}  // namespace headwise

#endif  // HEADWISE_SRC_BLOCK_SCORES_H_
