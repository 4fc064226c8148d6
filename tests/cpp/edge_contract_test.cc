// The contract at the edges: what is behind a mask has no effect, what a row
// may see poisons that row and no other, and rows that see nothing are
// defined. Names such as N-04 are public bug reports of other libraries; each
// stands for its whole kind.
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
  MaskData<uint8_t> mask;
  mask.rows = rows;
  mask.keys = keys;
  mask.data = data;
  return mask;
}

MaskData<float> Bias(size_t rows, size_t keys, const Floats& data) {
  MaskData<float> mask;
  mask.rows = rows;
  mask.keys = keys;
  mask.data = data;
  return mask;
}

// 1e-6 relative, as the reports' numbers are given.
void ExpectClose(float actual, double expected) {
  EXPECT_NEAR(actual, expected, 1e-6 * std::abs(expected));
}

// Every case goes by the oracle, too: so the oracle meets the numbers that are
// written out below.
AttentionRun RunOk(const AttentionCase& test) {
  const AttentionRun run = RunCore(test);
  ExpectMatchesOracle(test, run);
  return run;
}

// ------------------------------------------------------- rows of the reports

TEST_P(EdgeContractTest, N01FullyMaskedRow) {
  AttentionCase test = ListCase({1, 1}, {1, 2}, {10, 20});
  test.attend = Attend(2, 2, {0, 0, 1, 1});
  const AttentionRun run = RunOk(test);
  EXPECT_EQ(run.output[0], 0.0f);
  ExpectClose(run.output[1], 17.310586);
  EXPECT_EQ(run.weights[0], 0.0f);
  EXPECT_EQ(run.weights[1], 0.0f);
  EXPECT_EQ(run.lse[0], -kInf);
  ExpectClose(run.lse[1], 2.313262);
}

TEST_P(EdgeContractTest, N04PoisonBehindEveryKindOfMask) {
  for (const float poison : {kNan, kInf, -kInf}) {
    const AttentionCase plain = ListCase({1}, {1, poison}, {10, poison});
    AttentionCase test = plain;
    test.attend = Attend(1, 2, {1, 0});
    EXPECT_EQ(RunOk(test).output[0], 10.0f) << "attend_mask, " << poison;
    test = plain;
    test.bias = Bias(1, 2, {0, -kInf});
    EXPECT_EQ(RunOk(test).output[0], 10.0f) << "attn_bias, " << poison;
    test = plain;
    test.padding = {0, 1};
    EXPECT_EQ(RunOk(test).output[0], 10.0f) << "padding, " << poison;
    test = plain;
    test.key_lengths = {1};
    EXPECT_EQ(RunOk(test).output[0], 10.0f) << "key_lengths, " << poison;
    test = plain;
    test.causal = Causal::kStart;
    EXPECT_EQ(RunOk(test).output[0], 10.0f) << "causal, " << poison;
  }
}

TEST_P(EdgeContractTest, N07VeryLowScoresAreHonest) {
  const AttentionRun run = RunOk(ListCase({1}, {-100000, -100001}, {10, 20}));
  ExpectClose(run.output[0], 12.689414);
  EXPECT_NEAR(run.lse[0], -99999.687, 0.01);
}

TEST_P(EdgeContractTest, N09LargeScores) {
  const AttentionRun run = RunOk(ListCase({1}, {1000, 1001}, {10, 20}));
  ExpectClose(run.output[0], 17.310586);
  ExpectClose(run.lse[0], 1001.313262);
}

TEST_P(EdgeContractTest, N13InfiniteBiasDoesNotLeak) {
  AttentionCase test = ListCase({1}, {1, 1}, {10, 20});
  test.bias = Bias(1, 2, {0, -kInf});
  EXPECT_EQ(RunOk(test).output[0], 10.0f);
}

TEST_P(EdgeContractTest, N15CausalWithFewerQueriesThanKeys) {
  AttentionCase test = ListCase({0}, {0, 0, 0, 0}, {1, 2, 3, 4});
  test.causal = Causal::kEnd;
  EXPECT_EQ(RunOk(test).output[0], 2.5f);
  test.causal = Causal::kStart;
  EXPECT_EQ(RunOk(test).output[0], 1.0f);
  // Three tokens were held before this query.
  test.query_offsets = {3};
  EXPECT_EQ(RunOk(test).output[0], 2.5f);
  test.query_offsets = {-1};
  EXPECT_EQ(RunOk(test).output[0], 0.0f);
}

