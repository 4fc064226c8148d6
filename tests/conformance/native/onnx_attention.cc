// Kinds `onnx_attention` and `ort_onnx_attention`: the ONNX operator Attention
// over projected tensors. Bool masks say what may be attended, masks broadcast
// from the right, a mask shorter than the keys hides the rest.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "adapters.h"
#include "attend.h"
#include "heads.h"
#include "masks.h"

namespace headwise {
namespace conformance {
namespace {

// Of rank 4, or of rank 3 with the attribute's number of heads.
Heads HeadsOf(Case* c, const Tensor& tensor, const std::string& attribute) {
  const std::optional<int64_t> given = c->Integer(attribute);
  if (given && *given <= 0) {
    throw CaseError("attr." + attribute + " is not positive");
  }
  if (!given && tensor.shape.size() == 3) {
    throw CaseError("attr." + attribute + " is missing");
  }
  return ReadHeads(tensor,
                   given ? static_cast<size_t>(*given) : tensor.shape[1]);
}

// The last axis `size` long, filled up with `value`.
Tensor ExtendLast(const Tensor& tensor, size_t size, double value) {
  Tensor longer = tensor;
  const size_t had = tensor.shape.back();
  longer.shape.back() = size;
  longer.values.assign(SizeOf(longer.shape), value);
  const size_t rows = size == 0 ? 0 : longer.values.size() / size;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t j = 0; j < had; ++j) {
      longer.values[row * size + j] = tensor.values[row * had + j];
    }
  }
  return longer;
}

Masks ReadMasks(Case* c, const Sizes& sizes) {
  Masks masks;
  masks.causal = c->Flag("is_causal", false);
  masks.window_left = c->Integer("left_window_size").value_or(-1);
  masks.window_right = c->Integer("right_window_size").value_or(-1);
  for (const int64_t side : {masks.window_left, masks.window_right}) {
    if (side < -1) throw CaseError("a window size is below -1");
  }
  const Tensor* given = c->Input("attn_mask", {{"BOOL", "F32"}, {1, 2, 3, 4}});
  if (given != nullptr) {
    const bool is_bool = given->dtype == "BOOL";
    Tensor whole = *given;
    if (given->shape.back() < sizes.keys) {
      whole =
          ExtendLast(*given, sizes.keys,
                     is_bool ? 0.0 : -std::numeric_limits<double>::infinity());
    }
    const std::array<size_t, 4> shape = ToRank4(whole.shape);
    if (is_bool) {
      masks.attend = BoolMask(whole, shape, /*invert=*/false);
    } else {
      masks.bias = FloatMask(whole, shape);
    }
  }
  const Tensor* lengths = c->Input("nonpad_kv_seqlen", {{"I64", "I32"}, {1}});
  if (lengths != nullptr) {
    if (lengths->values.size() != sizes.batch) {
      throw CaseError("in.nonpad_kv_seqlen has " +
                      std::to_string(lengths->values.size()) +
                      " entries, want " + std::to_string(sizes.batch));
    }
    for (const double length : lengths->values) {
      if (length < 0 || length > static_cast<double>(sizes.keys)) {
        throw CaseError("in.nonpad_kv_seqlen is out of range");
      }
      masks.lengths.push_back(static_cast<int32_t>(length));
      masks.offsets.push_back(static_cast<int32_t>(length) -
                              static_cast<int32_t>(sizes.queries));
    }
  }
  return masks;
}

ScoresKind ScoresOf(int64_t mode) {
  switch (mode) {
    case 0:
      return ScoresKind::kRaw;
    case 1:
      return ScoresKind::kCapped;
    case 2:
      return ScoresKind::kBiased;
    default:
      throw CaseError("attr.qk_matmul_output_mode is " + std::to_string(mode) +
                      ", want 0 to 3");
  }
}

}  // namespace

Results RunOnnxAttention(Case* c) {
  // How the softmax of the source rounds.
  c->Integer("softmax_precision");

  const Tensor& query = c->RequiredInput("Q", {{"F32"}, {3, 4}});
  const Case::Rules rules = {{"F32"}, {query.shape.size()}};
  Attention call;
  call.query = HeadsOf(c, query, "q_num_heads");
  call.key = HeadsOf(c, c->RequiredInput("K", rules), "kv_num_heads");
  call.value = HeadsOf(c, c->RequiredInput("V", rules), "kv_num_heads");
  call.past = ReadPast(c, call.key.heads);
  const Sizes sizes = {call.query.batch, call.query.heads, call.query.rows,
                       call.key_rows()};

  const int64_t mode = c->Integer("qk_matmul_output_mode").value_or(0);
  const bool wants_scores = c->Wants("qk_matmul_output");
  call.need_weights = wants_scores && mode == 3;
  if (wants_scores && mode != 3) call.scores_kind = ScoresOf(mode);
  Masks masks = ReadMasks(c, sizes);
  if (call.past && !masks.lengths.empty()) {
    throw CaseError("in.nonpad_kv_seqlen contradicts in.past_key");
  }
  AttentionOptions options;
  const std::optional<double> scale = c->Number("scale");
  if (scale) options.scale = static_cast<float>(*scale);
  const double softcap = c->Number("softcap").value_or(0.0);
  if (softcap > 0.0) options.softcap = static_cast<float>(softcap);

  Attended attended = Attend(call, options, FiniteRule(), c, &masks);
  Results results;
  results["Y"] = {attended.output.shape(), std::move(attended.output.data), {}};
  if (wants_scores) results["qk_matmul_output"] = std::move(attended.scores);
  results["present_key"] = std::move(attended.present_key);
  results["present_value"] = std::move(attended.present_value);
  return results;
}

}  // namespace conformance
}  // namespace headwise
