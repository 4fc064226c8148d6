// Which keys a query may see by position: lengths, padding, causality,
// window, chunk.
#ifndef HEADWISE_SRC_VISIBILITY_H_
#define HEADWISE_SRC_VISIBILITY_H_

#include <cstddef>
#include <cstdint>

#include "attention_checks.h"
#include "headwise/attention.h"

namespace headwise {

// The keys of one batch entry that are no padding. The first of them, the
// anchor, is where chunks are counted from: padding on the left then changes
// no bit.
struct KeyRange {
  size_t anchor = 0;
  size_t count = 0;    // up to and including the last one that is no padding
  bool holes = false;  // padding in between
};
KeyRange FindKeyRange(const AttentionOptions& options, size_t b,
                      size_t key_length);

// Where query i stands among the keys.
int64_t QueryPosition(const AttentionOptions& options,
                      const AttentionSizes& sizes, size_t b, size_t i);

// Keys [*begin, *end), relative to the anchor, that query i may see;
// 0, 0 for none.
void VisibleKeys(const AttentionOptions& options, const AttentionSizes& sizes,
                 const KeyRange& keys, size_t b, size_t i, size_t* begin,
                 size_t* end);

}  // namespace headwise

#endif  // HEADWISE_SRC_VISIBILITY_H_
