// Kind `torch_mha`: torch.nn.MultiheadAttention. Its bool masks hide where
// true; its inputs are length first unless told otherwise, which strided views
// read as they lie.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters.h"
#include "masks.h"

namespace headwise {
namespace conformance {
namespace {

// How the batch and length axes lie in memory.
enum class Layout { kUnbatched, kBatchFirst, kLengthFirst };

struct Activations {
  size_t batch = 1;
  size_t rows = 0;
  size_t cols = 0;
};

Activations SizesOf(const Shape& shape, Layout layout) {
  switch (layout) {
    case Layout::kUnbatched:
      return {1, shape[0], shape[1]};
    case Layout::kBatchFirst:
      return {shape[0], shape[1], shape[2]};
    case Layout::kLengthFirst:
      return {shape[1], shape[0], shape[2]};
  }
  return {};
}

template <typename T>
TensorView<T> View(T* data, const Activations& sizes, Layout layout) {
  TensorView<T> view(data, sizes.batch, sizes.rows, sizes.cols);
  if (layout == Layout::kLengthFirst) {
    view.batch_stride = sizes.cols;
    view.row_stride = sizes.batch * sizes.cols;
  }
  return view;
}

Masks ReadMasks(Case* c, const Sizes& sizes, Layout layout) {
  Masks masks;
  masks.causal = c->Flag("causal", false);
  const Tensor* attn = c->Input("attn_mask", {{"BOOL", "F32"}, {2, 3}});
  if (attn != nullptr) {
    // [B*H, L, S] has the head fastest.
    std::array<size_t, 4> shape = {1, 1, sizes.queries, sizes.keys};
    if (attn->shape.size() == 3)
      shape = {sizes.batch, sizes.heads, sizes.queries, sizes.keys};
    if (attn->dtype == "BOOL") {
      masks.attend = BoolMask(*attn, shape, /*invert=*/true);
    } else {
      masks.bias = FloatMask(*attn, shape);
    }
  }
  const size_t rank = layout == Layout::kUnbatched ? 1 : 2;
  const Tensor* padding =
      c->Input("key_padding_mask", {{"BOOL", "F32"}, {rank}});
  if (padding != nullptr) {
    const std::array<size_t, 4> shape = {sizes.batch, 1, 1, sizes.keys};
    if (padding->dtype == "BOOL") {
      masks.padding = BoolMask(*padding, shape, /*invert=*/false).values;
    } else {
      const Mask<float> bias = FloatMask(*padding, shape);
      masks.bias = masks.bias.present ? AddMasks(masks.bias, bias) : bias;
    }
  }
  return masks;
}

// The parameters, which must outlive the pointers into them.
struct Parameters {
  std::vector<float> query, key, value, out;
  std::vector<float> in_bias, out_bias;
  bool has_in_bias = false;
  bool has_out_bias = false;
  std::vector<float> bias_k, bias_v;  // empty: none
};

std::vector<float> MatrixOf(Case* c, const std::string& name, size_t rows,
                            size_t cols) {
  const Tensor& tensor = c->RequiredParam(name, 2);
  if (tensor.shape != Shape{rows, cols}) {
    throw CaseError("param." + name + " is " + ShapeText(tensor.shape) +
                    ", want " + ShapeText({rows, cols}));
  }
  return tensor.Floats();
}

std::vector<float> BiasOf(const Tensor& tensor, size_t size) {
  if (tensor.shape != Shape{size}) {
    throw CaseError(tensor.name + " is " + ShapeText(tensor.shape) + ", want " +
                    ShapeText({size}));
  }
  return tensor.Floats();
}

// bias_k or bias_v, [1, 1, E].
std::vector<float> ExtraOf(Case* c, const std::string& name, size_t size) {
  const Tensor& tensor = c->RequiredParam(name, 3);
  if (tensor.shape != Shape{1, 1, size}) {
    throw CaseError("param." + name + " is " + ShapeText(tensor.shape) +
                    ", want " + ShapeText({1, 1, size}));
  }
  return tensor.Floats();
}

Parameters ReadParameters(Case* c, const Config& config) {
  const size_t width = config.embed_dim;
  Parameters p;
  if (c->Param("in_proj_weight", 2) != nullptr) {
    if (config.k_dim != width || config.v_dim != width) {
      throw CaseError("param.in_proj_weight, but the widths differ");
    }
    const std::vector<float> all =
        MatrixOf(c, "in_proj_weight", 3 * width, width);
    const auto part = all.begin() + width * width;
    p.query.assign(all.begin(), part);
    p.key.assign(part, part + width * width);
    p.value.assign(part + width * width, all.end());
  } else {
    p.query = MatrixOf(c, "q_proj_weight", width, width);
    p.key = MatrixOf(c, "k_proj_weight", width, config.k_dim);
    p.value = MatrixOf(c, "v_proj_weight", width, config.v_dim);
  }
  p.out = MatrixOf(c, "out_proj.weight", width, width);

  const bool biases = c->Flag("bias", true);
  const Tensor* in_bias = c->Param("in_proj_bias", 1);
  const Tensor* out_bias = c->Param("out_proj.bias", 1);
  if (!biases && (in_bias != nullptr || out_bias != nullptr)) {
    throw CaseError("attr.bias=0, but there is a bias");
  }
  // Only the functional calls can leave the parameter aside; the note is where
  // such a case says so.
  const std::string note = c->note();
  const bool unused = note.find("in_proj_bias ") != std::string::npos &&
                      note.find("NOT used") != std::string::npos;
  if (in_bias != nullptr && !unused) {
    p.has_in_bias = true;
    p.in_bias = BiasOf(*in_bias, 3 * width);
  }
  if (out_bias != nullptr) {
    p.has_out_bias = true;
    p.out_bias = BiasOf(*out_bias, width);
  }
  if (config.add_bias_kv) {
    p.bias_k = ExtraOf(c, "bias_k", width);
    p.bias_v = ExtraOf(c, "bias_v", width);
  }
  return p;
}

// An input of a layer, and where it lies.
struct Source {
  std::vector<float> data;
  Activations sizes;
  Layout layout = Layout::kBatchFirst;

