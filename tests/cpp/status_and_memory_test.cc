// Status, and memory: nothing is allocated in a forward call after Reserve,
// and running out of memory is an answer, not an end.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "headwise/linear.h"
#include "headwise/multi_head_attention.h"
#include "headwise/status.h"
#include "headwise/workspace.h"
#include "layer_case.h"
#include "memory.h"
#include "test_util.h"

// Counts what goes around the one allocator. Every ordinary form is replaced,
// so that each new meets its delete.
namespace {
std::atomic<size_t> new_count{0};

void* CountedNew(std::size_t size) {
  new_count.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}

void* CountedNewOrDie(std::size_t size) {
  void* block = CountedNew(size);
  if (block == nullptr) std::abort();
  return block;
}
}  // namespace

void* operator new(std::size_t size) { return CountedNewOrDie(size); }
void* operator new[](std::size_t size) { return CountedNewOrDie(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return CountedNew(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return CountedNew(size);
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept {
  std::free(block);
}
void operator delete[](void* block, const std::nothrow_t&) noexcept {
  std::free(block);
}

namespace headwise {
namespace {

using Floats = std::vector<float>;

// Requests of more than `bytes` fail while this lives.
class AllocationLimit {
 public:
  explicit AllocationLimit(size_t bytes) { SetAllocationLimit(bytes); }
  ~AllocationLimit() { SetAllocationLimit(SIZE_MAX); }
};

// What `call` allocates, by either way.
template <typename Call>
size_t AllocationsOf(const Call& call) {
  const size_t before =
      AllocationCount() + new_count.load(std::memory_order_relaxed);
  call();
  return AllocationCount() + new_count.load(std::memory_order_relaxed) - before;
}

// ------------------------------------------------------------------- status

TEST(StatusTest, OkByDefault) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(static_cast<int>(status.code()), 0);
  EXPECT_STREQ(status.message(), "");
}

TEST(StatusTest, ErrorsCarryTheirText) {
  const Status status =
      Status::Error(StatusCode::kShapeMismatch, "%d and %s", 7, "eight");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(static_cast<int>(status.code()),
            static_cast<int>(StatusCode::kShapeMismatch));
  EXPECT_STREQ(status.message(), "7 and eight");
  const Status copy = status;
  EXPECT_STREQ(copy.message(), "7 and eight");
  Status assigned;
  assigned = status;
  EXPECT_EQ(static_cast<int>(assigned.code()),
            static_cast<int>(StatusCode::kShapeMismatch));
  assigned = Status();
  EXPECT_TRUE(assigned.ok());
  EXPECT_STREQ(assigned.message(), "");
}

TEST(StatusTest, LongTextsAreCut) {
  const std::string text(1000, 'x');
  const Status status =
      Status::Error(StatusCode::kInvalidArgument, "%s", text.c_str());
  EXPECT_EQ(std::string(status.message()),
            std::string(Status::kMaxMessage - 1, 'x'));
}

TEST(StatusTest, NeedsNoMemory) {
  EXPECT_EQ(AllocationsOf([] {
              const Status status =
                  Status::Error(StatusCode::kOutOfMemory, "%zu", size_t{9});
              Status copy = status;
              copy = Status();
            }),
            0u);
}

// --------------------------------------------------------------- workspace

TEST(WorkspaceTest, OnlyGrows) {
  Workspace workspace;
  EXPECT_EQ(workspace.bytes(), 0u);
  ASSERT_OK(workspace.Reserve(1000));
  const unsigned char* block = workspace.data();
  EXPECT_GE(workspace.bytes(), 1000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % Workspace::kAlignment, 0u);
  EXPECT_EQ(AllocationsOf([&] { EXPECT_TRUE(workspace.Reserve(10).ok()); }),
            0u);
  EXPECT_EQ(workspace.data(), block);
  workspace.Release();
  EXPECT_EQ(workspace.bytes(), 0u);
  EXPECT_EQ(workspace.data(), nullptr);
  workspace.Release();
  ASSERT_OK(workspace.Reserve(64));
}

TEST(WorkspaceTest, FailureChangesNothing) {
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

// ------------------------------------------------------- nothing allocated

Config SmallConfig() {
  Config config;
  config.embed_dim = 24;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 5;
  config.v_head_dim = 7;
  config.k_dim = 11;
  config.v_dim = 13;
  config.out_dim = 9;
  return Resolved(config);
}

HEADWISE_TEST_ALL_TARGETS(MemoryTest);

struct LayerCall {
  LayerCall(size_t batch, size_t rows, size_t keys, const Config& config,
            Random* random)
      : query(batch, rows, config.embed_dim),
        key(batch, keys, config.k_dim),
        value(batch, keys, config.v_dim),
        output(batch, rows, config.out_dim),
        weights(batch * config.num_heads * rows * keys),
        lse(batch * config.num_heads * rows) {
    query.FillUniform(random, -1, 1);
    key.FillUniform(random, -1, 1);
    value.FillUniform(random, -1, 1);
    output.SetDense(Floats(batch * rows * config.out_dim, 42.0f));
    outputs.output = output.out();
    outputs.weights_kind = WeightsKind::kPerHead;
    outputs.weights = weights.data();
    outputs.lse = lse.data();
  }
  Status Run(const MultiHeadAttention& layer, Workspace* workspace) {
    return layer.Forward(query.in(), key.in(), value.in(), AttentionOptions(),
                         outputs, workspace);
  }
  Tensor query, key, value, output;
  Floats weights, lse;
  ForwardOutputs outputs;
};

TEST_P(MemoryTest, ForwardAllocatesNothingAfterReserve) {
  Random random(1);
  const Config config = SmallConfig();
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  Workspace workspace;
  // Whatever is smaller in each size fits as well.
  ASSERT_OK(layer->Reserve(3, 140, 300, &workspace));
  const size_t sizes[][3] = {{3, 140, 300}, {1, 1, 1},   {3, 140, 1},
                             {1, 140, 300}, {2, 5, 299}, {0, 3, 3},
                             {3, 0, 300},   {3, 139, 0}};
  for (const auto& s : sizes) {
    LayerCall call(s[0], s[1], s[2], config, &random);
    Status status;
    EXPECT_EQ(AllocationsOf([&] { status = call.Run(*layer, &workspace); }), 0u)
        << s[0] << ", " << s[1] << ", " << s[2];
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

// Refusing allocates nothing, either.
TEST_P(MemoryTest, ErrorsAllocateNothing) {
  Random random(2);
  const Config config = SmallConfig();
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  Workspace workspace;
  LayerCall call(2, 3, 5, config, &random);
  call.outputs.output.cols = 8;
  Status status;
  EXPECT_EQ(AllocationsOf([&] { status = call.Run(*layer, &workspace); }), 0u);
  EXPECT_FALSE(status.ok());
}

TEST_P(MemoryTest, UnreservedWorkspaceGrowsOnce) {
  Random random(3);
  const Config config = SmallConfig();
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  Workspace workspace;
  LayerCall call(2, 30, 50, config, &random);
  Status status;
  EXPECT_EQ(AllocationsOf([&] { status = call.Run(*layer, &workspace); }), 1u);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(AllocationsOf([&] { status = call.Run(*layer, &workspace); }), 0u);
  EXPECT_TRUE(status.ok());
}

TEST_P(MemoryTest, AttentionAndLinearAllocateNothingAfterReserve) {
  Random random(4);
  AttentionCase test(2, 4, 2, 70, 150, 9, 10);
  test.Fill(&random);
  HeadsTensor output(Layout::kHeadsFirst, 2, 4, 70, 10, 0);
  AttentionOutputs outputs;
  outputs.output = output.out();
  Workspace workspace;
  ASSERT_OK(workspace.Reserve(AttentionWorkspaceBytes(70, 150, 9, 10)));
  Status status;
  EXPECT_EQ(AllocationsOf([&] {
              status = ScaledDotProductAttention(
                  test.query.in(), test.key.in(), test.value.in(),
                  test.Options(), outputs, &workspace);
            }),
            0u);
  EXPECT_TRUE(status.ok());

  std::unique_ptr<Linear> linear;
  ASSERT_OK(Linear::Create(17, 23, true, 0, &linear));
  const Tensor x(2, 200, 17);
  Tensor y(2, 200, 23);
  Workspace scratch;
  ASSERT_OK(scratch.Reserve(linear->WorkspaceBytes(400)));
  EXPECT_EQ(AllocationsOf(
                [&] { status = linear->Forward(x.in(), y.out(), &scratch); }),
            0u);
  EXPECT_TRUE(status.ok());
}

// Scratch grows with L and S, never with L x S: 4096 x 4096 scores of one
// head would be 64 MiB.
TEST_P(MemoryTest, ScratchStaysSmallerThanTheScores) {
  const size_t bytes = AttentionWorkspaceBytes(4096, 4096, 64, 64);
  EXPECT_LT(bytes, size_t{4} << 20);
  EXPECT_LT(AttentionWorkspaceBytes(8192, 4096, 64, 64), bytes + (1 << 20));
}

// ------------------------------------------------------------ out of memory

TEST_P(MemoryTest, ForwardWithoutMemoryChangesNothing) {
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

TEST_P(MemoryTest, AttentionAndLinearWithoutMemory) {
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
TEST_P(MemoryTest, SetWeightsWithoutMemoryKeepsTheOldOnes) {
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

TEST_P(MemoryTest, LinearSetWeightsWithoutMemoryKeepsTheOldOnes) {
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

TEST_P(MemoryTest, CreateWithoutMemoryMakesNothing) {
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

TEST_P(MemoryTest, SizesWhoseProductOverflows) {
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
TEST_P(MemoryTest, HugeKeyLengthIsRefused) {
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
