// Joining partial attention over disjoint sets of keys.
#ifndef HEADWISE_MERGE_H_
#define HEADWISE_MERGE_H_

#include <cstddef>

#include "headwise/status.h"

namespace headwise {

// One partial result: output [rows, cols] and log-sum-exp [rows], contiguous.
struct AttentionPart {
  const float* output = nullptr;
  const float* lse = nullptr;
};

// lse = log sum_p exp(lse_p), output = sum_p exp(lse_p - lse) output_p: what
// attention over all keys at once gives, up to rounding. A part whose lse is
// -infinity saw nothing and changes nothing; a row that no part saw has output
// 0 and lse -infinity. NaN in a part makes its row NaN. `lse` may be null.
// Outputs must not overlap the parts.
Status MergeAttention(const AttentionPart* parts, size_t part_count,
                      size_t rows, size_t cols, float* output, float* lse);

}  // namespace headwise

#endif  // HEADWISE_MERGE_H_
