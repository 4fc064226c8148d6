// The layer against the float64 oracle, and what it promises beyond numbers.
#include "headwise/multi_head_attention.h"

#include <cmath>
#include <cstring>
#include <memory>

#include "layer_case.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(MultiHeadAttentionTest);

struct Inputs {
  Inputs(const Config& config, size_t batch, size_t rows, size_t keys,
         Random* random)
      : query(batch, rows, config.embed_dim, 3, 7),
        key(batch, keys, config.k_dim, 1, 2),
        value(batch, keys, config.v_dim, 0, 5) {
    query.FillUniform(random, -1, 1);
    key.FillUniform(random, -1, 1);
    value.FillUniform(random, -1, 1);
  }
  Tensor query;
  Tensor key;
  Tensor value;
};

// Only the masks of an AttentionCase are used.
AttentionCase Masks(const Config& config, size_t batch, size_t rows,
                    size_t keys) {
  return AttentionCase(batch, config.num_heads, config.num_kv_heads, rows, keys,
                       1, 1);
}

TEST_P(MultiHeadAttentionTest, FreeSizesAgainstTheOracle) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(100 + seed);
    const Config config = Resolved(RandomConfig(&random));
    const LayerWeights weights = LayerWeights::Uniform(config, &random);
    const size_t batch = random.Between(2, 3);
    const size_t rows = random.Between(1, 30);
    const size_t keys = random.Between(1, seed % 4 == 0 ? 200 : 30);
    const Inputs inputs(config, batch, rows, keys, &random);
    AttentionCase masks = Masks(config, batch, rows, keys);
    if (seed % 3 != 0) AddRandomMasks(&masks, &random);
    ExpectMatchesOracle(config, weights, inputs.query.in(), inputs.key.in(),
                        inputs.value.in(), Layered(masks.Options()));
    if (HasFailure()) return;
  }
}

TEST_P(MultiHeadAttentionTest, DeepAndWideProducts) {
  Random random(200);
  for (const size_t embed : {96, 770, 1540}) {
    Config config;
    config.embed_dim = embed;
    config.num_heads = 4;
    config.head_dim = 19;
    config.out_dim = 23;
    config = Resolved(config);
    const LayerWeights weights = LayerWeights::Uniform(config, &random);
    Inputs inputs(config, 2, 13, 17, &random);
    // Scores of a useful size.
    inputs.query.FillUniform(&random, -0.05f, 0.05f);
    ExpectMatchesOracle(config, weights, inputs.query.in(), inputs.key.in(),
                        inputs.value.in(), {});
  }
}

TEST_P(MultiHeadAttentionTest, ManyRows) {
  Random random(210);
  Config config;
  config.embed_dim = 12;
  config.num_heads = 4;
  config.head_dim = 5;
  config = Resolved(config);
  const LayerWeights weights = LayerWeights::Uniform(config, &random);
  for (const size_t rows : {127, 128, 129, 300}) {
    const Inputs inputs(config, 2, rows, rows + 3, &random);
    ExpectMatchesOracle(config, weights, inputs.query.in(), inputs.key.in(),
                        inputs.value.in(), {});
  }
}

TEST_P(MultiHeadAttentionTest, ZeroLengths) {
  Random random(220);
  const Config config = Resolved(RandomConfig(&random));
  const LayerWeights weights = LayerWeights::Uniform(config, &random);
  const size_t sizes[][3] = {{0, 3, 4}, {2, 0, 4}, {2, 0, 0}};
  for (const auto& s : sizes) {
    const Inputs inputs(config, s[0], s[1], s[2], &random);
    ExpectMatchesOracle(config, weights, inputs.query.in(), inputs.key.in(),
                        inputs.value.in(), {});
  }
}

// Zero keys: every output row is the output bias.
TEST_P(MultiHeadAttentionTest, WithoutKeysTheOutputIsItsBias) {
  Random random(221);
  Config config = RandomConfig(&random);
  config.out_bias = true;
  config.add_bias_kv = config.add_zero_attn = false;
  config = Resolved(config);
  const LayerWeights weights = LayerWeights::Uniform(config, &random);
  const Inputs inputs(config, 2, 3, 0, &random);
  const auto layer = MakeLayer(config, weights);
  ASSERT_NE(layer, nullptr);
  const LayerRun run = RunLayer(*layer, inputs.query.in(), inputs.key.in(),
                                inputs.value.in(), {});
  ASSERT_OK(run.status);
  for (size_t n = 0; n < run.output.size(); ++n) {
    EXPECT_EQ(run.output[n], weights.out.bias[n % config.out_dim]);
  }
}

