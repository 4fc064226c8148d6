// Kinds `onnx_attention` and `ort_onnx_attention`: the ONNX operator Attention
// over projected tensors. Bool masks say what may be attended, masks broadcast
// from the right, a mask shorter than the keys hides the rest.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "adapters.h"
#include "masks.h"

namespace headwise {
namespace conformance {
namespace {

// [B, H, L, D] of rank 4, or [B, L, H*D] of rank 3 with the heads side by side.
struct Heads {
  bool split = false;
  size_t batch = 0;
  size_t heads = 0;
  size_t rows = 0;
  size_t cols = 0;

  template <typename T>
  HeadsView<T> View(T* data) const {
    return split ? HeadsView<T>::HeadsLast(data, batch, heads, rows, cols)
                 : HeadsView<T>::HeadsFirst(data, batch, heads, rows, cols);
  }
  Shape shape() const {
    if (split) return {batch, rows, heads * cols};
    return {batch, heads, rows, cols};
  }
};

Heads HeadsOf(Case* c, const Tensor& tensor, const std::string& attribute) {
  const std::optional<int64_t> given = c->Integer(attribute);
  const Shape& shape = tensor.shape;
  if (shape.size() == 4) {
    if (given && *given != static_cast<int64_t>(shape[1])) {
      throw CaseError("attr." + attribute + " is not the " +
                      std::to_string(shape[1]) + " heads of " + tensor.name);
    }
    return {false, shape[0], shape[1], shape[2], shape[3]};
  }
  if (!given || *given <= 0 || shape[2] % static_cast<size_t>(*given) != 0) {
    throw CaseError(tensor.name + " of width " + std::to_string(shape[2]) +
                    " does not divide into attr." + attribute + " heads");
  }
  const size_t heads = static_cast<size_t>(*given);
  return {true, shape[0], heads, shape[1], shape[2] / heads};
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

// What came in, with heads first.
Result Present(const std::vector<float>& data, const Heads& heads) {
  Result present = {{heads.batch, heads.heads, heads.rows, heads.cols}, {}};
  const HeadsView<const float> view = heads.View(data.data());
  for (size_t b = 0; b < heads.batch; ++b) {
    for (size_t h = 0; h < heads.heads; ++h) {
      for (size_t i = 0; i < heads.rows; ++i) {
        const float* row = view.Row(b, h, i);
        present.values.insert(present.values.end(), row, row + heads.cols);
      }
    }
  }
  return present;
}

}  // namespace

Results RunOnnxAttention(Case* c) {
  if (c->Number("softcap").value_or(0.0) > 0.0) {
    throw CaseError("the adapter does not handle attr.softcap");
  }
  for (const char* name : {"left_window_size", "right_window_size"}) {
    if (c->Integer(name).value_or(-1) != -1) {
      throw CaseError(std::string("the adapter does not handle attr.") + name);
    }
  }
  RefuseInput(c, "past_key");
  RefuseInput(c, "past_value");
  // How the softmax of the source rounds.
  c->Attribute("softmax_precision");

  const Tensor& query = c->RequiredInput("Q", {{"F32"}, {3, 4}});
  const Case::Rules rules = {{"F32"}, {query.shape.size()}};
  const Tensor& key = c->RequiredInput("K", rules);
  const Tensor& value = c->RequiredInput("V", rules);
  const Heads queries = HeadsOf(c, query, "q_num_heads");
  const Heads keys = HeadsOf(c, key, "kv_num_heads");
  const Heads values = HeadsOf(c, value, "kv_num_heads");
  const Sizes sizes = {queries.batch, queries.heads, queries.rows, keys.rows};

  const int64_t mode = c->Integer("qk_matmul_output_mode").value_or(0);
  const bool need_weights = c->Wants("qk_matmul_output");
  if (need_weights && mode != 3) {
    throw CaseError("the adapter does not handle attr.qk_matmul_output_mode=" +
                    std::to_string(mode));
  }
  Masks masks = ReadMasks(c, sizes);
  AttentionOptions options = MaskOptions(sizes, kLowest, c, &masks);
  const std::optional<double> scale = c->Number("scale");
  if (scale) options.scale = static_cast<float>(*scale);

  const std::vector<float> query_data = query.Floats();
  const std::vector<float> key_data = key.Floats();
  const std::vector<float> value_data = value.Floats();
  const Heads out_heads = {queries.split, queries.batch, queries.heads,
                           queries.rows, values.cols};
  Result output = {out_heads.shape(), {}};
  output.values.resize(SizeOf(output.shape));
  Result weights = {{sizes.batch, sizes.heads, sizes.queries, sizes.keys}, {}};
  AttentionOutputs outputs;
  outputs.output = out_heads.View(output.values.data());
  if (need_weights) {
    weights.values.resize(SizeOf(weights.shape));
    outputs.weights_kind = WeightsKind::kPerHead;
    outputs.weights = weights.values.data();
  }
  Workspace workspace;
  Check(ScaledDotProductAttention(
      queries.View(query_data.data()), keys.View(key_data.data()),
      values.View(value_data.data()), options, outputs, &workspace));

  Results results;
  results["Y"] = std::move(output);
  if (need_weights) results["qk_matmul_output"] = std::move(weights);
  // Without a past the present is what came in.
  results["present_key"] = Present(key_data, keys);
  results["present_value"] = Present(value_data, values);
  return results;
}

}  // namespace conformance
}  // namespace headwise
