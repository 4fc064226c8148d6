// Kind `ort_attention`: onnxruntime's contrib operator Attention, whose fused
// projection is that of a layer. It ends before the output projection: the
// layer's head outputs are its result.
#include <array>
#include <memory>
#include <optional>
#include <sstream>
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

// The widths of q, k and v.
std::array<size_t, 3> ReadWidths(Case* c, size_t total) {
  std::array<size_t, 3> widths = {total / 3, total / 3, total / 3};
  const std::optional<std::string> text = c->Attribute("qkv_hidden_sizes");
  if (text) {
    std::istringstream list(*text);
    char comma = 0;
    char comma2 = 0;
    if (!(list >> widths[0] >> comma >> widths[1] >> comma2 >> widths[2]) ||
        comma != ',' || comma2 != ',' || !(list >> std::ws).eof()) {
      throw CaseError("attr.qkv_hidden_sizes is \"" + *text +
                      "\", want three widths");
    }
  }
  if (widths[0] + widths[1] + widths[2] != total) {
    throw CaseError("the widths of q, k and v do not add up to " +
                    std::to_string(total));
  }
  if (widths[0] != widths[1]) throw CaseError("q and k differ in width");
  return widths;
}

// Columns [first, first + count) of [rows, cols], as a layer has them: [out,
// in].
std::vector<float> TransposedColumns(const Tensor& matrix, size_t first,
                                     size_t count) {
  const size_t rows = matrix.shape[0], cols = matrix.shape[1];
  std::vector<float> result;
  for (size_t col = first; col < first + count; ++col) {
    for (size_t row = 0; row < rows; ++row) {
      result.push_back(static_cast<float>(matrix.values[row * cols + col]));
    }
  }
  return result;
}

std::unique_ptr<MultiHeadAttention> MakeLayer(Case* c, size_t width,
                                              size_t heads) {
  const Tensor& matrix = c->RequiredInput("weights", {{"F32"}, {2}});
  const Tensor* given_bias = c->Input("bias", {{"F32"}, {1}});
  if (matrix.shape[0] != width) {
    throw CaseError("in.weights is " + ShapeText(matrix.shape) +
                    ", but in.input is " + std::to_string(width) + " wide");
  }
  const std::array<size_t, 3> widths = ReadWidths(c, matrix.shape[1]);
  for (const size_t part : widths) {
    if (heads == 0 || part % heads != 0) {
      throw CaseError("a width of " + std::to_string(part) +
                      " does not divide into " + std::to_string(heads) +
                      " heads");
    }
  }
  const bool has_bias = given_bias != nullptr;
  std::vector<float> bias;
  if (has_bias) bias = given_bias->Floats();
  if (has_bias && bias.size() != matrix.shape[1]) {
    throw CaseError("in.bias does not fit in.weights");
  }

  Config config;
  config.embed_dim = config.k_dim = config.v_dim = width;
  config.num_heads = config.num_kv_heads = heads;
  config.head_dim = widths[0] / heads;
  config.v_head_dim = widths[2] / heads;
  config.out_dim = 1;  // nobody looks at it
  config.query_bias = config.key_bias = config.value_bias = has_bias;
  config.out_bias = false;
  std::unique_ptr<MultiHeadAttention> mha;
  Check(MultiHeadAttention::Create(config, &mha));

  std::array<std::vector<float>, 3> parts;
  std::array<LinearWeights, 3> linear;
  size_t first = 0;
  for (size_t i = 0; i < 3; ++i) {
    parts[i] = TransposedColumns(matrix, first, widths[i]);
    linear[i] = {parts[i].data(), has_bias ? bias.data() + first : nullptr};
    first += widths[i];
  }
  const std::vector<float> out(widths[2]);
  Weights weights;
  weights.query = linear[0];
  weights.key = linear[1];
  weights.value = linear[2];
  weights.out = {out.data(), nullptr};
  Check(mha->SetWeights(weights));
  return mha;
}

// The two halves of [2, B, H, P, D].
std::optional<Past> ReadFusedPast(Case* c, size_t heads) {
  const Tensor* past = c->Input("past", {{"F32"}, {5}});
  if (past == nullptr) return std::nullopt;
  const Shape& shape = past->shape;
  if (shape[0] != 2 || shape[2] != heads) {
    throw CaseError("in.past is " + ShapeText(shape) + ", want [2,B," +
                    std::to_string(heads) + ",P,D]");
  }
  const std::vector<float> all = past->Floats();
  const auto half = all.begin() + all.size() / 2;
  Past result;
  result.key = {false,    shape[1], shape[2],
                shape[3], shape[4], std::vector<float>(all.begin(), half)};
  result.value = result.key;
  result.value.data.assign(half, all.end());
  result.lengths.assign(shape[1], static_cast<int32_t>(shape[3]));
  return result;
}

