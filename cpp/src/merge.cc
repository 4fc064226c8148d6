#include "headwise/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "view_checks.h"

namespace headwise {

Status MergeAttention(const AttentionPart* parts, size_t part_count,
                      size_t rows, size_t cols, float* output, float* lse) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  for (size_t p = 0; p < part_count; ++p) {
    if (rows == 0 || ((parts[p].output != nullptr || cols == 0) &&
                      parts[p].lse != nullptr)) {
      continue;
    }
    return Status::Error(StatusCode::kInvalidArgument,
                         "MergeAttention: part %zu has no %s; each needs both",
                         p, parts[p].lse == nullptr ? "lse" : "output");
  }
  if (rows != 0 && cols != 0) {
    HEADWISE_RETURN_IF_ERROR(CheckPointer("MergeAttention", "output", output));
  }
  for (size_t row = 0; row < rows; ++row) {
    double largest = kNothing;
    bool nan = false;
    for (size_t p = 0; p < part_count; ++p) {
      const double value = static_cast<double>(parts[p].lse[row]);
      nan = nan || std::isnan(value);
      largest = std::max(largest, value);
    }
    double total = 0.0;
    for (size_t p = 0; p < part_count && largest != kNothing; ++p) {
      total += std::exp(static_cast<double>(parts[p].lse[row]) - largest);
    }
    const double joined = nan ? std::numeric_limits<double>::quiet_NaN()
                          : largest == kNothing ? kNothing
                                                : largest + std::log(total);
    if (lse != nullptr) lse[row] = static_cast<float>(joined);
    for (size_t col = 0; col < cols; ++col) {
      double sum = nan ? joined : 0.0;
      for (size_t p = 0; p < part_count; ++p) {
        const double of_part = static_cast<double>(parts[p].lse[row]);
        // Selected, not multiplied by 0: its output may hold anything.
        if (nan || of_part == kNothing) continue;
        sum += std::exp(of_part - joined) *
               static_cast<double>(parts[p].output[row * cols + col]);
      }
      output[row * cols + col] = static_cast<float>(sum);
    }
  }
  return Status();
}

}  // namespace headwise