TEST_P(EdgeContractTest, N17PolarityIsInTheName) {
  AttentionCase test = ListCase({0}, {0, 0}, {10, 20});
  test.attend = Attend(1, 2, {1, 0});
  EXPECT_EQ(RunOk(test).output[0], 10.0f);
  test.attend = {};
  test.padding = {1, 0};
  EXPECT_EQ(RunOk(test).output[0], 20.0f);
}

TEST_P(EdgeContractTest, N19CausalAndMaskCompose) {
  AttentionCase test = ListCase({0, 0, 0}, {0, 0, 0}, {1, 2, 3});
  test.causal = Causal::kStart;
  test.attend = Attend(3, 3, {1, 1, 1, 1, 1, 0, 0, 1, 1});
  EXPECT_EQ(RunOk(test).output, (Floats{1.0f, 1.5f, 2.5f}));
}

// One mask, described in every shape that can hold it: the same bits.
TEST_P(EdgeContractTest, N21N26OneMaskInEveryShape) {
  Random random(21);
  AttentionCase plain(2, 4, 2, 5, 19, 6, 7);
  plain.Fill(&random);
  std::vector<uint8_t> seen;
  for (size_t j = 0; j < plain.keys; ++j) seen.push_back(random.Chance(0.6));
  Floats first;
  for (unsigned bits = 1; bits < 16; bits += 2) {
    AttentionCase test = plain;
    test.attend = BroadcastMask<uint8_t>(test, bits);
    test.bias = BroadcastMask<float>(test, bits);
    for (size_t n = 0; n < test.attend.size(); ++n) {
      test.attend.data.push_back(seen[n % test.keys]);
    }
    for (size_t n = 0; n < test.bias.size(); ++n) {
      test.bias.data.push_back(seen[n % test.keys] != 0 ? 0.0f : -kInf);
    }
    const MaskData<float> bias = test.bias;
    test.bias = {};
    const Floats by_mask = RunOk(test).output;
    if (first.empty()) first = by_mask;
    EXPECT_TRUE(SameBits(by_mask, first)) << test.Describe();
    test.attend = {};
    test.bias = bias;
    EXPECT_TRUE(SameBits(RunOk(test).output, first)) << test.Describe();
    test.bias = {};
  }
}

TEST_P(EdgeContractTest, N22MaskAxesAreNotMixedUp) {
  Random random(22);
  for (size_t n = 0; n < 20; ++n) {
    AttentionCase test(2, 3, 3, 4, 5, 6, 7);
    test.Fill(&random);
    AddRandomAttendMask(&test, &random, 15, 0.5);
    ExpectMatchesOracle(test);
  }
}

TEST_P(EdgeContractTest, N25KeyLengthsNeedNoQueryLengths) {
  AttentionCase test = ListCase({0, 0}, {0, 0, 0, 0}, {1, 3, 100, 100});
  test.key_lengths = {2};
  EXPECT_EQ(RunOk(test).output, (Floats{2, 2}));
  test.query_lengths = {1};
  EXPECT_EQ(RunOk(test).output, (Floats{2, 0}));
}

TEST_P(EdgeContractTest, N35HeadsReadTheirGroup) {
  AttentionCase test(1, 4, 2, 1, 1, 1, 1);
  test.query.SetDense({0, 0, 0, 0});
  test.key.SetDense({0, 0});
  test.value.SetDense({10, 20});
  EXPECT_EQ(RunOk(test).output, (Floats{10, 10, 20, 20}));
}