void ReadMaskIndex(Case* c, const Sizes& sizes, size_t past_rows,
                   Masks* masks) {
  const Tensor* mask = c->Input("mask_index", {{"I32"}, {1, 2, 3, 4}});
  if (mask == nullptr) return;
  const Shape& shape = mask->shape;
  const size_t batch = sizes.batch, keys = sizes.keys;
  if (shape.size() == 1 && shape[0] == batch) {
    masks->lengths = ClampedLengths(mask->values, 0, batch, keys);
  } else if (shape.size() == 1 && shape[0] == 2 * batch) {
    masks->lengths = ClampedLengths(mask->values, 0, batch, keys);
    const std::vector<int32_t> starts =
        ClampedLengths(mask->values, batch, batch, keys);
    for (const int32_t start : starts) {
      for (size_t j = 0; j < keys; ++j) {
        masks->padding.push_back(int64_t(j) < start ? 1 : 0);
      }
    }
  } else if (shape == Shape{batch, keys}) {
    masks->padding = KeepMask(*mask, {batch, 1, 1, keys}).values;
    for (uint8_t& keep : masks->padding) keep = keep == 0 ? 1 : 0;
  } else if (shape == Shape{batch, 1}) {
    // A dummy, which masks nothing.
  } else if (shape.size() == 3) {
    masks->attend = KeepMask(*mask, {batch, 1, sizes.queries, keys});
  } else if (shape.size() == 4 && shape[0] == batch && shape[1] == 1 &&
             shape[2] >= past_rows + sizes.queries && shape[3] >= keys) {
    // Row P + i and column j of a larger square.
    Tensor part = *mask;
    part.values.clear();
    for (size_t b = 0; b < batch; ++b) {
      for (size_t i = 0; i < sizes.queries; ++i) {
        const auto row =
            mask->values.begin() + (b * shape[2] + past_rows + i) * shape[3];
        part.values.insert(part.values.end(), row, row + keys);
      }
    }
    masks->attend = KeepMask(part, {batch, 1, sizes.queries, keys});
  } else {
    throw CaseError("in.mask_index has the unknown shape " + ShapeText(shape));
  }
}

// Keys and values one behind the other: [2, B, H, S, D].
Result Present(const KvCache& cache, size_t rows) {
  Result present = CachedKeys(cache, rows);
  const Result values = CachedValues(cache, rows);
  present.values.insert(present.values.end(), values.values.begin(),
                        values.values.end());
  present.shape.insert(present.shape.begin(), 2);
  return present;
}

}  // namespace

Results RunOrtAttention(Case* c) {
  const Tensor& input = c->RequiredInput("input", {{"F32"}, {3}});
  const size_t heads = c->Size("num_heads", std::nullopt);
  const std::unique_ptr<MultiHeadAttention> mha =
      MakeLayer(c, input.shape[2], heads);
  const Config& config = mha->config();
  const std::optional<Past> past = ReadFusedPast(c, heads);
  const size_t past_rows = past ? past->key.rows : 0;
  const size_t queries = input.shape[1];
  const Sizes sizes = {input.shape[0], heads, queries, past_rows + queries};

  Masks masks;
  ReadOrtBias(c, &masks);
  ReadMaskIndex(c, sizes, past_rows, &masks);
  if (past) masks.offsets = past->lengths;
  const bool wants_present = c->Wants("present");
  if (wants_present && config.head_dim != config.v_head_dim) {
    throw CaseError("out.present holds keys and values of different widths");
  }
  const bool cached = past || wants_present;
  if (cached) FoldPadding(sizes, &masks);
  LayerOptions options;
  static_cast<AttentionOptions&>(options) =
      MaskOptions(OrtOptions(c), sizes, OrtRule(c), c, &masks);
  RotaryConfig rotary;  // half split, all of a head, base 10000
  if (c->Flag("do_rotary", false)) options.rotary = &rotary;
  std::unique_ptr<KvCache> cache;
  if (cached) {
    // The cache says where queries stand.
    options.query_offsets = nullptr;
    const Heads key = {false, sizes.batch, heads, queries, config.head_dim, {}};
    const Heads value = {false,   sizes.batch,       heads,
                         queries, config.v_head_dim, {}};
    if (past) CheckPast(*past, key, value);
    cache = FillCache(past ? &*past : nullptr, key, value, queries);
    options.cache = cache.get();
  }

  const std::vector<float> data = input.Floats();
  const TensorView<const float> x(data.data(), sizes.batch, queries,
                                  input.shape[2]);
  std::vector<float> projected(sizes.batch * queries);
  Result output = {{sizes.batch, queries, heads * config.v_head_dim}, {}, {}};
  output.values.resize(SizeOf(output.shape));
  ForwardOutputs outputs;
  outputs.output = TensorView<float>(projected.data(), sizes.batch, queries, 1);
  outputs.head_outputs = output.values.data();
  Workspace workspace;
  Check(mha->Forward(x, x, x, options, outputs, &workspace));

  Results results;
  results["output"] = std::move(output);
  if (cached) results["present"] = Present(*cache, sizes.keys);
  return results;
}

}  // namespace conformance
}  // namespace headwise
