#include "layer_case.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "headwise/workspace.h"
#include "reference/multi_head_attention.h"
#include "tolerance.h"

namespace headwise {
namespace {

using Projection = LayerWeights::Projection;

Projection Sized(size_t in, size_t out, bool bias) {
  Projection projection;
  projection.weight.resize(in * out);
  projection.bias.resize(bias ? out : 0);
  return projection;
}

LinearWeights View(const Projection& projection) {
  return {projection.weight.data(),
          projection.bias.empty() ? nullptr : projection.bias.data()};
}

LinearWeightsOut OutView(Projection* projection) {
  return {projection->weight.data(),
          projection->bias.empty() ? nullptr : projection->bias.data()};
}

}  // namespace

LayerWeights LayerWeights::Sized(const Config& c) {
  LayerWeights weights;
  weights.query =
      headwise::Sized(c.embed_dim, c.num_heads * c.head_dim, c.query_bias);
  weights.key =
      headwise::Sized(c.k_dim, c.num_kv_heads * c.head_dim, c.key_bias);
  weights.value =
      headwise::Sized(c.v_dim, c.num_kv_heads * c.v_head_dim, c.value_bias);
  weights.out =
      headwise::Sized(c.num_heads * c.v_head_dim, c.out_dim, c.out_bias);
  if (c.add_bias_kv) {
    weights.bias_k.resize(c.num_kv_heads * c.head_dim);
    weights.bias_v.resize(c.num_kv_heads * c.v_head_dim);
  }
  return weights;
}

LayerWeights LayerWeights::Uniform(const Config& config, Random* random) {
  LayerWeights weights = Sized(config);
  for (Projection* p :
       {&weights.query, &weights.key, &weights.value, &weights.out}) {
    p->weight = random->Floats(p->weight.size());
    p->bias = random->Floats(p->bias.size());
  }
  weights.bias_k = random->Floats(weights.bias_k.size());
  weights.bias_v = random->Floats(weights.bias_v.size());
  return weights;
}

LayerWeights LayerWeights::Of(const MultiHeadAttention& layer) {
  LayerWeights weights = Sized(layer.config());
  const Status status = layer.GetWeights(weights.out_view());
  EXPECT_TRUE(status.ok()) << status.message();
  return weights;
}

LayerOptions Layered(const AttentionOptions& options) {
  LayerOptions layered;
  static_cast<AttentionOptions&>(layered) = options;
  return layered;
}

Weights LayerWeights::view() const {
  Weights weights;
  weights.query = View(query);
  weights.key = View(key);
  weights.value = View(value);
  weights.out = View(out);
  weights.bias_k = bias_k.empty() ? nullptr : bias_k.data();
  weights.bias_v = bias_v.empty() ? nullptr : bias_v.data();
  return weights;
}

WeightsOut LayerWeights::out_view() {
  WeightsOut weights;
  weights.query = OutView(&query);
  weights.key = OutView(&key);
  weights.value = OutView(&value);
  weights.out = OutView(&out);
  weights.bias_k = bias_k.empty() ? nullptr : bias_k.data();
  weights.bias_v = bias_v.empty() ? nullptr : bias_v.data();
  return weights;
}

testing::AssertionResult SameBits(const LayerWeights& a,
                                  const LayerWeights& b) {
  const std::pair<const Projection*, const Projection*> pairs[] = {
      {&a.query, &b.query},
      {&a.key, &b.key},
      {&a.value, &b.value},
      {&a.out, &b.out}};
  for (const auto& [left, right] : pairs) {
    testing::AssertionResult result = SameBits(left->weight, right->weight);
    if (!result) return result;
    result = SameBits(left->bias, right->bias);
    if (!result) return result;
  }
  const testing::AssertionResult keys = SameBits(a.bias_k, b.bias_k);
  return keys ? SameBits(a.bias_v, b.bias_v) : keys;
}

Config Resolved(const Config& config) {
  Config resolved;
  const Status status = Resolve(config, &resolved);
  EXPECT_TRUE(status.ok()) << status.message();
  return resolved;
}

std::unique_ptr<MultiHeadAttention> MakeLayer(const Config& config,
                                              const LayerWeights& weights) {
  std::unique_ptr<MultiHeadAttention> layer;
  Status status = MultiHeadAttention::Create(config, &layer);
  if (status.ok()) status = layer->SetWeights(weights.view());
  EXPECT_TRUE(status.ok()) << status.message();
  return status.ok() ? std::move(layer) : nullptr;
}

LayerRun RunLayer(const MultiHeadAttention& layer,
                  const TensorView<const float>& query,
                  const TensorView<const float>& key,
                  const TensorView<const float>& value,
                  const LayerOptions& options) {
  const Config& config = layer.config();
  LayerRun run;
  Workspace workspace;
  run.status = layer.Reserve(query.batch, query.rows, key.rows, &workspace);
  if (!run.status.ok()) return run;
  const size_t rows = query.batch * config.num_heads * query.rows;
  const size_t columns = key.rows + (config.add_bias_kv ? 1u : 0u) +
                         (config.add_zero_attn ? 1u : 0u);
  for (const WeightsKind kind :
       {WeightsKind::kNone, WeightsKind::kPerHead, WeightsKind::kAveraged}) {
    Tensor output(query.batch, query.rows, config.out_dim, 3, 5);
    Tensor lse(1, 1, rows);
    Tensor weights(1, 1,
                   kind == WeightsKind::kNone ? 0
                   : kind == WeightsKind::kPerHead
                       ? rows * columns
                       : query.batch * query.rows * columns);
    Tensor row_max(1, 1, rows);
    Tensor scores(1, 1, kind == WeightsKind::kNone ? 0 : rows * columns);
    Tensor heads(1, 1, rows * config.v_head_dim);
    if (workspace.bytes() != 0) {
      std::memset(workspace.data(), 0xFF, workspace.bytes());  // NaN
    }
    ForwardOutputs outputs;
    outputs.output = output.out();
    outputs.weights_kind = kind;
    outputs.weights = kind == WeightsKind::kNone ? nullptr : weights.out().data;
    outputs.lse = lse.out().data;
    outputs.row_max = row_max.out().data;
    outputs.head_outputs = heads.out().data;
    if (kind != WeightsKind::kNone) {
      outputs.scores_kind = ScoresKind::kBiased;
      outputs.scores = scores.out().data;
    }
    run.status = layer.Forward(query, key, value, options, outputs, &workspace);
    EXPECT_TRUE(output.GuardsIntact()) << "written outside the output";
    EXPECT_TRUE(lse.GuardsIntact()) << "written outside the LSE";
    EXPECT_TRUE(weights.GuardsIntact()) << "written outside the weights";
    EXPECT_TRUE(row_max.GuardsIntact()) << "written outside the row maxima";
    EXPECT_TRUE(scores.GuardsIntact()) << "written outside the scores";
    EXPECT_TRUE(heads.GuardsIntact()) << "written outside the heads' outputs";
    if (!run.status.ok()) return run;
    if (kind == WeightsKind::kNone) {
      run.output = output.Dense();
      run.lse = lse.Dense();
      run.row_max = row_max.Dense();
      run.head_outputs = heads.Dense();
      continue;
    }
    EXPECT_TRUE(SameBits(run.output, output.Dense()))
        << "the output depends on whether weights are asked for";
    EXPECT_TRUE(SameBits(run.lse, lse.Dense()))
        << "the LSE depends on whether weights are asked for";
    run.biased = scores.Dense();
    (kind == WeightsKind::kPerHead ? run.weights : run.averaged_weights) =
        weights.Dense();
  }
  return run;
}

Config RandomConfig(Random* random) {
  Config config;
  config.num_heads = random->Pick<size_t>({4, 6, 8});
  config.num_kv_heads = config.num_heads / random->Pick<size_t>({1, 2});
  // Six sizes out of a shuffled range, so that no two are equal.
  std::vector<size_t> sizes;
  for (size_t n = 1; n <= 45; ++n) sizes.push_back(n);
  for (size_t n = sizes.size() - 1; n > 0; --n) {
    std::swap(sizes[n], sizes[random->Between(0, n)]);
  }
  config.embed_dim = sizes[0];
  config.head_dim = sizes[1];
  config.v_head_dim = sizes[2];
  config.k_dim = sizes[3];
  config.v_dim = sizes[4];
  config.out_dim = sizes[5];
  config.query_bias = random->Chance(0.5);
  config.key_bias = random->Chance(0.5);
  config.value_bias = random->Chance(0.5);
  config.out_bias = random->Chance(0.5);
  if (random->Chance(0.3)) config.scale = random->Uniform(0.05f, 0.4f);
  config.add_bias_kv = random->Chance(0.3);
  config.add_zero_attn = random->Chance(0.3);
  return config;
}

std::string Describe(const Config& c) {
  std::ostringstream out;
  out << "E " << c.embed_dim << ", H " << c.num_heads << ", Hkv "
      << c.num_kv_heads << ", D " << c.head_dim << ", Dv " << c.v_head_dim
      << ", kDim " << c.k_dim << ", vDim " << c.v_dim << ", outDim "
      << c.out_dim << ", biases " << c.query_bias << c.key_bias << c.value_bias
      << c.out_bias << ", bias_kv " << c.add_bias_kv << ", zero attention "
      << c.add_zero_attn;
  if (c.scale.has_value()) out << ", scale " << *c.scale;
  return out.str();
}

RotaryConfig RandomRotary(size_t head_dim, Random* random) {
  RotaryConfig config;
  config.dim = 2 * random->Between(1, head_dim / 2);
  config.interleaved = random->Chance(0.5);
  config.scaling = config.dim == 2
                       ? RotaryScaling::kLinear
                       : static_cast<RotaryScaling>(random->Between(0, 4));
  config.factor = 2.0;
  config.original_length = 64.0;
  if (random->Chance(0.3)) {
    config.axes = 2;
    config.sections[0] = random->Between(0, config.dim / 2);
    config.sections[1] = config.dim / 2 - config.sections[0];
  }
  return config;
}

void ExpectMatchesOracle(const Config& config, const LayerWeights& weights,
                         const TensorView<const float>& query,
                         const TensorView<const float>& key,
                         const TensorView<const float>& value,
                         const LayerOptions& options) {
  const Config resolved = Resolved(config);
  SCOPED_TRACE(testing::Message()
               << Describe(resolved) << ", B " << query.batch << ", L "
               << query.rows << ", S " << key.rows);
  const std::unique_ptr<MultiHeadAttention> layer = MakeLayer(config, weights);
  ASSERT_NE(layer, nullptr);
  const LayerRun run = RunLayer(*layer, query, key, value, options);
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  const reference::MultiHeadAttentionResult expected =
      reference::MultiHeadAttention(resolved, weights.view(), query, key, value,
                                    options);
  const MultiHeadAttentionBounds bounds = BoundMultiHeadAttention(
      resolved, weights.view(), query, key, value, options, expected);
  const reference::AttentionResult& attention = expected.attention;
  EXPECT_TRUE(AllWithin(run.output, expected.output, bounds.output))
      << "output";
  EXPECT_TRUE(
      AllWithin(run.weights, attention.weights, bounds.attention.weights))
      << "weights per head";
  EXPECT_TRUE(AllWithin(run.averaged_weights, attention.averaged_weights,
                        bounds.attention.averaged_weights))
      << "averaged weights";
  EXPECT_TRUE(AllWithin(run.lse, attention.lse, bounds.attention.lse)) << "LSE";
  EXPECT_TRUE(
      AllWithin(run.row_max, attention.row_max, bounds.attention.row_max))
      << "row maximum";
  EXPECT_TRUE(AllWithin(run.biased, attention.scores, bounds.attention.scores))
      << "biased scores";
  EXPECT_TRUE(AllWithin(run.head_outputs, expected.concat, bounds.concat))
      << "heads' outputs";
}

}  // namespace headwise
