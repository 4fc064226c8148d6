// Out of memory is an answer, not an end, and changes nothing.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "headwise/linear.h"
#include "headwise/multi_head_attention.h"
#include "headwise/workspace.h"
#include "layer_call.h"
#include "layer_case.h"
#include "memory.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(OutOfMemoryTest);

// Requests of more than `bytes` fail while this lives.
class AllocationLimit {
 public:
  explicit AllocationLimit(size_t bytes) { SetAllocationLimit(bytes); }
  ~AllocationLimit() { SetAllocationLimit(SIZE_MAX); }
};

TEST(WorkspaceLimitTest, FailureChangesNothing) {
  Workspace workspace;
  ASSERT_OK(workspace.Reserve(256));
  std::memset(workspace.data(), 0x5A, 256);
  const unsigned char* block = workspace.data();
  // In 32 bits even half of the address space can be had.
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 63,
                             SIZE_MAX - 64, SIZE_MAX - 5000}) {
    ExpectError(workspace.Reserve(bytes), StatusCode::kOutOfMemory,
                {std::to_string(bytes), "bytes"});
  }
  {
    const AllocationLimit limit(512);
    ExpectError(workspace.Reserve(513), StatusCode::kOutOfMemory, {"513"});
  }
  ASSERT_EQ(workspace.data(), block);
  EXPECT_GE(workspace.bytes(), 256u);
  for (size_t n = 0; n < 256; ++n) ASSERT_EQ(block[n], 0x5A);
}

TEST_P(OutOfMemoryTest, ForwardWithoutMemoryChangesNothing) {
  Random random(5);
  const Config config = SmallConfig();
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  LayerCall call(2, 30, 50, config, &random);
  Workspace workspace;
  ASSERT_OK(call.Run(*layer, &workspace));
  const Floats expected = call.output.Dense();

  LayerCall again = call;
  again.outputs.output = again.output.out();
  again.outputs.weights = again.weights.data();
  again.outputs.lse = again.lse.data();
  again.output.SetDense(Floats(expected.size(), 42.0f));
  Workspace fresh;
  {
    const AllocationLimit limit(1000);
    ExpectError(again.Run(*layer, &fresh), StatusCode::kOutOfMemory, {});
    ExpectError(layer->Reserve(2, 30, 50, &fresh), StatusCode::kOutOfMemory,
                {});
  }
  EXPECT_EQ(again.output.Dense(), Floats(expected.size(), 42.0f));
  EXPECT_EQ(fresh.bytes(), 0u);
  ASSERT_OK(again.Run(*layer, &fresh));
  EXPECT_TRUE(SameBits(again.output.Dense(), expected));
}

TEST_P(OutOfMemoryTest, AttentionAndLinearWithoutMemory) {
  AttentionCase test(1, 4, 2, 5, 40, 9, 10);
  Random random(6);
  test.Fill(&random);
  HeadsTensor output(Layout::kHeadsFirst, 1, 4, 5, 10, 0);
  output.SetDense(Floats(200, 42.0f));
  AttentionOutputs outputs;
  outputs.output = output.out();
  Workspace workspace;
  std::unique_ptr<Linear> linear;
  ASSERT_OK(Linear::Create(17, 23, true, 0, &linear));
  Tensor x(1, 3, 17);
  x.FillUniform(&random, -1, 1);
  Tensor y(1, 3, 23);
  y.SetDense(Floats(69, 42.0f));
  {
    const AllocationLimit limit(100);
    ExpectError(ScaledDotProductAttention(test.query.in(), test.key.in(),
                                          test.value.in(), test.Options(),
                                          outputs, &workspace),
                StatusCode::kOutOfMemory, {"bytes"});
    ExpectError(linear->Forward(x.in(), y.out(), &workspace),
                StatusCode::kOutOfMemory, {"bytes"});
  }
  EXPECT_EQ(output.Dense(), Floats(200, 42.0f));
  EXPECT_EQ(y.Dense(), Floats(69, 42.0f));
  ASSERT_OK(linear->Forward(x.in(), y.out(), &workspace));
}

// Whichever of the weights cannot be packed, all old ones stay.
TEST_P(OutOfMemoryTest, SetWeightsWithoutMemoryKeepsTheOldOnes) {
  Random random(7);
  const Config config = SmallConfig();
  const LayerWeights old = LayerWeights::Uniform(config, &random);
  const LayerWeights fresh = LayerWeights::Uniform(config, &random);
  const auto layer = MakeLayer(config, old);
  ASSERT_NE(layer, nullptr);
  size_t failures = 0;
  size_t successes = 0;
  for (size_t bytes = 0; bytes < 6000; bytes += 64) {
    Status status;
    {
      const AllocationLimit limit(bytes);
      status = layer->SetWeights(fresh.view());
    }
    if (status.ok()) {
      ++successes;
      EXPECT_TRUE(SameBits(LayerWeights::Of(*layer), fresh));
      ASSERT_OK(layer->SetWeights(old.view()));
    } else {
      ++failures;
      EXPECT_EQ(static_cast<int>(status.code()),
                static_cast<int>(StatusCode::kOutOfMemory));
      ASSERT_TRUE(SameBits(LayerWeights::Of(*layer), old)) << "limit " << bytes;
    }
  }
  // The limits span from none to enough.
  EXPECT_GT(failures, 10u);
  EXPECT_GT(successes, 0u);
}

