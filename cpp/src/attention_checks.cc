#include "attention_checks.h"

#include <cmath>

#include "sequence.h"
#include "visibility.h"

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

Status CheckLength(const char* name, size_t index, int32_t length,
                   size_t most) {
  if (length >= 0 && static_cast<size_t>(length) <= most) return Status();
  return Status::Error(StatusCode::kInvalidArgument,
                       "attention: %s[%zu] is %d; it must be 0 to %zu", name,
                       index, static_cast<int>(length), most);
}

Status CheckLengths(const char* name, const int32_t* lengths, size_t batch,
                    size_t most) {
  if (lengths == nullptr) return Status();
  for (size_t b = 0; b < batch; ++b) {
    HEADWISE_RETURN_IF_ERROR(CheckLength(name, b, lengths[b], most));
  }
  return Status();
}

Status AtLeast(const char* name, int32_t value, int32_t least) {
  if (value >= least) return Status();
  return Status::Error(StatusCode::kInvalidArgument,
                       "attention: %s is %d; it must be at least %d", name,
                       static_cast<int>(value), static_cast<int>(least));
}

// The same where packed sequences have bounds of their own.
Status CheckPackedLengths(const char* name, const int32_t* lengths,
                          const int32_t* cumulative, size_t sequences) {
  if (lengths == nullptr) return Status();
  for (size_t n = 0; n < sequences; ++n) {
    HEADWISE_RETURN_IF_ERROR(
        CheckLength(name, n, lengths[n],
                    static_cast<size_t>(cumulative[n + 1] - cumulative[n])));
  }
  return Status();
}

Status CheckCumulative(const char* name, const int32_t* cumulative,
                       size_t sequences, size_t total) {
  int32_t before = 0;
  for (size_t n = 0; n <= sequences; ++n) {
    const int32_t at = cumulative[n];
    const bool in_order = n == 0 ? at == 0 : at >= before;
    const bool ends = n < sequences || static_cast<size_t>(at) == total;
    if (!in_order || !ends) {
      return Status::Error(
          StatusCode::kInvalidArgument,
          "attention: %s[%zu] is %d; they must start at 0, never fall, and end "
          "with element %zu at %zu",
          name, n, static_cast<int>(at), sequences, total);
    }
    before = at;
  }
  return Status();
}

Status CheckPacked(const AttentionSizes& sizes,
                   const AttentionOptions& options) {
  const int32_t* queries = options.cumulative_query_lengths;
  const int32_t* keys = options.cumulative_key_lengths;
  if (queries == nullptr && keys == nullptr) {
    if (options.packed_sequences == 0) return Status();
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: packed_sequences is %zu, but neither "
                         "cumulative_query_lengths nor cumulative_key_lengths "
                         "says where they lie",
                         options.packed_sequences);
  }
  if (queries == nullptr || keys == nullptr) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: cumulative_query_lengths and "
                         "cumulative_key_lengths go together; give both (the "
                         "same twice for self-attention)");
  }
  if (sizes.batch != 1) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: packed sequences lie in one entry, the "
                         "batch is %zu; give them one behind the other",
                         sizes.batch);
  }
  HEADWISE_RETURN_IF_ERROR(CheckCumulative("cumulative_query_lengths", queries,
                                           options.packed_sequences,
                                           sizes.query_length));
  return CheckCumulative("cumulative_key_lengths", keys,
                         options.packed_sequences, sizes.key_length);
}

