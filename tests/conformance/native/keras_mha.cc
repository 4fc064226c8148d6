// Kind `keras_mha`: kernels [in, heads, size] become rows [heads * size, in].
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters.h"
#include "masks.h"

namespace headwise {
namespace conformance {
namespace {

// [in, outs] to [outs, in].
std::vector<float> Transposed(const std::vector<float>& kernel, size_t in,
                              size_t outs) {
  std::vector<float> rows(kernel.size());
  for (size_t i = 0; i < in; ++i) {
    for (size_t o = 0; o < outs; ++o) rows[o * in + i] = kernel[i * outs + o];
  }
  return rows;
}

struct Projection {
  Shape kernel;
  std::vector<float> weight;  // [outs, in]
  std::optional<std::vector<float>> bias;

  LinearWeights weights() const {
    return {weight.data(), bias ? bias->data() : nullptr};
  }
};

// The first `in_axes` axes of the kernel are its input.
Projection ReadProjection(Case* c, const std::string& name, size_t in_axes) {
  const Tensor& kernel = c->RequiredParam(name + "_kernel", 3);
  const auto split = kernel.shape.begin() + in_axes;
  const Shape ins(kernel.shape.begin(), split);
  const Shape outs(split, kernel.shape.end());
  Projection projection;
  projection.kernel = kernel.shape;
  projection.weight = Transposed(kernel.Floats(), SizeOf(ins), SizeOf(outs));
  const Tensor* bias = c->Param(name + "_bias", outs.size());
  if (bias != nullptr) {
    if (bias->shape != outs) {
      throw CaseError(bias->name + " is " + ShapeText(bias->shape) + ", want " +
                      ShapeText(outs));
    }
    projection.bias = bias->Floats();
  }
  return projection;
}

void CheckSize(Case* c, const std::string& name, size_t size) {
  if (c->Size(name, size) != size) {
    throw CaseError("attr." + name + " is not " + std::to_string(size) +
                    ", as the kernels say");
  }
}

Masks ReadMasks(Case* c) {
  Masks masks;
  masks.causal = c->Flag("use_causal_mask", false);
  const Tensor* mask = c->Input("attention_mask", {{"BOOL"}, {2, 3, 4}});
  if (mask != nullptr) {
    std::array<size_t, 4> shape = ToRank4(mask->shape);
    // Rank 3 is [batch, queries, keys].
    if (mask->shape.size() == 3) std::swap(shape[0], shape[1]);
    masks.attend = BoolMask(*mask, shape, /*invert=*/false);
  }
  return masks;
}

}  // namespace

Results RunKerasMha(Case* c) {
  const Case::Rules rules = {{"F32"}, {3}};
  const Tensor& query = c->RequiredInput("query", rules);
  const Tensor& value = c->RequiredInput("value", rules);
  const Tensor* given_key = c->Input("key", rules);
  const Tensor& key = given_key == nullptr ? value : *given_key;

  const Projection query_projection = ReadProjection(c, "query", 1);
  const Projection key_projection = ReadProjection(c, "key", 1);
  const Projection value_projection = ReadProjection(c, "value", 1);
  const Projection out_projection = ReadProjection(c, "output", 2);
  Config config;
  config.embed_dim = query_projection.kernel[0];
  config.num_heads = query_projection.kernel[1];
  config.head_dim = query_projection.kernel[2];
  config.k_dim = key_projection.kernel[0];
  config.num_kv_heads = key_projection.kernel[1];
  config.v_dim = value_projection.kernel[0];
  config.v_head_dim = value_projection.kernel[2];
  config.out_dim = out_projection.kernel[2];
  CheckSize(c, "num_heads", config.num_heads);
  CheckSize(c, "key_dim", config.head_dim);
  CheckSize(c, "value_dim", config.v_head_dim);
  CheckSize(c, "output_dim", config.out_dim);
  if (key_projection.kernel[2] != config.head_dim ||
      value_projection.kernel[1] != config.num_kv_heads ||
      out_projection.kernel[0] != config.num_heads ||
      out_projection.kernel[1] != config.v_head_dim) {
    throw CaseError("the kernels do not fit together");
  }
  const bool use_bias = c->Flag("use_bias", true);
  for (const Projection* projection : {&query_projection, &key_projection,
                                       &value_projection, &out_projection}) {
    if (projection->bias.has_value() != use_bias) {
      throw CaseError("attr.use_bias contradicts the biases there are");
    }
  }
  config.query_bias = config.key_bias = config.value_bias = config.out_bias =
      use_bias;
  std::unique_ptr<MultiHeadAttention> mha;
  Check(MultiHeadAttention::Create(config, &mha));
  Weights weights;
  weights.query = query_projection.weights();
  weights.key = key_projection.weights();
  weights.value = value_projection.weights();
  weights.out = out_projection.weights();
  Check(mha->SetWeights(weights));

  const Sizes sizes = {query.shape[0], config.num_heads, query.shape[1],
                       key.shape[1]};
  Masks masks = ReadMasks(c);
  LayerOptions options;
  static_cast<AttentionOptions&>(options) =
      MaskOptions({}, sizes, {kKerasHidden}, c, &masks);
  const auto view = [](const std::vector<float>& data, const Shape& shape) {
    return TensorView<const float>(data.data(), shape[0], shape[1], shape[2]);
  };
  const std::vector<float> query_data = query.Floats();
  const std::vector<float> key_data = key.Floats();
  const std::vector<float> value_data = value.Floats();
  Result output = {{sizes.batch, sizes.queries, config.out_dim}, {}, {}};
  output.values.resize(SizeOf(output.shape));
  Result scores = {
      {sizes.batch, sizes.heads, sizes.queries, sizes.keys}, {}, {}};
  ForwardOutputs outputs;
  outputs.output = TensorView<float>(output.values.data(), sizes.batch,
                                     sizes.queries, config.out_dim);
  const bool need_weights = c->Wants("attention_scores");
  if (need_weights) {
    scores.values.resize(SizeOf(scores.shape));
    outputs.weights_kind = WeightsKind::kPerHead;
    outputs.weights = scores.values.data();
  }
  Workspace workspace;
  Check(mha->Forward(view(query_data, query.shape), view(key_data, key.shape),
                     view(value_data, value.shape), options, outputs,
                     &workspace));

  Results results;
  results["output"] = std::move(output);
  if (need_weights) results["attention_scores"] = std::move(scores);
  return results;
}

}  // namespace conformance
}  // namespace headwise
