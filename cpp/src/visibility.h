// Which keys a query may see by position: lengths, padding, causality,
// window, chunk.
#ifndef HEADWISE_SRC_VISIBILITY_H_
#define HEADWISE_SRC_VISIBILITY_H_

#include <cstddef>
#include <cstdint>

#include "headwise/attention.h"
#include "sequence.h"

namespace headwise {

// The keys of one sequence that are no padding, counted from its first. The
// first of them, the anchor, is where chunks are counted from: padding on the
// left then changes no bit.
struct KeyRange {
  size_t anchor = 0;
  size_t count = 0;    // up to and including the last one that is no padding
  bool holes = false;  // padding in between
};
KeyRange FindKeyRange(const AttentionOptions& options,
                      const AttentionSizes& sizes, const Sequence& sequence);

// Of the sequence's keys, one byte each; null: none is padding.
const uint8_t* PaddingOf(const AttentionOptions& options,
                         const AttentionSizes& sizes, const Sequence& sequence);

// Where the sequence's query i stands among its keys.
int64_t QueryPosition(const AttentionOptions& options, const Sequence& sequence,
                      size_t i);

// Keys [*begin, *end), relative to the anchor, that the sequence's query i may
// see; 0, 0 for none. Queries beyond query_lengths are the kernels' to leave
// out (seeing_rows).
void VisibleKeys(const AttentionOptions& options, const Sequence& sequence,
                 const KeyRange& keys, size_t i, size_t* begin, size_t* end);

}  // namespace headwise

#endif  // HEADWISE_SRC_VISIBILITY_H_
