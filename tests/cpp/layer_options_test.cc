// What a layer adds to the functional core: extra keys of its own, norm and
// rotation of queries and keys, output gate, the heads' outputs. Against the
// float64 oracle, and where it refuses.
#include <cmath>
#include <memory>
#include <vector>

#include "attention_case.h"
#include "layer_call.h"
#include "layer_case.h"
#include "reference/rotary.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;
using Positions = std::vector<int32_t>;

HEADWISE_TEST_ALL_TARGETS(LayerOptionsTest);

// All options at random, all sizes different.
TEST_P(LayerOptionsTest, RandomCombinationsAgainstTheOracle) {
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(9000 + seed);
    Config config = RandomConfig(&random);
    if (config.head_dim < 2) config.head_dim = 46;
    config = Resolved(config);
    const LayerWeights weights = LayerWeights::Uniform(config, &random);
    const size_t batch = random.Between(2, 3);
    const size_t rows = random.Between(1, 20);
    const size_t keys = random.Between(1, seed % 8 == 0 ? 150 : 20);
    Tensor query(batch, rows, config.embed_dim, 1, 2);
    Tensor key(batch, keys, config.k_dim, 3);
    Tensor value(batch, keys, config.v_dim, 0, 4);
    for (Tensor* x : {&query, &key, &value}) x->FillUniform(&random, -0.5, 0.5);
    AttentionCase masks(batch, config.num_heads, config.num_kv_heads, rows,
                        keys, 1, 1);
    AddRandomMasks(&masks, &random);
    AddRandomPositions(&masks, &random);
    AddRandomScoreOptions(&masks, &random);
    LayerOptions options = Layered(masks.Options());

    QkNorm norm;
    const Floats query_norm = random.Floats(config.head_dim, 0.5f, 1.5f);
    const Floats key_norm = random.Floats(config.head_dim, 0.5f, 1.5f);
    if (random.Chance(0.7)) norm.query_weight = query_norm.data();
    if (random.Chance(0.7)) norm.key_weight = key_norm.data();
    norm.epsilon = random.Pick<float>({1e-6f, 1e-2f});
    if (random.Chance(0.5)) options.qk_norm = &norm;

    const RotaryConfig rotary = RandomRotary(config.head_dim, &random);
    const size_t axes = rotary.axes == 0 ? 1 : rotary.axes;
    Positions query_positions, key_positions;
    for (size_t n = 0; n < axes * batch * rows; ++n) {
      query_positions.push_back(random.BetweenSigned(0, 300));
    }
    for (size_t n = 0; n < axes * batch * keys; ++n) {
      key_positions.push_back(random.BetweenSigned(0, 300));
    }
    if (random.Chance(0.6)) {
      options.rotary = &rotary;
      if (random.Chance(0.4)) options.query_positions = query_positions.data();
      if (random.Chance(0.4)) options.key_positions = key_positions.data();
    }
    const Floats gate = random.Floats(
        batch * rows * config.num_heads * config.v_head_dim, -1.0f, 2.0f);
    if (random.Chance(0.5)) options.output_gate = gate.data();
    ExpectMatchesOracle(config, weights, query.in(), key.in(), value.in(),
                        options);
    if (HasFailure()) return;
  }
}

// add_bias_kv and add_zero_attn are what appending those keys and values to
// the projected ones gives.
TEST_P(LayerOptionsTest, ExtraKeysOfALayer) {
  for (unsigned bits = 1; bits < 4; ++bits) {
    Random random(9100 + bits);
    Config config = SmallConfig();
    config.add_bias_kv = (bits & 1) != 0;
    config.add_zero_attn = (bits & 2) != 0;
    const LayerWeights weights = LayerWeights::Uniform(config, &random);
    const auto layer = MakeLayer(config, weights);
    ASSERT_NE(layer, nullptr);
    EXPECT_TRUE(SameBits(LayerWeights::Of(*layer), weights));
    Tensor query(2, 3, 24), key(2, 6, 11), value(2, 6, 13);
    for (Tensor* x : {&query, &key, &value}) x->FillUniform(&random, -1, 1);
    LayerOptions options;
    options.causal = Causal::kStart;
    ExpectMatchesOracle(config, weights, query.in(), key.in(), value.in(),
                        options);
    const LayerRun run =
        RunLayer(*layer, query.in(), key.in(), value.in(), options);
    ASSERT_OK(run.status);
    EXPECT_EQ(run.weights.size(), 2u * 4 * 3 * (6 + (bits == 3 ? 2 : 1)));
  }
}

TEST_P(LayerOptionsTest, BiasKvMustBeGivenExactlyWhereTheLayerHasIt) {
  Random random(9200);
  Config config = SmallConfig();
  config.add_bias_kv = true;
  const LayerWeights good = LayerWeights::Uniform(config, &random);
  const auto layer = MakeLayer(config, good);
  ASSERT_NE(layer, nullptr);
  LayerWeights without = LayerWeights::Uniform(config, &random);
  without.bias_k.clear();
  ExpectError(layer->SetWeights(without.view()), StatusCode::kInvalidArgument,
              {"bias_k", "missing", "add_bias_kv"});
  EXPECT_TRUE(SameBits(LayerWeights::Of(*layer), good));
  config.add_bias_kv = false;
  const auto plain = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(plain, nullptr);
  ExpectError(plain->SetWeights(good.view()), StatusCode::kInvalidArgument,
              {"bias_k", "add_bias_kv"});
}