TEST_P(OutOfMemoryTest, LinearSetWeightsWithoutMemoryKeepsTheOldOnes) {
  Random random(8);
  std::unique_ptr<Linear> linear;
  ASSERT_OK(Linear::Create(17, 23, true, 0, &linear));
  Floats before(17 * 23), after(17 * 23);
  ASSERT_OK(linear->GetWeights({before.data(), nullptr}));
  const Floats weight = random.Floats(17 * 23);
  const Floats bias = random.Floats(23);
  {
    const AllocationLimit limit(64);
    ExpectError(linear->SetWeights({weight.data(), bias.data()}),
                StatusCode::kOutOfMemory, {"23", "17"});
  }
  ASSERT_OK(linear->GetWeights({after.data(), nullptr}));
  EXPECT_TRUE(SameBits(before, after));
}

TEST_P(OutOfMemoryTest, CreateWithoutMemoryMakesNothing) {
  std::unique_ptr<MultiHeadAttention> layer;
  std::unique_ptr<Linear> linear;
  for (size_t bytes = 0; bytes < 1024; bytes += 64) {
    const AllocationLimit limit(bytes);
    ExpectError(MultiHeadAttention::Create(SmallConfig(), &layer),
                StatusCode::kOutOfMemory, {});
    ASSERT_EQ(layer, nullptr);
    ExpectError(Linear::Create(17, 23, true, 0, &linear),
                StatusCode::kOutOfMemory, {"17", "23"});
    ASSERT_EQ(linear, nullptr);
  }
}

// -------------------------------------------------------------- huge sizes

TEST_P(OutOfMemoryTest, SizesWhoseProductOverflows) {
  const Config config = SmallConfig();
  std::unique_ptr<MultiHeadAttention> layer;
  ASSERT_OK(MultiHeadAttention::Create(config, &layer));
  Workspace workspace;
  const size_t huge[][3] = {
      {SIZE_MAX, 1, 1},
      {1, SIZE_MAX, 1},
      {1, 1, SIZE_MAX},
      {SIZE_MAX / 4, 8, 8},
      {size_t{1} << (sizeof(size_t) * 4), size_t{1} << (sizeof(size_t) * 4), 1},
      {1, SIZE_MAX / 80, SIZE_MAX / 80}};
  for (const auto& s : huge) {
    ExpectError(layer->Reserve(s[0], s[1], s[2], &workspace),
                StatusCode::kOutOfMemory, {});
    EXPECT_EQ(workspace.bytes(), 0u);
  }
  EXPECT_EQ(AttentionWorkspaceBytes(4, SIZE_MAX / 2, 64, 64), SIZE_MAX);
  EXPECT_EQ(AttentionWorkspaceBytes(4, 8, SIZE_MAX / 2, 64), SIZE_MAX);
  EXPECT_EQ(AttentionWorkspaceBytes(4, 8, 64, SIZE_MAX / 2), SIZE_MAX);
  for (const size_t in : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8}) {
    std::unique_ptr<Linear> linear;
    ExpectError(Linear::Create(in, 8, true, 0, &linear),
                StatusCode::kOutOfMemory, {std::to_string(in)});
    ExpectError(Linear::Create(8, in, true, 0, &linear),
                StatusCode::kOutOfMemory, {std::to_string(in)});
    EXPECT_EQ(linear, nullptr);
  }
}

// A call on views that no memory could hold is refused before it reads them.
TEST_P(OutOfMemoryTest, HugeKeyLengthIsRefused) {
  AttentionCase test(1, 4, 2, 3, 5, 6, 7);
  Random random(9);
  test.Fill(&random);
  HeadsView<const float> key = test.key.in();
  HeadsView<const float> value = test.value.in();
  key.rows = value.rows = SIZE_MAX / 16;
  HeadsTensor output(Layout::kHeadsFirst, 1, 4, 3, 7, 0);
  AttentionOutputs outputs;
  outputs.output = output.out();
  Workspace workspace;
  ExpectError(
      ScaledDotProductAttention(test.query.in(), key, value, AttentionOptions(),
                                outputs, &workspace),
      StatusCode::kOutOfMemory, {"bytes"});
}

}  // namespace
}  // namespace headwise
