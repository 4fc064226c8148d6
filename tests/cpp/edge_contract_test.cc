// The contract at the edges: what is behind a mask has no effect, what a row
// may see poisons that row and no other, and rows that see nothing are
// defined.
#include <cmath>
#include <limits>

#include "attention_case.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

constexpr float kMax = std::numeric_limits<float>::max();

HEADWISE_TEST_ALL_TARGETS(EdgeContractTest);

MaskData<uint8_t> Attend(size_t rows, size_t keys,
                         const std::vector<uint8_t>& data) {
  return MatrixMask(rows, keys, data);
}

MaskData<float> Bias(size_t rows, size_t keys, const Floats& data) {
  return MatrixMask(rows, keys, data);
}

// All weights of a NaN row are NaN, of keys it may not see too: in whole
// chunks that it skips, and left and right of the keys that are not padding.
TEST_P(EdgeContractTest, WeightsOfANanRowAreNanThroughout) {
  AttentionCase test =
      ListCase(Floats(9, 1.0f), Floats(300, 0.5f), Floats(300, 2.0f));
  test.padding.assign(300, 0);
  for (const size_t j : {0, 1, 298, 299}) test.padding[j] = 1;
  test.causal = Causal::kStart;
  test.query_offsets = {4};
  test.query.At(0, 0, 2, 0) = kNan;
  const AttentionRun run = RunAndCompare(test);
  for (size_t n = 0; n < run.weights.size(); ++n) {
    EXPECT_EQ(std::isnan(run.weights[n]), n / 300 == 2) << n;
    EXPECT_EQ(std::isnan(run.averaged_weights[n]), n / 300 == 2) << n;
  }
}

// ---------------------------------------------------------------- empty rows

TEST_P(EdgeContractTest, EmptyRowsAsNanOnRequest) {
  Random random(40);
  AttentionCase test(2, 4, 2, 6, 150, 5, 9);
  test.Fill(&random);
  test.empty_rows = EmptyRows::kNan;
  AddRandomAttendMask(&test, &random, 15, 0.7);
  for (size_t h = 0; h < test.heads; ++h) {
    for (size_t j = 0; j < test.keys; ++j) {
      test.attend.data[((0 * 4 + h) * 6 + 2) * 150 + j] = 0;
    }
  }
  test.query_lengths = {6, 4};
  const AttentionRun run = RunAndCompare(test);
  for (size_t d = 0; d < 9; ++d) {
    EXPECT_TRUE(std::isnan(run.output[2 * 9 + d]));
    EXPECT_FALSE(std::isnan(run.output[1 * 9 + d]));
  }
  EXPECT_TRUE(std::isnan(run.weights[2 * 150]));
  EXPECT_EQ(run.lse[2], -kInf);
}

TEST_P(EdgeContractTest, NoKeysAtAll) {
  AttentionCase test(2, 4, 2, 3, 0, 5, 6);
  Random random(41);
  test.Fill(&random);
  AttentionRun run = RunAndCompare(test);
  EXPECT_EQ(run.output, Floats(2 * 4 * 3 * 6, 0.0f));
  EXPECT_EQ(run.lse, Floats(2 * 4 * 3, -kInf));
  test.empty_rows = EmptyRows::kNan;
  run = RunAndCompare(test);
  EXPECT_TRUE(SameBits(run.output, Floats(2 * 4 * 3 * 6, kNan)));
}

// One batch entry empty, the other not: each keeps its own keys.
TEST_P(EdgeContractTest, EntriesOfLengthZero) {
  Random random(42);
  AttentionCase test(3, 4, 2, 5, 21, 6, 7);
  test.Fill(&random);
  test.key_lengths = {0, 21, 1};
  test.query_lengths = {5, 0, 5};
  PoisonHidden(&test, &random);
  ExpectMatchesOracle(test);
}

// ------------------------------------------------------- poison behind masks