// N-44: no bias, an odd number of heads, with and without padding.
TEST_P(MultiHeadAttentionTest, N44NoBiasAndOddHeads) {
  Random random(44);
  Config config;
  config.embed_dim = 6;
  config.num_heads = 3;
  config.query_bias = config.key_bias = false;
  config.value_bias = config.out_bias = false;
  config = Resolved(config);
  const LayerWeights weights = LayerWeights::Uniform(config, &random);
  Tensor x(2, 5, 6);
  x.FillUniform(&random, -1, 1);
  LayerOptions options;
  ExpectMatchesOracle(config, weights, x.in(), x.in(), x.in(), options);
  const uint8_t padding[] = {0, 0, 0, 1, 1, 1, 0, 1, 0, 0};
  options.key_padding_mask = padding;
  ExpectMatchesOracle(config, weights, x.in(), x.in(), x.in(), options);
}

Config IdentityConfig() {
  Config config;
  config.embed_dim = 2;
  config.num_heads = 2;
  config.query_bias = config.key_bias = false;
  config.value_bias = config.out_bias = false;
  config.scale = 1.0f;
  return config;
}

LayerWeights IdentityWeights() {
  LayerWeights weights;
  for (LayerWeights::Projection* p :
       {&weights.query, &weights.key, &weights.value, &weights.out}) {
    p->weight = {1, 0, 0, 1};
  }
  return weights;
}

TEST_P(MultiHeadAttentionTest, A01WeightsPerHeadAndAveraged) {
  const auto layer = MakeLayer(IdentityConfig(), IdentityWeights());
  ASSERT_NE(layer, nullptr);
  const Floats x = {1, 0, 0, 2};
  const TensorView<const float> view(x.data(), 2, 2);
  const LayerRun run = RunLayer(*layer, view, view, view, {});
  ASSERT_OK(run.status);
  const double per_head[] = {.731059, .268941, .5,      .5,
                             .5,      .5,      .017986, .982014};
  const double averaged[] = {.615529, .384471, .258993, .741007};
  ASSERT_EQ(run.weights.size(), 8u);
  ASSERT_EQ(run.averaged_weights.size(), 4u);
  // The numbers are given to six digits.
  for (size_t n = 0; n < 8; ++n) {
    EXPECT_NEAR(run.weights[n], per_head[n], 6e-7) << n;
  }
  for (size_t n = 0; n < 4; ++n) {
    EXPECT_NEAR(run.averaged_weights[n], averaged[n], 6e-7) << n;
  }
}

// Identity queries and keys, 8 of size 8: numbers that Keras' tests give.
TEST_P(MultiHeadAttentionTest, IdentityQueriesAndKeys) {
  Config config;
  config.embed_dim = 8;
  config.num_heads = 1;
  config.query_bias = config.key_bias = false;
  config.value_bias = config.out_bias = false;
  Floats identity(64, 0.0f);
  for (size_t n = 0; n < 8; ++n) identity[n * 9] = 1.0f;
  LayerWeights weights;
  for (LayerWeights::Projection* p :
       {&weights.query, &weights.key, &weights.value, &weights.out}) {
    p->weight = identity;
  }
  const auto layer = MakeLayer(config, weights);
  ASSERT_NE(layer, nullptr);
  const TensorView<const float> x(identity.data(), 8, 8);
  const LayerRun run = RunLayer(*layer, x, x, x, {});
  ASSERT_OK(run.status);
  for (size_t n = 0; n < 64; ++n) {
    // Given to four digits.
    EXPECT_NEAR(run.weights[n], n % 9 == 0 ? 0.1691 : 0.1187, 5e-5);
    EXPECT_NEAR(run.output[n], n % 9 == 0 ? 0.1691 : 0.1187, 5e-5);
  }
}

// an unbatched call is batch 1, to the bit.
TEST_P(MultiHeadAttentionTest, A04UnbatchedEqualsBatchOfOne) {
  Random random(4);
  const Config config = Resolved(RandomConfig(&random));
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  const Inputs inputs(config, 1, 5, 7, &random);
  const Floats q = inputs.query.Dense();
  const Floats k = inputs.key.Dense();
  const Floats v = inputs.value.Dense();
  const LayerRun batched = RunLayer(*layer, inputs.query.in(), inputs.key.in(),
                                    inputs.value.in(), {});
  const LayerRun unbatched =
      RunLayer(*layer, TensorView<const float>(q.data(), 5, config.embed_dim),
               TensorView<const float>(k.data(), 7, config.k_dim),
               TensorView<const float>(v.data(), 7, config.v_dim), {});
  ASSERT_OK(batched.status);
  ASSERT_OK(unbatched.status);
  EXPECT_TRUE(SameBits(batched.output, unbatched.output));
  EXPECT_TRUE(SameBits(batched.weights, unbatched.weights));
  EXPECT_EQ(unbatched.output.size(), 5 * config.out_dim);
}

