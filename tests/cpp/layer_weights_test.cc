// Weights of a layer go in and come out to the bit, and refused ones change
// nothing.
#include <algorithm>
#include <memory>

#include "headwise/multi_head_attention.h"
#include "layer_case.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(LayerWeightsTest);

TEST_P(LayerWeightsTest, WeightsComeBackToTheBit) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(300 + seed);
    const Config config = Resolved(RandomConfig(&random));
    const LayerWeights weights = LayerWeights::Uniform(config, &random);
    const auto layer = MakeLayer(config, weights);
    ASSERT_NE(layer, nullptr);
    EXPECT_TRUE(SameBits(LayerWeights::Of(*layer), weights))
        << Describe(config);
  }
}

// SetWeights copies: the caller's arrays may go.
TEST_P(LayerWeightsTest, SetWeightsCopies) {
  Random random(310);
  const Config config = Resolved(RandomConfig(&random));
  LayerWeights weights = LayerWeights::Uniform(config, &random);
  const LayerWeights kept = weights;
  const auto layer = MakeLayer(config, weights);
  ASSERT_NE(layer, nullptr);
  std::fill(weights.out.weight.begin(), weights.out.weight.end(), kNan);
  EXPECT_TRUE(SameBits(LayerWeights::Of(*layer), kept));
}

TEST_P(LayerWeightsTest, RefusedWeightsLeaveTheOldOnes) {
  Random random(320);
  Config config = RandomConfig(&random);
  config.query_bias = config.value_bias = true;
  config.key_bias = config.out_bias = false;
  config = Resolved(config);
  const LayerWeights old = LayerWeights::Uniform(config, &random);
  const LayerWeights fresh = LayerWeights::Uniform(config, &random);
  const auto layer = MakeLayer(config, old);
  ASSERT_NE(layer, nullptr);
  const Floats bias(4096);

  Weights weights = fresh.view();
  weights.out.weight = nullptr;
  EXPECT_FALSE(layer->SetWeights(weights).ok());
  EXPECT_TRUE(SameBits(LayerWeights::Of(*layer), old));

  weights = fresh.view();
  weights.value.bias = nullptr;
  ExpectError(layer->SetWeights(weights), StatusCode::kInvalidArgument,
              {"value", "bias"});
  EXPECT_TRUE(SameBits(LayerWeights::Of(*layer), old));

  weights = fresh.view();
  weights.out.bias = bias.data();
  ExpectError(layer->SetWeights(weights), StatusCode::kInvalidArgument,
              {"out", "bias"});
  EXPECT_TRUE(SameBits(LayerWeights::Of(*layer), old));

  ASSERT_OK(layer->SetWeights(fresh.view()));
  EXPECT_TRUE(SameBits(LayerWeights::Of(*layer), fresh));
}

}  // namespace
}  // namespace headwise
