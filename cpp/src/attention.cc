#include "headwise/attention.h"

#include "arena.h"
#include "attention_checks.h"
#include "attention_core.h"
#include "view_checks.h"

namespace headwise {

size_t AttentionWorkspaceBytes(size_t query_length, size_t key_length,
                               size_t head_dim, size_t v_head_dim,
                               size_t extra_keys) {
  Arena counter;
  TakeAttentionScratch(query_length, key_length, head_dim, v_head_dim,
                       extra_keys, &counter);
  return counter.used();
}

Status ScaledDotProductAttention(const HeadsView<const float>& query,
                                 const HeadsView<const float>& key,
                                 const HeadsView<const float>& value,
                                 const AttentionOptions& options,
                                 const AttentionOutputs& outputs,
                                 Workspace* workspace) {
  const char* call = "attention";
  HEADWISE_RETURN_IF_ERROR(CheckPointer(call, "workspace", workspace));
  HEADWISE_RETURN_IF_ERROR(CheckShapes(query, key, value, outputs.output));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "query", query));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "key", key));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "value", value));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "output", outputs.output));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "extra_key", options.extra_key));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "extra_value", options.extra_value));
  HEADWISE_RETURN_IF_ERROR(CheckDisjoint(call, "output", outputs.output));
  const AttentionSizes sizes = {query.batch, query.heads, key.heads, query.rows,
                                key.rows};
  HEADWISE_RETURN_IF_ERROR(CheckOptions(sizes, options));
  HEADWISE_RETURN_IF_ERROR(CheckBlockMask(sizes, options));
  HEADWISE_RETURN_IF_ERROR(CheckExtraKeys(key, value, options));
  HEADWISE_RETURN_IF_ERROR(CheckWeights(sizes, options.extra_key.rows,
                                        outputs.weights_kind, outputs.weights));
  HEADWISE_RETURN_IF_ERROR(CheckScores(sizes, options.extra_key.rows,
                                       outputs.scores_kind, outputs.scores));
  HEADWISE_RETURN_IF_ERROR(workspace->Reserve(AttentionWorkspaceBytes(
      query.rows, key.rows, query.cols, value.cols, options.extra_key.rows)));
  Arena arena(workspace->data());
  KeySource source;
  source.key = &key;
  source.value = &value;
  Attend(query, source, sizes, options, outputs, {0, query.rows}, &arena);
  return Status();
}

Status AttentionTile(const HeadsView<const float>& query,
                     const HeadsView<const float>& key,
                     const AttentionOptions& options,
                     const AttentionTileRequest& request, float* tile,
                     Workspace* workspace) {
  const char* call = "attention tile";
  HEADWISE_RETURN_IF_ERROR(CheckPointer(call, "workspace", workspace));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "query", query));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "key", key));
  const auto output = HeadsView<float>::HeadsFirst(
      nullptr, query.batch, query.heads, query.rows, key.cols);
  HEADWISE_RETURN_IF_ERROR(CheckShapes(query, key, key, output));
  const AttentionSizes sizes = {query.batch, query.heads, key.heads, query.rows,
                                key.rows};
  HEADWISE_RETURN_IF_ERROR(CheckOptions(sizes, options));
  HEADWISE_RETURN_IF_ERROR(CheckBlockMask(sizes, options));
  HEADWISE_RETURN_IF_ERROR(CheckTile(sizes, request, tile));
  Arena counter;
  TakeAttentionScratch(request.row_end - request.row_begin,
                       request.key_end - request.key_begin, query.cols, 0, 0,
                       &counter);
  HEADWISE_RETURN_IF_ERROR(workspace->Reserve(counter.used()));
  Arena arena(workspace->data());
  AttendTile(query, key, sizes, options, request, tile, &arena);
  return Status();
}

}  // namespace headwise