// The same call with harmless numbers behind the masks: equal bits, whatever
// kind of mask, whichever chunk, and with neighbours in the same tile.
TEST_P(EdgeContractTest, HiddenKeysAndValuesHaveNoEffect) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(5000 + seed);
    AttentionCase clean(2, 4, 2, random.Between(1, 20), random.Between(2, 300),
                        random.Between(1, 12), random.Between(1, 12),
                        Layout::kHeadsLast, 3);
    clean.Fill(&random);
    AddRandomMasks(&clean, &random);
    AttentionCase poisoned = clean;
    PoisonHidden(&poisoned, &random);
    const AttentionRun a = RunAndCompare(clean);
    const AttentionRun b = RunAndCompare(poisoned);
    SCOPED_TRACE(clean.Describe());
    ASSERT_TRUE(SameBits(a.output, b.output));
    ASSERT_TRUE(SameBits(a.weights, b.weights));
    ASSERT_TRUE(SameBits(a.averaged_weights, b.averaged_weights));
    ASSERT_TRUE(SameBits(a.lse, b.lse));
  }
}

// Every second row sees the poisoned key; the rows between share its tile.
TEST_P(EdgeContractTest, PoisonStaysInTheRowsThatSeeIt) {
  for (const size_t at : {0, 1, 6, 127, 128, 200}) {
    for (const float poison : {kNan, kInf, -kInf}) {
      Random random(6000 + at);
      AttentionCase clean(1, 4, 2, 11, 201, 5, 18);
      clean.Fill(&random);
      clean.attend = BroadcastMask<uint8_t>(clean, 3);
      for (size_t i = 0; i < clean.rows; ++i) {
        for (size_t j = 0; j < clean.keys; ++j) {
          clean.attend.data.push_back(j != at || i % 2 == 1);
        }
      }
      const AttentionRun before = RunAndCompare(clean);

      // In a value: that channel of the rows that see it.
      AttentionCase test = clean;
      test.value.At(0, 1, at, 17) = poison;
      AttentionRun after = RunAndCompare(test);
      for (size_t h = 0; h < 4; ++h) {
        for (size_t i = 0; i < clean.rows; ++i) {
          for (size_t d = 0; d < 18; ++d) {
            const size_t n = (h * clean.rows + i) * 18 + d;
            if (h >= 2 && i % 2 == 1 && d == 17) {
              EXPECT_TRUE(SameBits(after.output[n], poison));
            } else {
              EXPECT_TRUE(SameBits(after.output[n], before.output[n]))
                  << "head " << h << ", row " << i << ", channel " << d;
            }
          }
        }
      }
      EXPECT_TRUE(SameBits(after.weights, before.weights));

      // In a key: the rows that see it, unless the score became -infinity.
      test = clean;
      test.key.At(0, 1, at, 3) = poison;
      after = RunAndCompare(test);
      for (size_t h = 0; h < 4; ++h) {
        for (size_t i = 0; i < clean.rows; ++i) {
          if (h >= 2 && i % 2 == 1) continue;
          for (size_t d = 0; d < 18; ++d) {
            const size_t n = (h * clean.rows + i) * 18 + d;
            EXPECT_TRUE(SameBits(after.output[n], before.output[n]))
                << "head " << h << ", row " << i << ", channel " << d;
          }
        }
      }
    }
  }
}

TEST_P(EdgeContractTest, PoisonedQueryStaysInItsRow) {
  for (const float poison : {kNan, kInf, -kInf}) {
    Random random(7000);
    AttentionCase clean(1, 4, 2, 10, 140, 5, 7);
    clean.Fill(&random);
    const AttentionRun before = RunAndCompare(clean);
    AttentionCase test = clean;
    test.query.At(0, 2, 5, 1) = poison;
    const AttentionRun after = RunAndCompare(test);
    for (size_t row = 0; row < 40; ++row) {
      const bool poisoned = row == 2 * 10 + 5;
      for (size_t d = 0; d < 7; ++d) {
        const size_t n = row * 7 + d;
        EXPECT_TRUE(
            SameBits(after.output[n], poisoned ? kNan : before.output[n]));
      }
      for (size_t j = 0; j < 140; ++j) {
        const size_t n = row * 140 + j;
        EXPECT_TRUE(
            SameBits(after.weights[n], poisoned ? kNan : before.weights[n]));
      }
      EXPECT_TRUE(SameBits(after.lse[row], poisoned ? kNan : before.lse[row]));
    }
  }
}

// +infinity and -infinity together in one channel: NaN there, and only there.
TEST_P(EdgeContractTest, OppositeInfinitiesAmongValues) {
  AttentionCase test(1, 1, 1, 1, 4, 1, 3);
  test.scale = 1.0f;
  test.query.SetDense({0});
  test.key.SetDense({0, 0, 0, 0});
  test.value.SetDense({kInf, 1, 1, -kInf, 2, 1, 0, 3, kInf, 0, 2, 0});
  const AttentionRun run = RunAndCompare(test);
  EXPECT_TRUE(SameBits(run.output, Floats{kNan, 2.0f, kInf}));
}

