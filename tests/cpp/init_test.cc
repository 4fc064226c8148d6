// Initial weights: those of PyTorch's nn.MultiheadAttention and nn.Linear, in
// distribution; reproducible from a seed.
#include <algorithm>
#include <cmath>
#include <memory>

#include "headwise/linear.h"
#include "headwise/multi_head_attention.h"
#include "kernels/kernels.h"
#include "layer_case.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(InitTest);

// U(-bound, bound): nothing beyond the bound, something near it on both sides,
// mean and variance within four standard deviations, and no lumps.
void ExpectUniform(const Floats& values, double bound) {
  const double n = static_cast<double>(values.size());
  ASSERT_GE(n, 500.0);
  double sum = 0.0;
  double squares = 0.0;
  size_t quarters[4] = {};
  for (const float value : values) {
    // The bound itself is rounded to a float.
    ASSERT_LE(std::abs(value), bound * (1 + 1e-6));
    sum += value;
    squares += double{value} * value;
    const double unit = (value / bound + 1.0) / 2.0;
    ++quarters[std::min<size_t>(3, static_cast<size_t>(unit * 4.0))];
  }
  // The chance that no value lies within this of an end is e^-20.
  const double near = bound * (1.0 - 40.0 / n);
  EXPECT_GT(*std::max_element(values.begin(), values.end()), near);
  EXPECT_LT(*std::min_element(values.begin(), values.end()), -near);
  EXPECT_NEAR(sum / n, 0.0, 4.0 * bound / std::sqrt(3.0 * n));
  // Var(x^2) of U(-1, 1) is 4 / 45.
  EXPECT_NEAR(squares / n, bound * bound / 3.0,
              4.0 * bound * bound * std::sqrt(4.0 / 45.0 / n));
  for (const size_t quarter : quarters) {
    EXPECT_NEAR(static_cast<double>(quarter), n / 4.0,
                4.0 * std::sqrt(n * 3.0 / 16.0));
  }
}

LayerWeights InitialWeights(const Config& config) {
  std::unique_ptr<MultiHeadAttention> layer;
  const Status status = MultiHeadAttention::Create(config, &layer);
  EXPECT_TRUE(status.ok()) << status.message();
  return LayerWeights::Of(*layer);
}

double Xavier(size_t fan_in, size_t fan_out) {
  return std::sqrt(6.0 / static_cast<double>(fan_in + fan_out));
}

// One packed in-projection: fan-out counts its rows, all of q, k and v.
TEST_P(InitTest, PackedInProjection) {
  Config config;
  config.embed_dim = 60;
  config.num_heads = 4;
  const LayerWeights weights = InitialWeights(config);
  const double bound = Xavier(60, 180);
  ExpectUniform(weights.query.weight, bound);
  ExpectUniform(weights.key.weight, bound);
  ExpectUniform(weights.value.weight, bound);
  ExpectUniform(weights.out.weight, 1.0 / std::sqrt(60.0));
  for (const LayerWeights::Projection* p :
       {&weights.query, &weights.key, &weights.value, &weights.out}) {
    EXPECT_EQ(p->bias, Floats(60, 0.0f));
  }
}

TEST_P(InitTest, PackedInProjectionOfGroupedHeads) {
  Config config;
  config.embed_dim = 60;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 12;
  config.v_head_dim = 14;
  config.out_dim = 50;
  const LayerWeights weights = InitialWeights(config);
  const double bound = Xavier(60, 6 * 12 + 2 * 12 + 2 * 14);
  ExpectUniform(weights.query.weight, bound);
  ExpectUniform(weights.key.weight, bound);
  ExpectUniform(weights.value.weight, bound);
  ExpectUniform(weights.out.weight, 1.0 / std::sqrt(6.0 * 14.0));
}

