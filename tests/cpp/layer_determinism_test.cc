// The promises of determinism_test.cc for whole layers, projections included.
#include <algorithm>

#include "layer_case.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(LayerDeterminismTest);

Config LayerConfig() {
  Config config;
  config.embed_dim = 20;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  config.v_head_dim = 7;
  config.out_dim = 9;
  return Resolved(config);
}

// One sequence alone; among neighbours; padded on the left and on the right
// with tokens of NaN: the same output rows (T-12).
TEST_P(LayerDeterminismTest, LayerAloneInABatchAndPadded) {
  Random random(700);
  const Config config = LayerConfig();
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  const size_t length = 133;
  Tensor alone(1, length, 20);
  alone.FillUniform(&random, -1, 1);
  LayerOptions options;
  options.causal = Causal::kStart;
  const LayerRun expected =
      RunLayer(*layer, alone.in(), alone.in(), alone.in(), options);
  ASSERT_OK(expected.status);

  const size_t paddings[][2] = {{0, 0}, {7, 0}, {0, 9}, {17, 3}};
  for (const auto& [left, right] : paddings) {
    const size_t total = left + length + right;
    Tensor batch(4, total, 20, 2, 3);
    batch.FillUniform(&random, -1, 1);
    std::vector<uint8_t> padding(4 * total, 0);
    const size_t b = 2;
    for (size_t row = 0; row < total; ++row) {
      const bool inside = row >= left && row < left + length;
      padding[b * total + row] = inside ? 0 : 1;
      for (size_t d = 0; d < 20; ++d) {
        batch.At(b, row, d) = inside ? alone.At(0, row - left, d) : kNan;
      }
    }
    options.key_padding_mask = padding.data();
    const LayerRun run =
        RunLayer(*layer, batch.in(), batch.in(), batch.in(), options);
    ASSERT_OK(run.status);
    const auto from = run.output.begin() + (b * total + left) * config.out_dim;
    EXPECT_TRUE(
        SameBits(Floats(from, from + length * config.out_dim), expected.output))
        << left << " before, " << right << " after";
  }
}

TEST_P(LayerDeterminismTest, LayerInSteps) {
  Random random(710);
  const Config config = LayerConfig();
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  const size_t length = 140;
  Tensor x(1, length, 20);
  x.FillUniform(&random, -1, 1);
  LayerOptions options;
  options.causal = Causal::kStart;
  const LayerRun prefill = RunLayer(*layer, x.in(), x.in(), x.in(), options);
  ASSERT_OK(prefill.status);
  for (size_t first = 0; first < length;) {
    const size_t count = std::min(length - first, random.Between(1, 9));
    TensorView<const float> query = x.in();
    query.data = x.in().Row(0, first);
    query.rows = count;
    TensorView<const float> key = x.in();
    key.rows = first + count;
    const int32_t offset = static_cast<int32_t>(first);
    options.query_offsets = &offset;
    const LayerRun step = RunLayer(*layer, query, key, key, options);
    ASSERT_OK(step.status);
    const auto from = prefill.output.begin() + first * config.out_dim;
    ASSERT_TRUE(
        SameBits(step.output, Floats(from, from + count * config.out_dim)))
        << "rows from " << first;
    first += count;
  }
}

}  // namespace
}  // namespace headwise
