// Partial results over disjoint keys, joined.
#include "headwise/merge.h"

#include <cmath>
#include <vector>

#include "attention_case.h"
#include "cache_case.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(MergeTest);

struct Merged {
  Floats output;
  Floats lse;
};

Merged Merge(const std::vector<Merged>& from, size_t rows, size_t cols) {
  std::vector<AttentionPart> parts;
  for (const Merged& part : from) {
    parts.push_back({part.output.data(), part.lse.data()});
  }
  Merged merged = {Floats(rows * cols, 42.0f), Floats(rows, 42.0f)};
  const Status status = MergeAttention(parts.data(), parts.size(), rows, cols,
                                       merged.output.data(), merged.lse.data());
  EXPECT_TRUE(status.ok()) << status.message();
  return merged;
}

TEST_P(MergeTest, N41PartsAndTheirWhole) {
  const AttentionRun low = RunAndCompare(ListCase({1}, {0, 1}, {1, 2}));
  const AttentionRun high = RunAndCompare(ListCase({1}, {2, 3}, {3, 4}));
  const AttentionRun none = RunAndCompare(ListCase({1}, {}, {}));
  EXPECT_NEAR(low.output[0], 1.731059, 1e-6);
  EXPECT_NEAR(low.lse[0], 1.313262, 1e-6);
  EXPECT_NEAR(high.output[0], 3.731059, 1e-6);
  EXPECT_NEAR(high.lse[0], 3.313262, 1e-6);
  EXPECT_EQ(none.output[0], 0.0f);
  EXPECT_EQ(none.lse[0], -kInf);
  const Merged a = {low.output, low.lse};
  const Merged b = {high.output, high.lse};
  const Merged empty = {none.output, none.lse};
  const Merged whole = Merge({a, b}, 1, 1);
  EXPECT_NEAR(whole.output[0], 3.492653, 3e-6);
  EXPECT_NEAR(whole.lse[0], 3.440190, 3e-6);
  for (const Merged& with :
       {Merge({empty, a, b}, 1, 1), Merge({a, empty, b}, 1, 1),
        Merge({a, b, empty}, 1, 1)}) {
    EXPECT_TRUE(SameBits(with.output, whole.output));
    EXPECT_TRUE(SameBits(with.lse, whole.lse));
  }
  const Merged alone = Merge({empty, whole}, 1, 1);
  EXPECT_NEAR(alone.output[0], whole.output[0], 1e-6);
  EXPECT_NEAR(alone.lse[0], whole.lse[0], 1e-6);
}

TEST_P(MergeTest, N41SplitOverKeysEqualsTheWhole) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(4100 + seed);
    const size_t keys = random.Between(1, 150);
    AttentionCase test(2, 4, 2, 7, keys, 5, 9);
    test.Fill(&random);
    AddRandomAttendMask(&test, &random, 11, random.Pick<double>({0.1, 0.7}));
    const AttentionRun whole = RunAndCompare(test);
    const size_t rows = 2 * 4 * 7;
    std::vector<Merged> parts;
    for (size_t begin = 0; begin < keys;) {
      const size_t end = random.Between(begin + 1, keys);
      AttentionCase part(2, 4, 2, 7, end - begin, 5, 9);
      part.query = test.query;
      for (size_t b = 0; b < 2; ++b) {
        for (size_t h = 0; h < 2; ++h) {
          for (size_t j = begin; j < end; ++j) {
            for (size_t d = 0; d < 5; ++d) {
              part.key.At(b, h, j - begin, d) = test.key.At(b, h, j, d);
            }
            for (size_t d = 0; d < 9; ++d) {
              part.value.At(b, h, j - begin, d) = test.value.At(b, h, j, d);
            }
          }
        }
      }
      part.attend = BroadcastMask<uint8_t>(part, 11);
      for (size_t row = 0; row < 2 * 7; ++row) {
        for (size_t j = begin; j < end; ++j) {
          part.attend.data.push_back(test.attend.data[row * keys + j]);
        }
      }
      const AttentionRun run = RunCore(part);
      parts.push_back({run.output, run.lse});
      begin = end;
    }
    const Merged merged = Merge(parts, rows, 9);
    for (size_t n = 0; n < merged.output.size(); ++n) {
      EXPECT_NEAR(merged.output[n], whole.output[n], 2e-6) << n;
    }
    for (size_t n = 0; n < rows; ++n) {
      if (whole.lse[n] == -kInf) {
        EXPECT_EQ(merged.lse[n], -kInf);
        EXPECT_EQ(merged.output[n * 9], 0.0f);
      } else {
        EXPECT_NEAR(merged.lse[n], whole.lse[n], 2e-6) << n;
      }
    }
  }
}

TEST_P(MergeTest, NanStaysInItsRow) {
  const Merged a = {{1, 2, 3, 4}, {0, 0}};
  const Merged b = {{5, 6, 7, 8}, {kNan, 0}};
  const Merged merged = Merge({a, b}, 2, 2);
  EXPECT_TRUE(SameBits(merged.output, {kNan, kNan, 5, 6}));
  EXPECT_TRUE(std::isnan(merged.lse[0]));
  EXPECT_FLOAT_EQ(merged.lse[1], std::log(2.0f));
  // Two infinities of score: no weights can be told.
  const Merged huge = Merge({{{1}, {kInf}}, {{2}, {0}}}, 1, 1);
  EXPECT_TRUE(std::isnan(huge.output[0]));
}

// Of a part that saw nothing the output is not looked at.
TEST_P(MergeTest, EmptyPartsMayHoldAnything) {
  const Merged merged = Merge({{{kNan}, {-kInf}}, {{3}, {1}}}, 1, 1);
  EXPECT_EQ(merged.output[0], 3.0f);
  EXPECT_EQ(merged.lse[0], 1.0f);
  const Merged nothing = Merge({{{kNan}, {-kInf}}, {{kInf}, {-kInf}}}, 1, 1);
  EXPECT_EQ(nothing.output[0], 0.0f);
  EXPECT_EQ(nothing.lse[0], -kInf);
  const Merged no_parts = Merge({}, 1, 2);
  EXPECT_EQ(no_parts.output, (Floats{0, 0}));
  EXPECT_EQ(no_parts.lse[0], -kInf);
}

TEST_P(MergeTest, ExtremeLseDoNotOverflow) {
  const Merged merged =
      Merge({{{1}, {1000}}, {{3}, {1000}}, {{5}, {-1000}}}, 1, 1);
  EXPECT_FLOAT_EQ(merged.output[0], 2.0f);
  EXPECT_FLOAT_EQ(merged.lse[0], 1000.0f + std::log(2.0f));
}

TEST_P(MergeTest, LseMayBeLeftOutButNotOfAPart) {
  const Floats output = {1};
  const Floats lse = {0};
  Floats to = {42};
  AttentionPart part = {output.data(), lse.data()};
  ASSERT_OK(MergeAttention(&part, 1, 1, 1, to.data(), nullptr));
  EXPECT_EQ(to[0], 1.0f);
  to[0] = 42;
  part.lse = nullptr;
  ExpectError(MergeAttention(&part, 1, 1, 1, to.data(), nullptr),
              StatusCode::kInvalidArgument, {"part 0", "lse"});
  part = {nullptr, lse.data()};
  ExpectError(MergeAttention(&part, 1, 1, 1, to.data(), nullptr),
              StatusCode::kInvalidArgument, {"part 0", "output"});
  EXPECT_EQ(to[0], 42.0f);
}

}  // namespace
}  // namespace headwise
