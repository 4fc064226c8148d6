// The sequences of a call: the entries of its batch, or those packed one
// behind the other in entry 0.
#ifndef HEADWISE_SRC_SEQUENCE_H_
#define HEADWISE_SRC_SEQUENCE_H_

#include <cstddef>

#include "attention_checks.h"
#include "headwise/attention.h"

namespace headwise {

struct Sequence {
  // Into arrays with one value a sequence.
  size_t index = 0;
  // Of views and masks, and where in them the sequence lies.
  size_t entry = 0;
  size_t query_begin = 0;
  size_t query_length = 0;
  size_t key_begin = 0;
  size_t key_length = 0;
};

inline bool IsPacked(const AttentionOptions& options) {
  return options.cumulative_query_lengths != nullptr;
}

inline size_t SequenceCount(const AttentionSizes& sizes,
                            const AttentionOptions& options) {
  return IsPacked(options) ? options.packed_sequences : sizes.batch;
}

inline Sequence SequenceAt(const AttentionSizes& sizes,
                           const AttentionOptions& options, size_t index) {
  if (!IsPacked(options)) {
    return {index, index, 0, sizes.query_length, 0, sizes.key_length};
  }
  const auto length = [&](const int32_t* cumulative) {
    return static_cast<size_t>(cumulative[index + 1] - cumulative[index]);
  };
  const int32_t* queries = options.cumulative_query_lengths;
  const int32_t* keys = options.cumulative_key_lengths;
  return {index,
          0,
          static_cast<size_t>(queries[index]),
          length(queries),
          static_cast<size_t>(keys[index]),
          length(keys)};
}

}  // namespace headwise

#endif  // HEADWISE_SRC_SEQUENCE_H_