// One view three times, or three copies of the same data: a layer may
// recognise the first, but not to the bit.
TEST_P(MultiHeadAttentionTest, SelfAttentionEqualsCrossAttentionOnCopies) {
  Random random(230);
  Config config;
  config.embed_dim = 30;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 7;
  config.v_head_dim = 9;
  config = Resolved(config);
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  Tensor x(3, 13, 30);
  x.FillUniform(&random, -1, 1);
  Tensor key(3, 13, 30, 2);
  Tensor value(3, 13, 30, 0, 4);
  key.SetDense(x.Dense());
  value.SetDense(x.Dense());
  const LayerRun self = RunLayer(*layer, x.in(), x.in(), x.in(), {});
  ASSERT_OK(self.status);
  for (const LayerRun& other :
       {RunLayer(*layer, x.in(), key.in(), value.in(), {}),
        RunLayer(*layer, x.in(), key.in(), key.in(), {}),
        RunLayer(*layer, x.in(), x.in(), value.in(), {}),
        RunLayer(*layer, x.in(), value.in(), x.in(), {})}) {
    ASSERT_OK(other.status);
    EXPECT_TRUE(SameBits(other.output, self.output));
    EXPECT_TRUE(SameBits(other.weights, self.weights));
    EXPECT_TRUE(SameBits(other.lse, self.lse));
  }
}

// Views that differ in nothing but one size or stride are not the same view.
TEST_P(MultiHeadAttentionTest, OverlappingViewsAreNotMistakenForOne) {
  Random random(231);
  Config config;
  config.embed_dim = 20;
  config.num_heads = 4;
  config.head_dim = 5;
  config = Resolved(config);
  const LayerWeights weights = LayerWeights::Uniform(config, &random);
  Tensor x(2, 12, 20);
  x.FillUniform(&random, -1, 1);
  // The first 7 rows of each entry as queries, all as keys.
  TensorView<const float> query = x.in();
  query.rows = 7;
  ExpectMatchesOracle(config, weights, query, x.in(), x.in(), {});
  // Every second row, every row.
  TensorView<const float> sparse = x.in();
  sparse.rows = 6;
  sparse.row_stride = 40;
  TensorView<const float> dense = x.in();
  dense.rows = 6;
  ExpectMatchesOracle(config, weights, dense, sparse, dense, {});
}

TEST_P(MultiHeadAttentionTest, OptionsOverrideTheScale) {
  Random random(240);
  Config config = RandomConfig(&random);
  config.scale = 0.3f;
  config = Resolved(config);
  const LayerWeights weights = LayerWeights::Uniform(config, &random);
  const Inputs inputs(config, 2, 5, 9, &random);
  LayerOptions options;
  ExpectMatchesOracle(config, weights, inputs.query.in(), inputs.key.in(),
                      inputs.value.in(), options);
  options.scale = -0.2f;
  ExpectMatchesOracle(config, weights, inputs.query.in(), inputs.key.in(),
                      inputs.value.in(), options);
}

// Tokens behind the padding hold NaN: no trace of them in the result.
TEST_P(MultiHeadAttentionTest, PaddingTokensMayHoldAnything) {
  Random random(250);
  const Config config = Resolved(RandomConfig(&random));
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  Inputs inputs(config, 2, 9, 11, &random);
  const uint8_t padding[] = {1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1,
                             0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0};
  LayerOptions options;
  options.key_padding_mask = padding;
  const LayerRun clean = RunLayer(*layer, inputs.query.in(), inputs.key.in(),
                                  inputs.value.in(), options);
  for (size_t b = 0; b < 2; ++b) {
    for (size_t j = 0; j < 11; ++j) {
      if (padding[b * 11 + j] == 0) continue;
      for (size_t d = 0; d < config.k_dim; ++d) inputs.key.At(b, j, d) = kNan;
      for (size_t d = 0; d < config.v_dim; ++d) inputs.value.At(b, j, d) = kInf;
    }
  }
  const LayerRun poisoned = RunLayer(*layer, inputs.query.in(), inputs.key.in(),
                                     inputs.value.in(), options);
  ASSERT_OK(clean.status);
  ASSERT_OK(poisoned.status);
  EXPECT_TRUE(SameBits(clean.output, poisoned.output));
  EXPECT_TRUE(SameBits(clean.weights, poisoned.weights));
  for (const float value : clean.output) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace headwise
