// Bug reports of other libraries, by the ids of our list, each with the right
// numbers. A row stands for its whole kind: edge_contract_test.cc has more.
// Every case goes by the oracle, too, so the oracle meets these numbers.
#include <cmath>

#include "attention_case.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(ReportedFailuresTest);

MaskData<uint8_t> Attend(size_t rows, size_t keys,
                         const std::vector<uint8_t>& data) {
  return MatrixMask(rows, keys, data);
}

MaskData<float> Bias(size_t rows, size_t keys, const Floats& data) {
  return MatrixMask(rows, keys, data);
}

// 1e-6 relative, as the reports' numbers are given.
void ExpectClose(float actual, double expected) {
  EXPECT_NEAR(actual, expected, 1e-6 * std::abs(expected));
}

TEST_P(ReportedFailuresTest, N01FullyMaskedRow) {
  AttentionCase test = ListCase({1, 1}, {1, 2}, {10, 20});
  test.attend = Attend(2, 2, {0, 0, 1, 1});
  const AttentionRun run = RunAndCompare(test);
  EXPECT_EQ(run.output[0], 0.0f);
  ExpectClose(run.output[1], 17.310586);
  EXPECT_EQ(run.weights[0], 0.0f);
  EXPECT_EQ(run.weights[1], 0.0f);
  EXPECT_EQ(run.lse[0], -kInf);
  ExpectClose(run.lse[1], 2.313262);
}

TEST_P(ReportedFailuresTest, N04PoisonBehindEveryKindOfMask) {
  for (const float poison : {kNan, kInf, -kInf}) {
    const AttentionCase plain = ListCase({1}, {1, poison}, {10, poison});
    AttentionCase test = plain;
    test.attend = Attend(1, 2, {1, 0});
    EXPECT_EQ(RunAndCompare(test).output[0], 10.0f)
        << "attend_mask, " << poison;
    test = plain;
    test.bias = Bias(1, 2, {0, -kInf});
    EXPECT_EQ(RunAndCompare(test).output[0], 10.0f) << "attn_bias, " << poison;
    test = plain;
    test.padding = {0, 1};
    EXPECT_EQ(RunAndCompare(test).output[0], 10.0f) << "padding, " << poison;
    test = plain;
    test.key_lengths = {1};
    EXPECT_EQ(RunAndCompare(test).output[0], 10.0f)
        << "key_lengths, " << poison;
    test = plain;
    test.causal = Causal::kStart;
    EXPECT_EQ(RunAndCompare(test).output[0], 10.0f) << "causal, " << poison;
  }
}

TEST_P(ReportedFailuresTest, N07VeryLowScoresAreHonest) {
  const AttentionRun run =
      RunAndCompare(ListCase({1}, {-100000, -100001}, {10, 20}));
  ExpectClose(run.output[0], 12.689414);
  EXPECT_NEAR(run.lse[0], -99999.687, 0.01);
}

TEST_P(ReportedFailuresTest, N09LargeScores) {
  const AttentionRun run = RunAndCompare(ListCase({1}, {1000, 1001}, {10, 20}));
  ExpectClose(run.output[0], 17.310586);
  ExpectClose(run.lse[0], 1001.313262);
}

TEST_P(ReportedFailuresTest, N13InfiniteBiasDoesNotLeak) {
  AttentionCase test = ListCase({1}, {1, 1}, {10, 20});
  test.bias = Bias(1, 2, {0, -kInf});
  EXPECT_EQ(RunAndCompare(test).output[0], 10.0f);
}

TEST_P(ReportedFailuresTest, N15CausalWithFewerQueriesThanKeys) {
  AttentionCase test = ListCase({0}, {0, 0, 0, 0}, {1, 2, 3, 4});
  test.causal = Causal::kEnd;
  EXPECT_EQ(RunAndCompare(test).output[0], 2.5f);
  test.causal = Causal::kStart;
  EXPECT_EQ(RunAndCompare(test).output[0], 1.0f);
  // Three tokens were held before this query.
  test.query_offsets = {3};
  EXPECT_EQ(RunAndCompare(test).output[0], 2.5f);
  test.query_offsets = {-1};
  EXPECT_EQ(RunAndCompare(test).output[0], 0.0f);
}

TEST_P(ReportedFailuresTest, N17PolarityIsInTheName) {
  AttentionCase test = ListCase({0}, {0, 0}, {10, 20});
  test.attend = Attend(1, 2, {1, 0});
  EXPECT_EQ(RunAndCompare(test).output[0], 10.0f);
  test.attend = {};
  test.padding = {1, 0};
  EXPECT_EQ(RunAndCompare(test).output[0], 20.0f);
}

