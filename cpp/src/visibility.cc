#include "visibility.h"

#include <algorithm>

namespace headwise {

const uint8_t* PaddingOf(const AttentionOptions& options,
                         const AttentionSizes& sizes,
                         const Sequence& sequence) {
  if (options.key_padding_mask == nullptr) return nullptr;
  return options.key_padding_mask + sequence.entry * sizes.key_length +
         sequence.key_begin;
}

KeyRange FindKeyRange(const AttentionOptions& options,
                      const AttentionSizes& sizes, const Sequence& sequence) {
  size_t first = 0;
  size_t end = sequence.key_length;
  if (options.key_lengths != nullptr) {
    end = static_cast<size_t>(options.key_lengths[sequence.index]);
  }
  KeyRange range;
  const uint8_t* padding = PaddingOf(options, sizes, sequence);
  if (padding != nullptr) {
    while (first < end && padding[first] != 0) ++first;
    while (end > first && padding[end - 1] != 0) --end;
    range.holes = std::any_of(padding + first, padding + end,
                              [](uint8_t value) { return value != 0; });
  }
  range.anchor = first;
  range.count = end - first;
  return range;
}

namespace {

int64_t LengthOr(const int32_t* lengths, size_t b, size_t otherwise) {
  return lengths != nullptr ? int64_t{lengths[b]}
                            : static_cast<int64_t>(otherwise);
}

// The largest multiple of `chunk` that is not above `position`.
int64_t ChunkStart(int64_t position, int64_t chunk) {
  const int64_t remainder = position % chunk;
  return position - remainder - (remainder < 0 ? chunk : 0);
}

}  // namespace

int64_t QueryPosition(const AttentionOptions& options, const Sequence& sequence,
                      size_t i) {
  const size_t n = sequence.index;
  int64_t offset = 0;
  if (options.causal == Causal::kEnd) {
    offset = LengthOr(options.key_lengths, n, sequence.key_length) -
             LengthOr(options.query_lengths, n, sequence.query_length);
  } else if (options.query_offsets != nullptr) {
    offset = options.query_offsets[n];
  }
  return offset + static_cast<int64_t>(i);
}

void VisibleKeys(const AttentionOptions& options, const Sequence& sequence,
                 const KeyRange& keys, size_t i, size_t* begin, size_t* end) {
  const size_t n = sequence.index;
  const int64_t position = QueryPosition(options, sequence, i);
  // In positions of the sequence first, relative to the anchor at the end.
  int64_t first = 0;
  int64_t last = static_cast<int64_t>(keys.anchor + keys.count);
  if (options.causal != Causal::kNone) {
    // The key at the query's own position is the last one it sees.
    last = std::min(
        last, std::max(position + 1, LengthOr(options.prefix_lengths, n, 0)));
  }
  if (options.window_left >= 0) {
    first = std::max(first, position - options.window_left);
  }
  if (options.window_right >= 0) {
    last = std::min(last, position + options.window_right + 1);
  }
  if (options.attention_chunk > 0) {
    const int64_t start = ChunkStart(position, options.attention_chunk);
    first = std::max(first, start);
    last = std::min(last, start + options.attention_chunk);
  }
  const int64_t anchor = static_cast<int64_t>(keys.anchor);
  first = std::max(first, anchor);
  if (first >= last) first = last = anchor;
  *begin = static_cast<size_t>(first - anchor);
  *end = static_cast<size_t>(last - anchor);
}

}  // namespace headwise