// What each head hands on; with the output projection it is the output.
TEST_P(LayerOptionsTest, HeadOutputsAreThoseOfTheProjection) {
  Random random(9300);
  Config config;
  config.embed_dim = 12;
  config.num_heads = 4;
  config.out_bias = false;
  config = Resolved(config);
  LayerWeights weights = LayerWeights::Uniform(config, &random);
  // The identity as output projection.
  for (size_t n = 0; n < 144; ++n) {
    weights.out.weight[n] = n % 13 == 0 ? 1.0f : 0.0f;
  }
  const auto layer = MakeLayer(config, weights);
  ASSERT_NE(layer, nullptr);
  Tensor x(2, 5, 12);
  x.FillUniform(&random, -1, 1);
  LayerOptions options;
  const LayerRun plain = RunLayer(*layer, x.in(), x.in(), x.in(), options);
  ASSERT_OK(plain.status);
  EXPECT_TRUE(SameBits(plain.head_outputs, plain.output));
  // Ablation of a head: its part is 0, the others are as they were.
  const float gates[] = {1, 1, 0, 1};
  options.head_gates = gates;
  const LayerRun ablated = RunLayer(*layer, x.in(), x.in(), x.in(), options);
  ASSERT_OK(ablated.status);
  for (size_t n = 0; n < plain.output.size(); ++n) {
    EXPECT_EQ(ablated.head_outputs[n],
              n / 3 % 4 == 2 ? 0.0f : plain.head_outputs[n]);
  }
}

// Rotation by equal shifts of queries and keys leaves the result alone.
TEST_P(LayerOptionsTest, RotaryDependsOnDistances) {
  Random random(9400);
  Config config = SmallConfig();
  config.head_dim = 6;
  config = Resolved(config);
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  Tensor query(1, 3, 24), key(1, 4, 11), value(1, 4, 13);
  for (Tensor* x : {&query, &key, &value}) x->FillUniform(&random, -1, 1);
  const RotaryConfig rotary;
  LayerOptions options;
  options.rotary = &rotary;
  const LayerRun near =
      RunLayer(*layer, query.in(), key.in(), value.in(), options);
  const Positions query_positions = {50, 51, 52};
  const Positions key_positions = {50, 51, 52, 53};
  options.query_positions = query_positions.data();
  options.key_positions = key_positions.data();
  const LayerRun far =
      RunLayer(*layer, query.in(), key.in(), value.in(), options);
  options.query_positions = nullptr;
  const LayerRun other =
      RunLayer(*layer, query.in(), key.in(), value.in(), options);
  ASSERT_OK(near.status);
  ASSERT_OK(far.status);
  ASSERT_OK(other.status);
  float moved = 0;
  for (size_t n = 0; n < near.weights.size(); ++n) {
    EXPECT_NEAR(near.weights[n], far.weights[n], 1e-5);
    moved = std::max(moved, std::fabs(near.weights[n] - other.weights[n]));
  }
  EXPECT_GT(moved, 1e-3f);
}

TEST_P(LayerOptionsTest, RefusedCallsWriteNothing) {
  Random random(9500);
  const Config config = SmallConfig();
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  const Floats numbers(64);
  const auto refused = [&](auto change, StatusCode code,
                           const std::vector<std::string>& parts) {
    LayerCall call(2, 3, 4, config, &random);
    const Floats before = call.output.Dense();
    LayerOptions options;
    change(&options);
    Workspace workspace;
    ExpectError(layer->Forward(call.query.in(), call.key.in(), call.value.in(),
                               options, call.outputs, &workspace),
                code, parts);
    EXPECT_EQ(call.output.Dense(), before);
  };
  RotaryConfig odd;
  odd.dim = 3;
  refused([&](LayerOptions* o) { o->rotary = &odd; },
          StatusCode::kInvalidConfig, {"dim", "3", "even"});
  // The whole head, which is odd.
  const RotaryConfig whole;
  refused([&](LayerOptions* o) { o->rotary = &whole; },
          StatusCode::kInvalidConfig, {"dim", "5", "even"});
  refused(
      [&](LayerOptions* o) {
        o->extra_key =
            HeadsView<const float>::HeadsFirst(numbers.data(), 1, 2, 1, 5);
        o->extra_value =
            HeadsView<const float>::HeadsFirst(numbers.data(), 1, 2, 1, 7);
      },
      StatusCode::kInvalidArgument, {"extra_key", "add_bias_kv"});
  refused([&](LayerOptions* o) { o->window_left = -3; },
          StatusCode::kInvalidArgument, {"window_left is -3"});
}

}  // namespace
}  // namespace headwise