// Of arrays with one length for each sequence.
Status CheckAllLengths(const AttentionSizes& sizes, const AttentionOptions& o) {
  const size_t n = o.packed_sequences;
  const int32_t* queries = o.cumulative_query_lengths;
  const int32_t* keys = o.cumulative_key_lengths;
  if (queries != nullptr) {
    HEADWISE_RETURN_IF_ERROR(
        CheckPackedLengths("key_lengths", o.key_lengths, keys, n));
    HEADWISE_RETURN_IF_ERROR(
        CheckPackedLengths("query_lengths", o.query_lengths, queries, n));
    return CheckPackedLengths("prefix_lengths", o.prefix_lengths, keys, n);
  }
  HEADWISE_RETURN_IF_ERROR(CheckLengths("key_lengths", o.key_lengths,
                                        sizes.batch, sizes.key_length));
  HEADWISE_RETURN_IF_ERROR(CheckLengths("query_lengths", o.query_lengths,
                                        sizes.batch, sizes.query_length));
  return CheckLengths("prefix_lengths", o.prefix_lengths, sizes.batch,
                      sizes.key_length);
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
  HEADWISE_RETURN_IF_ERROR(CheckPacked(sizes, options));
  HEADWISE_RETURN_IF_ERROR(CheckAllLengths(sizes, options));
  if (!IsOneOf(options.causal, Causal::kEnd) ||
      !IsOneOf(options.empty_rows, EmptyRows::kNan)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: causal %d or empty_rows %d is no value of "
                         "its enum",
                         static_cast<int>(options.causal),
                         static_cast<int>(options.empty_rows));
  }
  if (options.prefix_lengths != nullptr && options.causal == Causal::kNone) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: prefix_lengths loosen causality, but "
                         "causal is kNone; use Causal::kStart or kEnd");
  }
  if (!std::isfinite(options.softcap) || options.softcap < 0) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: softcap is %f; it must be positive, or 0 "
                         "for off",
                         static_cast<double>(options.softcap));
  }
  HEADWISE_RETURN_IF_ERROR(AtLeast("window_left", options.window_left, -1));
  HEADWISE_RETURN_IF_ERROR(AtLeast("window_right", options.window_right, -1));
  HEADWISE_RETURN_IF_ERROR(
      AtLeast("attention_chunk", options.attention_chunk, 0));
  if (options.query_offsets != nullptr && options.causal == Causal::kEnd) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: query_offsets contradict Causal::kEnd, "
                         "which has its own offset; use Causal::kStart");
  }
  return Status();
}

Status CheckBlockMask(const AttentionSizes& sizes,
                      const AttentionOptions& options) {
  if (options.block_mask == nullptr) return Status();
  const BlockMaskShape& mask = options.block_mask->shape();
  const size_t count = SequenceCount(sizes, options);
  if ((mask.batch != 1 && mask.batch != count) ||
      (mask.heads != 1 && mask.heads != sizes.heads)) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "attention: block_mask has batch %zu and heads %zu; "
                         "they must be 1, or %zu and %zu",
                         mask.batch, mask.heads, count, sizes.heads);
  }
  for (size_t n = 0; n < count; ++n) {
    const Sequence sequence = SequenceAt(sizes, options, n);
    const size_t rows = options.query_lengths == nullptr
                            ? sequence.query_length
                            : static_cast<size_t>(options.query_lengths[n]);
    const int64_t first = QueryPosition(options, sequence, 0);
    const int64_t end = first + static_cast<int64_t>(rows);
    const int64_t mask_end =
        mask.first_query + static_cast<int64_t>(mask.queries);
    const size_t keys = options.key_lengths == nullptr
                            ? sequence.key_length
                            : static_cast<size_t>(options.key_lengths[n]);
    if (rows == 0 ||
        (first >= mask.first_query && end <= mask_end && keys <= mask.keys)) {
      continue;
    }
    return Status::Error(
        StatusCode::kShapeMismatch,
        "attention: block_mask knows queries %lld to %lld and %zu keys; entry "
        "%zu has queries %lld to %lld and %zu keys; make one that covers them",
        static_cast<long long>(mask.first_query),
        static_cast<long long>(mask_end), mask.keys, n,
        static_cast<long long>(first), static_cast<long long>(end), keys);
  }
  return Status();
}

namespace {

template <typename Kind>
Status CheckAsked(const char* name, Kind kind, Kind last, const float* place,
                  const AttentionSizes& sizes, size_t extra_keys) {
  if (!IsOneOf(kind, last)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: %s_kind %d is no value of its enum", name,
                         static_cast<int>(kind));
  }
  // An array without elements may well be null.
  const bool none = sizes.batch == 0 || sizes.heads == 0 ||
                    sizes.query_length == 0 ||
                    (sizes.key_length == 0 && extra_keys == 0);
  if (kind != Kind::kNone && place == nullptr && !none) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention: %s are asked for, but their pointer is "
                         "null; give it or ask for kNone",
                         name);
  }
  return Status();
}

}  // namespace

