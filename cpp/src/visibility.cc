#include "visibility.h"

#include <algorithm>

namespace headwise {

KeyRange FindKeyRange(const AttentionOptions& options, size_t b,
                      size_t key_length) {
  size_t first = 0;
  size_t end = key_length;
  if (options.key_lengths != nullptr) {
    end = static_cast<size_t>(options.key_lengths[b]);
  }
  KeyRange range;
  if (options.key_padding_mask != nullptr) {
    const uint8_t* padding = options.key_padding_mask + b * key_length;
    while (first < end && padding[first] != 0) ++first;
    while (end > first && padding[end - 1] != 0) --end;
    range.holes = std::any_of(padding + first, padding + end,
                              [](uint8_t value) { return value != 0; });
  }
  range.anchor = first;
  range.count = end - first;
  return range;
}

void VisibleKeys(const AttentionOptions& options, const AttentionSizes& sizes,
                 const KeyRange& keys, size_t b, size_t i, size_t* begin,
                 size_t* end) {
  const auto length = [b](const int32_t* lengths, size_t otherwise) {
    return lengths != nullptr ? int64_t{lengths[b]}
                              : static_cast<int64_t>(otherwise);
  };
  const int64_t queries = length(options.query_lengths, sizes.query_length);
  const int64_t query = static_cast<int64_t>(i);
  int64_t visible = static_cast<int64_t>(keys.count);
  if (options.causal != Causal::kNone) {
    int64_t offset = 0;
    if (options.causal == Causal::kEnd) {
      offset = length(options.key_lengths, sizes.key_length) - queries;
    } else if (options.query_offsets != nullptr) {
      offset = options.query_offsets[b];
    }
    // The key at the query's own position is the last one it sees.
    const int64_t past = offset + query + 1 - static_cast<int64_t>(keys.anchor);
    visible = std::min(visible, past);
  }
  if (query >= queries) visible = 0;
  *begin = 0;
  *end = static_cast<size_t>(std::max<int64_t>(visible, 0));
}

}  // namespace headwise