// Widths differ, one or both: three weights, each with its own bound.
TEST_P(InitTest, SeparateProjections) {
  const size_t widths[][2] = {{40, 60}, {60, 25}, {40, 25}};
  for (const auto& [k_dim, v_dim] : widths) {
    Config config;
    config.embed_dim = 60;
    config.num_heads = 4;
    config.k_dim = k_dim;
    config.v_dim = v_dim;
    const LayerWeights weights = InitialWeights(config);
    ExpectUniform(weights.query.weight, Xavier(60, 60));
    ExpectUniform(weights.key.weight, Xavier(k_dim, 60));
    ExpectUniform(weights.value.weight, Xavier(v_dim, 60));
  }
}

TEST_P(InitTest, SameSeedSameBits) {
  Config config;
  config.embed_dim = 24;
  config.num_heads = 4;
  config.seed = 5;
  EXPECT_TRUE(SameBits(InitialWeights(config), InitialWeights(config)));
  Config other = config;
  other.seed = 6;
  EXPECT_FALSE(SameBits(InitialWeights(config).query.weight,
                        InitialWeights(other).query.weight));
  EXPECT_FALSE(SameBits(InitialWeights(config).out.weight,
                        InitialWeights(other).out.weight));
}

TEST_P(InitTest, ProjectionsStartDifferent) {
  Config config;
  config.embed_dim = 24;
  config.num_heads = 4;
  const LayerWeights weights = InitialWeights(config);
  const Floats* all[] = {&weights.query.weight, &weights.key.weight,
                         &weights.value.weight, &weights.out.weight};
  for (size_t a = 0; a < 4; ++a) {
    for (size_t b = a + 1; b < 4; ++b) {
      size_t equal = 0;
      for (size_t n = 0; n < all[a]->size(); ++n) {
        equal += (*all[a])[n] == (*all[b])[n];
      }
      EXPECT_LT(equal, 5u) << a << " and " << b;
    }
  }
}

// Neighbouring seeds give unrelated numbers, not shifted ones.
TEST_P(InitTest, NeighbouringSeedsAreUnrelated) {
  Config config;
  config.embed_dim = 24;
  config.num_heads = 4;
  const Floats a = InitialWeights(config).query.weight;
  config.seed = 1;
  const Floats b = InitialWeights(config).query.weight;
  for (size_t shift = 0; shift < 8; ++shift) {
    size_t equal = 0;
    for (size_t n = shift; n < a.size(); ++n) equal += a[n] == b[n - shift];
    EXPECT_LT(equal, 5u) << "shift " << shift;
  }
}

TEST_P(InitTest, LinearAsPyTorch) {
  std::unique_ptr<Linear> linear;
  ASSERT_OK(Linear::Create(30, 700, true, 9, &linear));
  Floats weight(30 * 700);
  Floats bias(700);
  ASSERT_OK(linear->GetWeights({weight.data(), bias.data()}));
  ExpectUniform(weight, 1.0 / std::sqrt(30.0));
  ExpectUniform(bias, 1.0 / std::sqrt(30.0));

  std::unique_ptr<Linear> again;
  ASSERT_OK(Linear::Create(30, 700, true, 9, &again));
  Floats weight_again(30 * 700);
  ASSERT_OK(again->GetWeights({weight_again.data(), nullptr}));
  EXPECT_TRUE(SameBits(weight, weight_again));
  ASSERT_OK(Linear::Create(30, 700, true, 10, &again));
  ASSERT_OK(again->GetWeights({weight_again.data(), nullptr}));
  EXPECT_FALSE(SameBits(weight, weight_again));
}

// The seed alone decides, not the instruction set.
TEST(InitTargetsTest, SameBitsUnderEveryTarget) {
  Config config;
  config.embed_dim = 24;
  config.num_heads = 4;
  config.seed = 11;
  const LayerWeights best = InitialWeights(config);
  for (const size_t target : AvailableTargets()) {
    ASSERT_TRUE(kernels::UseTestTarget(target));
    EXPECT_TRUE(SameBits(InitialWeights(config), best))
        << kernels::TestTargetName(target);
  }
  kernels::UseBestTarget();
}

}  // namespace
}  // namespace headwise