// Grouped heads are what repeating each key/value head gives, to the bit.
TEST_P(EdgeContractTest, N35GroupsEqualRepeatedHeads) {
  Random random(35);
  AttentionCase grouped(2, 6, 2, 7, 140, 5, 9);
  grouped.Fill(&random);
  AttentionCase repeated(2, 6, 6, 7, 140, 5, 9);
  repeated.query.SetDense(grouped.query.Dense());
  for (size_t b = 0; b < 2; ++b) {
    for (size_t h = 0; h < 6; ++h) {
      for (size_t j = 0; j < 140; ++j) {
        for (size_t d = 0; d < 5; ++d) {
          repeated.key.At(b, h, j, d) = grouped.key.At(b, h / 3, j, d);
        }
        for (size_t d = 0; d < 9; ++d) {
          repeated.value.At(b, h, j, d) = grouped.value.At(b, h / 3, j, d);
        }
      }
    }
  }
  EXPECT_TRUE(SameBits(RunOk(grouped).output, RunOk(repeated).output));
}

TEST_P(EdgeContractTest, N47InfiniteScoreMakesItsRowNan) {
  AttentionCase test = ListCase({1, 1, 1, 1}, {kInf, 0, 0}, {10, 20, 40});
  test.attend = Attend(4, 3, {0, 1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1});
  const AttentionRun run = RunOk(test);
  EXPECT_EQ(run.output[0], 30.0f);
  EXPECT_TRUE(std::isnan(run.output[1]));
  EXPECT_EQ(run.output[2], 20.0f);
  EXPECT_EQ(run.output[3], 30.0f);
  EXPECT_TRUE(std::isnan(run.lse[1]));
}

// The poisoned rows are all that a tile, or a later chunk, has to look at.
TEST_P(EdgeContractTest, N47NothingButPoison) {
  for (const float poison : {kNan, kInf}) {
    for (const size_t keys : {1, 3, 128, 129, 130, 300}) {
      AttentionCase test =
          ListCase({1}, Floats(keys, 0.5f), Floats(keys, 2.0f));
      test.key.At(0, 0, keys - 1, 0) = poison;
      AttentionRun run = RunOk(test);
      EXPECT_TRUE(std::isnan(run.output[0])) << keys << " keys";
      EXPECT_TRUE(std::isnan(run.lse[0])) << keys << " keys";
      EXPECT_TRUE(SameBits(run.weights, Floats(keys, kNan)));
      // Alone in its chunk.
      test.padding.assign(keys, 0);
      for (size_t j = keys / 128 * 128; j + 1 < keys; ++j) {
        test.padding[j] = 1;
      }
      run = RunOk(test);
      EXPECT_TRUE(std::isnan(run.output[0])) << keys << " keys";
    }
  }
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
  const AttentionRun run = RunOk(test);
  for (size_t n = 0; n < run.weights.size(); ++n) {
    EXPECT_EQ(std::isnan(run.weights[n]), n / 300 == 2) << n;
    EXPECT_EQ(std::isnan(run.averaged_weights[n]), n / 300 == 2) << n;
  }
}

TEST_P(EdgeContractTest, N51MaskedWeightsAreExactlyZero) {
  AttentionCase test = ListCase({1}, {10000, 0, -10000}, {10, 20, 40});
  test.attend = Attend(1, 3, {0, 1, 1});
  AttentionRun run = RunOk(test);
  EXPECT_EQ(run.weights, (Floats{0, 1, 0}));
  EXPECT_EQ(run.output[0], 20.0f);
  test.attend = Attend(1, 3, {0, 0, 1});
  run = RunOk(test);
  EXPECT_EQ(run.weights, (Floats{0, 0, 1}));
  EXPECT_EQ(run.averaged_weights, (Floats{0, 0, 1}));
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
  const AttentionRun run = RunOk(test);
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
  AttentionRun run = RunOk(test);
  EXPECT_EQ(run.output, Floats(2 * 4 * 3 * 6, 0.0f));
  EXPECT_EQ(run.lse, Floats(2 * 4 * 3, -kInf));
  test.empty_rows = EmptyRows::kNan;
  run = RunOk(test);
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
    const AttentionRun a = RunOk(clean);
    const AttentionRun b = RunOk(poisoned);
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
      const AttentionRun before = RunOk(clean);

      // In a value: that channel of the rows that see it.
      AttentionCase test = clean;
      test.value.At(0, 1, at, 17) = poison;
      AttentionRun after = RunOk(test);
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
      after = RunOk(test);
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
    const AttentionRun before = RunOk(clean);
    AttentionCase test = clean;
    test.query.At(0, 2, 5, 1) = poison;
    const AttentionRun after = RunOk(test);
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
  const AttentionRun run = RunOk(test);
  EXPECT_TRUE(SameBits(run.output, Floats{kNan, 2.0f, kInf}));
}

