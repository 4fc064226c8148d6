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
#include "layer_call.h"
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

// ------------------------------------------------------- nothing allocated

HEADWISE_TEST_ALL_TARGETS(MemoryTest);

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

}  // namespace
}  // namespace headwise