TEST_P(ReportedFailuresTest, N19CausalAndMaskCompose) {
  AttentionCase test = ListCase({0, 0, 0}, {0, 0, 0}, {1, 2, 3});
  test.causal = Causal::kStart;
  test.attend = Attend(3, 3, {1, 1, 1, 1, 1, 0, 0, 1, 1});
  EXPECT_EQ(RunAndCompare(test).output, (Floats{1.0f, 1.5f, 2.5f}));
}

// One mask, described in every shape that can hold it: the same bits.
TEST_P(ReportedFailuresTest, N21N26OneMaskInEveryShape) {
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
    const Floats by_mask = RunAndCompare(test).output;
    if (first.empty()) first = by_mask;
    EXPECT_TRUE(SameBits(by_mask, first)) << test.Describe();
    test.attend = {};
    test.bias = bias;
    EXPECT_TRUE(SameBits(RunAndCompare(test).output, first)) << test.Describe();
    test.bias = {};
  }
}

TEST_P(ReportedFailuresTest, N22MaskAxesAreNotMixedUp) {
  Random random(22);
  for (size_t n = 0; n < 20; ++n) {
    AttentionCase test(2, 3, 3, 4, 5, 6, 7);
    test.Fill(&random);
    AddRandomAttendMask(&test, &random, 15, 0.5);
    ExpectMatchesOracle(test);
  }
}

TEST_P(ReportedFailuresTest, N25KeyLengthsNeedNoQueryLengths) {
  AttentionCase test = ListCase({0, 0}, {0, 0, 0, 0}, {1, 3, 100, 100});
  test.key_lengths = {2};
  EXPECT_EQ(RunAndCompare(test).output, (Floats{2, 2}));
  test.query_lengths = {1};
  EXPECT_EQ(RunAndCompare(test).output, (Floats{2, 0}));
}

TEST_P(ReportedFailuresTest, N35HeadsReadTheirGroup) {
  AttentionCase test(1, 4, 2, 1, 1, 1, 1);
  test.query.SetDense({0, 0, 0, 0});
  test.key.SetDense({0, 0});
  test.value.SetDense({10, 20});
  EXPECT_EQ(RunAndCompare(test).output, (Floats{10, 10, 20, 20}));
}

// Grouped heads are what repeating each key/value head gives, to the bit.
TEST_P(ReportedFailuresTest, N35GroupsEqualRepeatedHeads) {
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
  EXPECT_TRUE(
      SameBits(RunAndCompare(grouped).output, RunAndCompare(repeated).output));
}

TEST_P(ReportedFailuresTest, N47InfiniteScoreMakesItsRowNan) {
  AttentionCase test = ListCase({1, 1, 1, 1}, {kInf, 0, 0}, {10, 20, 40});
  test.attend = Attend(4, 3, {0, 1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1});
  const AttentionRun run = RunAndCompare(test);
  EXPECT_EQ(run.output[0], 30.0f);
  EXPECT_TRUE(std::isnan(run.output[1]));
  EXPECT_EQ(run.output[2], 20.0f);
  EXPECT_EQ(run.output[3], 30.0f);
  EXPECT_TRUE(std::isnan(run.lse[1]));
}

// The poisoned rows are all that a tile, or a later chunk, has to look at.
TEST_P(ReportedFailuresTest, N47NothingButPoison) {
  for (const float poison : {kNan, kInf}) {
    for (const size_t keys : {1, 3, 128, 129, 130, 300}) {
      AttentionCase test =
          ListCase({1}, Floats(keys, 0.5f), Floats(keys, 2.0f));
      test.key.At(0, 0, keys - 1, 0) = poison;
      AttentionRun run = RunAndCompare(test);
      EXPECT_TRUE(std::isnan(run.output[0])) << keys << " keys";
      EXPECT_TRUE(std::isnan(run.lse[0])) << keys << " keys";
      EXPECT_TRUE(SameBits(run.weights, Floats(keys, kNan)));
      // Alone in its chunk.
      test.padding.assign(keys, 0);
      for (size_t j = keys / 128 * 128; j + 1 < keys; ++j) {
        test.padding[j] = 1;
      }
      run = RunAndCompare(test);
      EXPECT_TRUE(std::isnan(run.output[0])) << keys << " keys";
    }
  }
}

TEST_P(ReportedFailuresTest, N51MaskedWeightsAreExactlyZero) {
  AttentionCase test = ListCase({1}, {10000, 0, -10000}, {10, 20, 40});
  test.attend = Attend(1, 3, {0, 1, 1});
  AttentionRun run = RunAndCompare(test);
  EXPECT_EQ(run.weights, (Floats{0, 1, 0}));
  EXPECT_EQ(run.output[0], 20.0f);
  test.attend = Attend(1, 3, {0, 0, 1});
  run = RunAndCompare(test);
  EXPECT_EQ(run.weights, (Floats{0, 0, 1}));
  EXPECT_EQ(run.averaged_weights, (Floats{0, 0, 1}));
}

}  // namespace
}  // namespace headwise
