// The heads of a call, for those who look into attention.
#include <cstring>

#include "arena.h"
#include "attention_checks.h"
#include "cached_attention.h"
#include "headwise/multi_head_attention.h"
#include "layer_checks.h"
#include "layer_projection.h"
#include "product.h"
#include "view_checks.h"

namespace headwise {
namespace {

constexpr char kCall[] = "ProjectHeads";

Status CheckHeads(const char* name, const HeadsView<float>& got, size_t batch,
                  size_t heads, size_t rows, size_t cols) {
  if (got.batch != batch || got.heads != heads || got.rows != rows ||
      got.cols != cols) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "ProjectHeads: %s heads [%zu, %zu, %zu, %zu] must be "
                         "[%zu, %zu, %zu, %zu]",
                         name, got.batch, got.heads, got.rows, got.cols, batch,
                         heads, rows, cols);
  }
  HEADWISE_RETURN_IF_ERROR(CheckData(kCall, name, got));
  return CheckDisjoint(kCall, name, got);
}

// From rows with the heads side by side.
void CopyHeads(const float* projected, const HeadsView<float>& to) {
  const HeadsView<const float> from = HeadsView<const float>::HeadsLast(
      projected, to.batch, to.heads, to.rows, to.cols);
  for (size_t b = 0; b < to.batch; ++b) {
    for (size_t head = 0; head < to.heads; ++head) {
      for (size_t row = 0; row < to.rows; ++row) {
        std::memcpy(to.Row(b, head, row), from.Row(b, head, row),
                    to.cols * sizeof(float));
      }
    }
  }
}

}  // namespace

Status MultiHeadAttention::ProjectHeads(const TensorView<const float>& query,
                                        const TensorView<const float>& key,
                                        const TensorView<const float>& value,
                                        const LayerOptions& options,
                                        const ProjectedHeads& outputs,
                                        Workspace* workspace) const {
  const Config& c = config_;
  const size_t batch = query.batch;
  const TensorView<const float>* value_or_none =
      outputs.value.data == nullptr ? nullptr : &value;
  HEADWISE_RETURN_IF_ERROR(CheckPointer(kCall, "workspace", workspace));
  HEADWISE_RETURN_IF_ERROR(CheckInputs(c, query, key, value_or_none));
  HEADWISE_RETURN_IF_ERROR(CheckHeads("query", outputs.query, batch,
                                      c.num_heads, query.rows, c.head_dim));
  HEADWISE_RETURN_IF_ERROR(CheckHeads("key", outputs.key, batch, c.num_kv_heads,
                                      key.rows, c.head_dim));
  if (value_or_none != nullptr) {
    HEADWISE_RETURN_IF_ERROR(CheckHeads(
        "value", outputs.value, batch, c.num_kv_heads, key.rows, c.v_head_dim));
  }
  HEADWISE_RETURN_IF_ERROR(CheckPacking(projections_.query->packed()));
  if (options.cache != nullptr) {
    HEADWISE_RETURN_IF_ERROR(CheckCache(c, query, key, options));
    HEADWISE_RETURN_IF_ERROR(CheckCachedOptions(
        *options.cache, options, WeightsKind::kNone, ScoresKind::kNone));
  }
  HEADWISE_RETURN_IF_ERROR(
      CheckOptions({batch, c.num_heads, c.num_kv_heads, query.rows,
                    KeyLength(query.rows, key.rows, options)},
                   options));
  HEADWISE_RETURN_IF_ERROR(CheckTurns(c, options));
  Arena counter;
  TakeProjectionScratch(c, batch, query.rows, key.rows, &counter);
  HEADWISE_RETURN_IF_ERROR(workspace->Reserve(counter.used()));

  Arena arena(workspace->data());
  const ProjectionScratch scratch =
      TakeProjectionScratch(c, batch, query.rows, key.rows, &arena);
  HEADWISE_RETURN_IF_ERROR(ProjectIntoHeads(c, projections_, query, key,
                                            value_or_none, options, scratch));
  CopyHeads(scratch.projected.query, outputs.query);
  CopyHeads(scratch.projected.key, outputs.key);
  if (value_or_none != nullptr) {
    CopyHeads(scratch.projected.value, outputs.value);
  }
  return Status();
}

}  // namespace headwise