// A score that arithmetic made -infinity hides its key like a mask does.
TEST_P(EdgeContractTest, ScoreOfMinusInfinityHides) {
  AttentionRun run = RunAndCompare(ListCase({1}, {-kInf, 0}, {kNan, 20}));
  EXPECT_EQ(run.output[0], 20.0f);
  EXPECT_EQ(run.weights, (Floats{0, 1}));
  run = RunAndCompare(ListCase({1}, {-kInf, -kInf}, {kNan, 20}));
  EXPECT_EQ(run.output[0], 0.0f);
  EXPECT_EQ(run.lse[0], -kInf);
}

// ---------------------------------------------------------------------- bias

TEST_P(EdgeContractTest, LargeFiniteBiasesAreAdded) {
  for (const float low : {-1e9f, -3.4e38f, -kMax}) {
    AttentionCase test = ListCase({0}, {0, 0}, {10, 20});
    test.bias = Bias(1, 2, {low, low});
    AttentionRun run = RunAndCompare(test);
    EXPECT_EQ(run.output[0], 15.0f) << low;
    EXPECT_EQ(run.lse[0], low);
    test.bias = Bias(1, 2, {0, low});
    run = RunAndCompare(test);
    EXPECT_EQ(run.output[0], 10.0f) << low;
    EXPECT_EQ(run.weights, (Floats{1, 0}));
  }
  AttentionCase test = ListCase({0}, {0, 0}, {10, 20});
  test.bias = Bias(1, 2, {0, kMax});
  EXPECT_EQ(RunAndCompare(test).output[0], 20.0f);
}

TEST_P(EdgeContractTest, NanOrInfinityInTheBias) {
  for (const float poison : {kNan, kInf}) {
    AttentionCase test = ListCase({0, 0, 0}, {0, 0}, {10, 20});
    test.bias = Bias(3, 2, {0, 0, 0, poison, 0, 0});
    AttentionRun run = RunAndCompare(test);
    EXPECT_TRUE(SameBits(run.output, Floats{15, kNan, 15})) << poison;
    // Behind another mask it is nothing.
    test.padding = {0, 1};
    run = RunAndCompare(test);
    EXPECT_EQ(run.output, (Floats{10, 10, 10})) << poison;
    test.padding.clear();
    test.attend = Attend(1, 2, {1, 0});
    EXPECT_EQ(RunAndCompare(test).output, (Floats{10, 10, 10})) << poison;
  }
}

// A bias of -infinity hides whatever the score is: NaN stays behind it.
TEST_P(EdgeContractTest, BiasOfMinusInfinityHidesNanScores) {
  for (const float poison : {kNan, kInf, -kInf}) {
    AttentionCase test = ListCase({1}, {poison, 0}, {10, 20});
    test.bias = Bias(1, 2, {-kInf, 0});
    const AttentionRun run = RunAndCompare(test);
    EXPECT_EQ(run.output[0], 20.0f);
    EXPECT_EQ(run.lse[0], 0.0f);
  }
}

// scale * q.k, then the bias: the bias is not scaled.
TEST_P(EdgeContractTest, BiasComesAfterScale) {
  AttentionCase test = ListCase({2}, {3}, {10});
  test.scale = 0.5f;
  test.bias = Bias(1, 1, {1});
  EXPECT_EQ(RunAndCompare(test).lse[0], 4.0f);
  test.scale = -0.5f;
  EXPECT_EQ(RunAndCompare(test).lse[0], -2.0f);
  test.scale = 0.0f;
  EXPECT_EQ(RunAndCompare(test).lse[0], 1.0f);
}

TEST_P(EdgeContractTest, ScaleIsOneOverRootOfHeadSize) {
  AttentionCase test(1, 1, 1, 1, 1, 16, 1);
  test.query.SetDense(Floats(16, 1.0f));
  test.key.SetDense(Floats(16, 1.0f));
  test.value.SetDense({1});
  EXPECT_EQ(RunAndCompare(test).lse[0], 4.0f);
}

}  // namespace
}  // namespace headwise