// A score that arithmetic made -infinity hides its key like a mask does.
TEST_P(EdgeContractTest, ScoreOfMinusInfinityHides) {
  AttentionRun run = RunOk(ListCase({1}, {-kInf, 0}, {kNan, 20}));
  EXPECT_EQ(run.output[0], 20.0f);
  EXPECT_EQ(run.weights, (Floats{0, 1}));
  run = RunOk(ListCase({1}, {-kInf, -kInf}, {kNan, 20}));
  EXPECT_EQ(run.output[0], 0.0f);
  EXPECT_EQ(run.lse[0], -kInf);
}

// ---------------------------------------------------------------------- bias

TEST_P(EdgeContractTest, LargeFiniteBiasesAreAdded) {
  for (const float low : {-1e9f, -3.4e38f, -kMax}) {
    AttentionCase test = ListCase({0}, {0, 0}, {10, 20});
    test.bias = Bias(1, 2, {low, low});
    AttentionRun run = RunOk(test);
    EXPECT_EQ(run.output[0], 15.0f) << low;
    EXPECT_EQ(run.lse[0], low);
    test.bias = Bias(1, 2, {0, low});
    run = RunOk(test);
    EXPECT_EQ(run.output[0], 10.0f) << low;
    EXPECT_EQ(run.weights, (Floats{1, 0}));
  }
  AttentionCase test = ListCase({0}, {0, 0}, {10, 20});
  test.bias = Bias(1, 2, {0, kMax});
  EXPECT_EQ(RunOk(test).output[0], 20.0f);
}

TEST_P(EdgeContractTest, NanOrInfinityInTheBias) {
  for (const float poison : {kNan, kInf}) {
    AttentionCase test = ListCase({0, 0, 0}, {0, 0}, {10, 20});
    test.bias = Bias(3, 2, {0, 0, 0, poison, 0, 0});
    AttentionRun run = RunOk(test);
    EXPECT_TRUE(SameBits(run.output, Floats{15, kNan, 15})) << poison;
    // Behind another mask it is nothing.
    test.padding = {0, 1};
    run = RunOk(test);
    EXPECT_EQ(run.output, (Floats{10, 10, 10})) << poison;
    test.padding.clear();
    test.attend = Attend(1, 2, {1, 0});
    EXPECT_EQ(RunOk(test).output, (Floats{10, 10, 10})) << poison;
  }
}

// A bias of -infinity hides whatever the score is: NaN stays behind it.
TEST_P(EdgeContractTest, BiasOfMinusInfinityHidesNanScores) {
  for (const float poison : {kNan, kInf, -kInf}) {
    AttentionCase test = ListCase({1}, {poison, 0}, {10, 20});
    test.bias = Bias(1, 2, {-kInf, 0});
    const AttentionRun run = RunOk(test);
    EXPECT_EQ(run.output[0], 20.0f);
    EXPECT_EQ(run.lse[0], 0.0f);
  }
}

// scale * q.k, then the bias: the bias is not scaled.
TEST_P(EdgeContractTest, BiasComesAfterScale) {
  AttentionCase test = ListCase({2}, {3}, {10});
  test.scale = 0.5f;
  test.bias = Bias(1, 1, {1});
  EXPECT_EQ(RunOk(test).lse[0], 4.0f);
  test.scale = -0.5f;
  EXPECT_EQ(RunOk(test).lse[0], -2.0f);
  test.scale = 0.0f;
  EXPECT_EQ(RunOk(test).lse[0], 1.0f);
}

TEST_P(EdgeContractTest, ScaleIsOneOverRootOfHeadSize) {
  AttentionCase test(1, 1, 1, 1, 1, 16, 1);
  test.query.SetDense(Floats(16, 1.0f));
  test.key.SetDense(Floats(16, 1.0f));
  test.value.SetDense({1});
  EXPECT_EQ(RunOk(test).lse[0], 4.0f);
}

}  // namespace
}  // namespace headwise
