#include "attention_checks.h"

#include <cmath>

namespace headwise {
namespace {

template <typename T>
Status CheckMask(const char* name, const MaskView<T>& mask,
                 const AttentionSizes& sizes) {
  if (!mask.present()) return Status();
  const auto fits = [](size_t got, size_t want) {
    return got == 1 || got == want;
  };
  if (fits(mask.batch, sizes.batch) && fits(mask.heads, sizes.heads) &&
      fits(mask.rows, sizes.query_length) &&
      fits(mask.keys, sizes.key_length)) {
    return Status();
  }
  return Status::Error(
      StatusCode::kShapeMismatch,
      "attention: %s [%zu, %zu, %zu, %zu] does not broadcast to [batch %zu, "
      "heads %zu, queries %zu, keys %zu]; each size must be 1 or the full one",
      name, mask.batch, mask.heads, mask.rows, mask.keys, sizes.batch,
      sizes.heads, sizes.query_length, sizes.key_length);
}

Status CheckLengths(const char* name, const int32_t* lengths, size_t batch,
                    size_t most) {
  if (lengths == nullptr) return Status();
  for (size_t b = 0; b < batch; ++b) {
    if (lengths[b] >= 0 && static_cast<size_t>(lengths[b]) <= most) continue;
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: %s[%zu] is %d; it must be 0 to %zu", name,
                         b, static_cast<int>(lengths[b]), most);
  }
  return Status();
}

template <typename Enum>
bool IsOneOf(Enum value, Enum last) {
  return static_cast<int>(value) >= 0 &&
         static_cast<int>(value) <= static_cast<int>(last);
}

}  // namespace

Status CheckOptions(const AttentionSizes& sizes,
                    const AttentionOptions& options) {
  if (options.scale.has_value() && !std::isfinite(*options.scale)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: scale is %f; it must be finite",
                         static_cast<double>(*options.scale));
  }
  HEADWISE_RETURN_IF_ERROR(
      CheckMask("attend_mask", options.attend_mask, sizes));
  HEADWISE_RETURN_IF_ERROR(CheckMask("attn_bias", options.attn_bias, sizes));
  HEADWISE_RETURN_IF_ERROR(CheckLengths("key_lengths", options.key_lengths,
                                        sizes.batch, sizes.key_length));
  HEADWISE_RETURN_IF_ERROR(CheckLengths("query_lengths", options.query_lengths,
                                        sizes.batch, sizes.query_length));
  if (!IsOneOf(options.causal, Causal::kEnd) ||
      !IsOneOf(options.empty_rows, EmptyRows::kNan)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: causal %d or empty_rows %d is no value of "
                         "its enum",
                         static_cast<int>(options.causal),
                         static_cast<int>(options.empty_rows));
  }
  if (options.query_offsets != nullptr && options.causal == Causal::kEnd) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: query_offsets contradict Causal::kEnd, "
                         "which has its own offset; use Causal::kStart");
  }
  return Status();
}

Status CheckWeights(const AttentionSizes& sizes, WeightsKind kind,
                    const float* weights) {
  if (!IsOneOf(kind, WeightsKind::kPerHead)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: weights_kind %d is no value of its enum",
                         static_cast<int>(kind));
  }
  // An array without elements may well be null.
  const bool none = sizes.batch == 0 || sizes.heads == 0 ||
                    sizes.query_length == 0 || sizes.key_length == 0;
  if (kind != WeightsKind::kNone && weights == nullptr && !none) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: weights are asked for, but their pointer "
                         "is null; give it or ask for kNone");
  }
  return Status();
}

}  // namespace headwise