  TensorView<const float> view() const {
    return View(data.data(), sizes, layout);
  }
};

Source SourceOf(const Tensor& tensor, Layout layout) {
  return {tensor.Floats(), SizesOf(tensor.shape, layout), layout};
}

// A projected key or value [B*H, S, D], which stands for what the projection
// would give: its heads side by side, and a projection that changes nothing.
Source StaticSource(const Tensor& tensor, size_t batch, const Config& config,
                    std::vector<float>* weight) {
  const size_t rows = tensor.shape[1], cols = config.embed_dim;
  const size_t heads = config.num_heads;
  if (tensor.shape[0] != batch * heads || heads * tensor.shape[2] != cols) {
    throw CaseError(tensor.name + " " + ShapeText(tensor.shape) +
                    " does not fit the query");
  }
  const size_t head_dim = tensor.shape[2];
  const std::vector<float> heads_first = tensor.Floats();
  Source source = {{}, {batch, rows, cols}, Layout::kBatchFirst};
  for (size_t b = 0; b < batch; ++b) {
    for (size_t i = 0; i < rows; ++i) {
      for (size_t h = 0; h < heads; ++h) {
        const auto row =
            heads_first.begin() + ((b * heads + h) * rows + i) * head_dim;
        source.data.insert(source.data.end(), row, row + head_dim);
      }
    }
  }
  weight->assign(cols * cols, 0.0f);
  for (size_t i = 0; i < cols; ++i) (*weight)[i * cols + i] = 1.0f;
  return source;
}

}  // namespace

Results RunTorchMha(Case* c) {
  // How torch was called; the numbers are the same.
  for (const char* name : {"functional", "eval_no_grad", "dropout"}) {
    c->Attribute(name);
  }

  const bool batch_first = c->Flag("batch_first", false);
  const Layout layout = c->Flag("unbatched", false) ? Layout::kUnbatched
                        : batch_first               ? Layout::kBatchFirst
                                                    : Layout::kLengthFirst;
  const Case::Rules rules = {{"F32"},
                             {size_t{layout == Layout::kUnbatched ? 2u : 3u}}};
  const Tensor& query = c->RequiredInput("query", rules);
  const Tensor& key = c->RequiredInput("key", rules);
  const Tensor& value = c->RequiredInput("value", rules);
  const Source queries = SourceOf(query, layout);
  Source keys = SourceOf(key, layout);
  Source values = SourceOf(value, layout);

  Config config;
  config.embed_dim = c->Size("embed_dim", queries.sizes.cols);
  config.num_heads = c->Size("num_heads", std::nullopt);
  config.k_dim = c->Size("kdim", config.embed_dim);
  config.v_dim = c->Size("vdim", config.embed_dim);
  config.add_bias_kv = c->Flag("add_bias_kv", false);
  config.add_zero_attn = c->Flag("add_zero_attn", false);
  Parameters p = ReadParameters(c, config);
  config.query_bias = config.key_bias = config.value_bias = p.has_in_bias;
  config.out_bias = p.has_out_bias;
  const size_t batch = queries.sizes.batch;
  const Tensor* static_k = c->Input("static_k", {{"F32"}, {3}});
  const Tensor* static_v = c->Input("static_v", {{"F32"}, {3}});
  if (static_k != nullptr) {
    keys = StaticSource(*static_k, batch, config, &p.key);
    config.k_dim = config.embed_dim;
    config.key_bias = false;
  }
  if (static_v != nullptr) {
    values = StaticSource(*static_v, batch, config, &p.value);
    config.v_dim = config.embed_dim;
    config.value_bias = false;
  }
  std::unique_ptr<MultiHeadAttention> mha;
  Check(MultiHeadAttention::Create(config, &mha));

  const size_t width = config.embed_dim;
  const auto bias = [&](bool present, size_t i) {
    return present ? p.in_bias.data() + i * width : nullptr;
  };
  Weights weights;
  weights.query = {p.query.data(), bias(config.query_bias, 0)};
  weights.key = {p.key.data(), bias(config.key_bias, 1)};
  weights.value = {p.value.data(), bias(config.value_bias, 2)};
  weights.out = {p.out.data(), p.has_out_bias ? p.out_bias.data() : nullptr};
  if (config.add_bias_kv) {
    weights.bias_k = p.bias_k.data();
    weights.bias_v = p.bias_v.data();
  }
  Check(mha->SetWeights(weights));

  const Sizes sizes = {batch, config.num_heads, queries.sizes.rows,
                       keys.sizes.rows};
  Masks masks = ReadMasks(c, sizes, layout);
  LayerOptions options;
  static_cast<AttentionOptions&>(options) =
      MaskOptions({}, sizes, {kKerasHidden}, c, &masks);

  const bool per_head = !c->Flag("average_attn_weights", true);
  const bool need_weights = c->Flag("need_weights", true);
  Result output = {query.shape, {}, {}};
  output.shape.back() = width;
  output.values.resize(SizeOf(output.shape));
  Result attn_weights;
  if (layout != Layout::kUnbatched) attn_weights.shape.push_back(sizes.batch);
  if (per_head) attn_weights.shape.push_back(sizes.heads);
  attn_weights.shape.push_back(sizes.queries);
  // The extra keys come last.
  attn_weights.shape.push_back(sizes.keys + config.add_bias_kv +
                               config.add_zero_attn);
  attn_weights.values.resize(SizeOf(attn_weights.shape));

  const Activations out_sizes = {batch, sizes.queries, width};
  ForwardOutputs outputs;
  outputs.output = View(output.values.data(), out_sizes, layout);
  if (need_weights) {
    outputs.weights_kind =
        per_head ? WeightsKind::kPerHead : WeightsKind::kAveraged;
    outputs.weights = attn_weights.values.data();
  }
  Workspace workspace;
  Check(mha->Forward(queries.view(), keys.view(), values.view(), options,
                     outputs, &workspace));

  Results results;
  results["attn_output"] = std::move(output);
  if (need_weights) results["attn_weights"] = std::move(attn_weights);
  return results;
}

}  // namespace conformance
}  // namespace headwise