Status CheckWeights(const AttentionSizes& sizes, size_t extra_keys,
                    WeightsKind kind, const float* weights) {
  return CheckAsked("weights", kind, WeightsKind::kPerHead, weights, sizes,
                    extra_keys);
}

Status CheckScores(const AttentionSizes& sizes, size_t extra_keys,
                   ScoresKind kind, const float* scores) {
  return CheckAsked("scores", kind, ScoresKind::kBiased, scores, sizes,
                    extra_keys);
}

Status CheckShapes(const HeadsView<const float>& query,
                   const HeadsView<const float>& key,
                   const HeadsView<const float>& value,
                   const HeadsView<float>& output) {
  if (key.batch != query.batch || value.batch != query.batch ||
      output.batch != query.batch) {
    return Status::Error(
        StatusCode::kShapeMismatch,
        "attention: batch sizes differ: query %zu, key %zu, value %zu, output "
        "%zu",
        query.batch, key.batch, value.batch, output.batch);
  }
  if (key.rows != value.rows) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "attention: %zu keys but %zu values; each key needs "
                         "one value",
                         key.rows, value.rows);
  }
  if (query.cols != key.cols) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "attention: query head size %zu differs from key head "
                         "size %zu",
                         query.cols, key.cols);
  }
  if (key.heads != value.heads || key.heads == 0 || query.heads == 0 ||
      query.heads % key.heads != 0) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "attention: %zu query heads, %zu key heads, %zu value "
                         "heads; keys and values must have the same number, "
                         "and the queries a multiple of it",
                         query.heads, key.heads, value.heads);
  }
  if (output.heads != query.heads || output.rows != query.rows ||
      output.cols != value.cols) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "attention: output heads, rows, columns [%zu, %zu, "
                         "%zu] must be [%zu, %zu, %zu]",
                         output.heads, output.rows, output.cols, query.heads,
                         query.rows, value.cols);
  }
  return Status();
}

Status CheckExtraKeys(const HeadsView<const float>& key,
                      const HeadsView<const float>& value,
                      const AttentionOptions& options) {
  const HeadsView<const float>& k = options.extra_key;
  const HeadsView<const float>& v = options.extra_value;
  if (k.rows == 0 && v.rows == 0) return Status();
  const auto fits = [&](const HeadsView<const float>& extra,
                        const HeadsView<const float>& of) {
    return (extra.batch == 1 || extra.batch == of.batch) &&
           extra.heads == of.heads && extra.cols == of.cols;
  };
  if (k.rows == v.rows && k.rows <= AttentionOptions::kMaxExtraKeys &&
      fits(k, key) && fits(v, value)) {
    return Status();
  }
  return Status::Error(
      StatusCode::kShapeMismatch,
      "attention: extra_key [%zu, %zu, %zu, %zu] and extra_value [%zu, %zu, "
      "%zu, %zu] must be [1 or %zu, %zu, n <= %zu, %zu] and the same with %zu",
      k.batch, k.heads, k.rows, k.cols, v.batch, v.heads, v.rows, v.cols,
      key.batch, key.heads, AttentionOptions::kMaxExtraKeys, key.cols,
      value.cols);
}

Status CheckTile(const AttentionSizes& sizes, const AttentionTileRequest& r,
                 const float* tile) {
  if (!IsOneOf(r.kind, TileKind::kBiased) || r.batch_entry >= sizes.batch ||
      r.head >= sizes.heads || r.row_begin > r.row_end ||
      r.row_end > sizes.query_length || r.key_begin > r.key_end ||
      r.key_end > sizes.key_length) {
    return Status::Error(
        StatusCode::kInvalidArgument,
        "attention tile: entry %zu, head %zu, rows %zu to %zu, keys %zu to %zu "
        "are not inside [%zu, %zu, %zu, %zu]",
        r.batch_entry, r.head, r.row_begin, r.row_end, r.key_begin, r.key_end,
        sizes.batch, sizes.heads, sizes.query_length, sizes.key_length);
  }
  if (r.kind == TileKind::kWeights && r.lse == nullptr) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention tile: weights need the lse of the forward "
                         "pass; ask it for lse");
  }
  const bool none = r.row_begin == r.row_end || r.key_begin == r.key_end;
  if (tile == nullptr && !none) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "attention tile: the place for it is null");
  }
  return Status();
}

}  // namespace headwise
