// Kind `ort_mha`: onnxruntime's contrib operator MultiHeadAttention over
// projected tensors. Its biases go through layers with identity weights.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters.h"
#include "attend.h"
#include "heads.h"
#include "ort_masks.h"

namespace headwise {
namespace conformance {
namespace {

struct Inputs {
  Heads query, key, value;
  bool bias_key_value = false;  // they came with rank 3
};

Inputs ReadInputs(Case* c, size_t heads) {
  const Tensor& query = c->RequiredInput("query", {{"F32"}, {3, 5}});
  const Tensor* key = c->Input("key", {{"F32"}, {3, 4, 5}});
  const Tensor* value = c->Input("value", {{"F32"}, {3, 4}});
  const auto check_packed = [&](const Tensor& tensor, size_t parts) {
    if (tensor.shape[2] == heads && tensor.shape[3] == parts) return;
    throw CaseError(tensor.name + " is " + ShapeText(tensor.shape) +
                    ", want [B,L," + std::to_string(heads) + "," +
                    std::to_string(parts) + ",D]");
  };
  if (query.shape.size() == 5) {
    if (key != nullptr || value != nullptr) {
      throw CaseError("in.query is packed, but there is a key or value");
    }
    check_packed(query, 3);
    return {PackedPart(query, 0), PackedPart(query, 1), PackedPart(query, 2),
            false};
  }
  if (key == nullptr) throw CaseError("in.key is missing");
  Inputs inputs;
  inputs.query = ReadHeads(query, heads);
  if (key->shape.size() == 5) {
    if (value != nullptr) {
      throw CaseError("in.key is packed, but there is a value");
    }
    check_packed(*key, 2);
    inputs.key = PackedPart(*key, 0);
    inputs.value = PackedPart(*key, 1);
    return inputs;
  }
  if (value == nullptr || value->shape.size() != key->shape.size()) {
    throw CaseError("in.value must be there, with the rank of in.key");
  }
  inputs.key = ReadHeads(*key, heads);
  inputs.value = ReadHeads(*value, heads);
  inputs.bias_key_value = key->shape.size() == 3;
  return inputs;
}

// x and the bias, side by side: a projection that projects nothing.
void AddBias(const float* bias, Heads* x) {
  const size_t width = x->heads * x->cols;
  std::vector<float> identity(width * width);
  for (size_t i = 0; i < width; ++i) identity[i * width + i] = 1.0f;
  std::unique_ptr<Linear> linear;
  Check(Linear::FromWeights({identity.data(), bias}, width, width, &linear));
  std::vector<float> sum(x->data.size());
  Workspace workspace;
  Check(linear->Forward(
      TensorView<const float>(x->data.data(), x->batch, x->rows, width),
      TensorView<float>(sum.data(), x->batch, x->rows, width), &workspace));
  x->data = std::move(sum);
}

void AddBiases(Case* c, Inputs* inputs) {
  const Tensor* tensor = c->Input("bias", {{"F32"}, {1}});
  if (tensor == nullptr) return;
  const size_t width = inputs->query.heads * inputs->query.cols;
  const size_t v_width = inputs->value.heads * inputs->value.cols;
  if (tensor->values.size() != 2 * width + v_width) {
    throw CaseError("in.bias has " + std::to_string(tensor->values.size()) +
                    " values, want " + std::to_string(2 * width + v_width));
  }
  const std::vector<float> bias = tensor->Floats();
  AddBias(bias.data(), &inputs->query);
  if (!inputs->bias_key_value) return;
  AddBias(bias.data() + width, &inputs->key);
  AddBias(bias.data() + 2 * width, &inputs->value);
}

void ReadPadding(Case* c, const Sizes& sizes, Masks* masks) {
  const Tensor* mask = c->Input("key_padding_mask", {{"I32"}, {1, 2, 3}});
  if (mask == nullptr) return;
  const Shape& shape = mask->shape;
  if (shape.size() == 1) {
    if (shape[0] != sizes.batch && shape[0] != 3 * sizes.batch + 2) {
      throw CaseError("in.key_padding_mask has " + std::to_string(shape[0]) +
                      " entries for a batch of " + std::to_string(sizes.batch));
    }
    masks->lengths = ClampedLengths(mask->values, 0, sizes.batch, sizes.keys);
  } else if (shape.size() == 2) {
    masks->padding = KeepMask(*mask, {sizes.batch, 1, 1, sizes.keys}).values;
    for (uint8_t& keep : masks->padding) keep = keep == 0 ? 1 : 0;
  } else {
    masks->attend =
        KeepMask(*mask, {sizes.batch, 1, sizes.queries, sizes.keys});
  }
}

}  // namespace

Results RunOrtMha(Case* c) {
  const size_t heads = c->Size("num_heads", std::nullopt);
  Inputs inputs = ReadInputs(c, heads);
  AddBiases(c, &inputs);
  Attention call;
  call.query = std::move(inputs.query);
  call.key = std::move(inputs.key);
  call.value = std::move(inputs.value);
  call.past = ReadPast(c, heads);
  const bool wants_scores = c->Wants("output_qk");
  if (wants_scores) call.scores_kind = ScoresKind::kRaw;
  const Sizes sizes = {call.query.batch, heads, call.query.rows,
                       call.key_rows()};
  Masks masks;
  ReadOrtBias(c, &masks);
  ReadPadding(c, sizes, &masks);

  Attended attended = Attend(call, OrtOptions(c), OrtRule(c), c, &masks);
  Results results;
  results["output"] = {
      attended.output.shape(), std::move(attended.output.data), {}};
  if (wants_scores) results["output_qk"] = std::move(attended.scores);
  results["present_key"] = std::move(attended.present_key);
  results["present_value"] = std::move(attended.present_value);
  return results;
}

}  // namespace conformance
}  // namespace headwise
