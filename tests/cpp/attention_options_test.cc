// Softcap, ALiBi, sinks, windows, chunks, prefixes, extra keys, gates, scores:
// each option at its edges, against numbers worked out by hand. That they
// compose is attention_test.cc's RandomCombinations.
#include <cmath>
#include <vector>

#include "attention_case.h"
#include "headwise/workspace.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;
using Counts = std::vector<int32_t>;

HEADWISE_TEST_ALL_TARGETS(AttentionOptionsTest);

AttentionCase ZeroScores(const Floats& value) {
  return ListCase(Floats(value.size()), Floats(value.size()), value);
}

// ------------------------------------------------------------------ softcap

TEST_P(AttentionOptionsTest, SoftcapNumbers) {
  AttentionCase test = ListCase({1}, {1, 3}, {10, 20});
  test.softcap = 2.0f;
  const AttentionRun run = RunAndCompare(test);
  EXPECT_EQ(run.raw, (Floats{1, 3}));
  EXPECT_NEAR(run.capped[0], 2 * std::tanh(0.5), 1e-6);
  EXPECT_NEAR(run.capped[1], 2 * std::tanh(1.5), 1e-6);
  EXPECT_EQ(run.biased, run.capped);
}

// N-13: capped first, hidden afterwards.
TEST_P(AttentionOptionsTest, N13SoftcapComesBeforeBiasAndMasks) {
  AttentionCase test = ListCase({1}, {1, 1}, {10, 20});
  test.softcap = 2.0f;
  test.bias = MatrixMask<float>(1, 2, {0, -kInf});
  EXPECT_EQ(RunAndCompare(test).output[0], 10.0f);
  test.bias = {};
  test.attend = MatrixMask<uint8_t>(1, 2, {1, 0});
  EXPECT_EQ(RunAndCompare(test).output[0], 10.0f);
  // A large bias is added to what is capped, not capped with it.
  test.attend = {};
  test.bias = MatrixMask<float>(1, 2, {0, 50});
  const AttentionRun run = RunAndCompare(test);
  EXPECT_NEAR(run.biased[1] - run.biased[0], 50.0, 1e-5);
  EXPECT_EQ(run.output[0], 20.0f);
}

// Whatever the scores are, they end between -softcap and softcap.
TEST_P(AttentionOptionsTest, SoftcapOfHugeAndTinyScores) {
  AttentionCase test =
      ListCase({1}, {1e30f, -1e30f, 1e-30f, 0, kInf}, {1, 2, 3, 4, 5});
  test.softcap = 0.5f;
  const AttentionRun run = RunAndCompare(test);
  EXPECT_EQ(run.capped[0], 0.5f);
  EXPECT_EQ(run.capped[1], -0.5f);
  EXPECT_EQ(run.capped[3], 0.0f);
  EXPECT_EQ(run.capped[4], 0.5f);
}

// -------------------------------------------------------------------- ALiBi

TEST_P(AttentionOptionsTest, AlibiIsTheDistanceTimesTheSlope) {
  AttentionCase test(1, 3, 3, 2, 4, 1, 1);
  test.query.SetDense(Floats(6));
  test.key.SetDense(Floats(12));
  test.value.SetDense(Floats(12, 1.0f));
  // N-31: the slopes of three heads; the core takes them as given.
  test.alibi_slopes = {.0625f, .00390625f, .25f};
  test.query_offsets = {1};
  const AttentionRun run = RunAndCompare(test);
  for (size_t h = 0; h < 3; ++h) {
    const float s = test.alibi_slopes[h];
    const Floats rows(run.biased.begin() + static_cast<ptrdiff_t>(h) * 8,
                      run.biased.begin() + static_cast<ptrdiff_t>(h) * 8 + 8);
    EXPECT_EQ(rows, (Floats{-s, 0, -s, -2 * s, -2 * s, -s, 0, -s}));
  }
  // Raw scores do not know of it.
  EXPECT_EQ(run.raw, Floats(24));
}

TEST_P(AttentionOptionsTest, AlibiCountsFromTheSequenceNotFromThePadding) {
  Random random(1);
  AttentionCase test(2, 4, 2, 3, 160, 5, 6);
  test.Fill(&random);
  test.alibi_slopes = {.5f, .25f, .125f, .0625f};
  test.query_offsets = {150, 3};
  for (size_t j = 0; j < 2 * 160; ++j) test.padding.push_back(j % 160 < 7);
  ExpectMatchesOracle(test);
}

// -------------------------------------------------------------------- sinks

TEST_P(AttentionOptionsTest, N38SinksOfEverySize) {
  const float sinks[] = {0, 20, -kInf};
  const double outputs[] = {3, 1.855038e-8, 4.5};
  for (size_t n = 0; n < 3; ++n) {
    AttentionCase test = ListCase({1}, {0, 0}, {3, 6});
    test.sinks = {sinks[n]};
    const AttentionRun run = RunAndCompare(test);
    EXPECT_NEAR(run.output[0], outputs[n], 1e-6 * outputs[n]);
  }
  AttentionCase test = ListCase({1}, {0, 0}, {3, 6});
  test.sinks = {0};
  const AttentionRun run = RunAndCompare(test);
  EXPECT_NEAR(run.weights[0], 1.0 / 3, 1e-7);
  EXPECT_NEAR(run.lse[0], std::log(3.0), 1e-6);
}

TEST_P(AttentionOptionsTest, N40SinkIsShiftedByTheMaximum) {
  AttentionCase test = ListCase({1}, {1000, 1000}, {3, 6});
  test.sinks = {0};
  EXPECT_EQ(RunAndCompare(test).output[0], 4.5f);
  test.sinks = {2000};
  const AttentionRun run = RunAndCompare(test);
  EXPECT_EQ(run.output[0], 0.0f);
  EXPECT_EQ(run.lse[0], 2000.0f);
  EXPECT_EQ(run.row_max[0], 2000.0f);
}

// A row that sees no key attends to its sink: LSE is the sink.
TEST_P(AttentionOptionsTest, N38EmptyRowsWithASink) {
  for (const EmptyRows empty : {EmptyRows::kZero, EmptyRows::kNan}) {
    AttentionCase test = ListCase({1, 1, 1}, {1, 2}, {10, 20});
    test.attend = MatrixMask<uint8_t>(3, 2, {0, 0, 1, 1, 1, 1});
    test.query_lengths = {2};
    test.empty_rows = empty;
    test.sinks = {-1.5f};
    const AttentionRun run = RunAndCompare(test);
    EXPECT_EQ(run.output[0], 0.0f);
    EXPECT_EQ(run.weights[0], 0.0f);
    EXPECT_EQ(run.lse[0], -1.5f);
    EXPECT_EQ(run.row_max[0], -1.5f);
    // A query beyond its entry's length is no row at all.
    EXPECT_EQ(run.lse[2], -kInf);
    EXPECT_EQ(run.row_max[2], -kInf);
    EXPECT_EQ(std::isnan(run.output[2]), empty == EmptyRows::kNan);
    test.sinks = {-kInf};
    EXPECT_EQ(RunAndCompare(test).lse[0], -kInf);
  }
  AttentionCase no_keys = ListCase({1}, {}, {});
  no_keys.sinks = {3};
  const AttentionRun run = RunAndCompare(no_keys);
  EXPECT_EQ(run.output[0], 0.0f);
  EXPECT_EQ(run.lse[0], 3.0f);
}

TEST_P(AttentionOptionsTest, SinksBelongToTheirHeads) {
  Random random(2);
  AttentionCase test(2, 6, 3, 5, 140, 4, 7);
  test.Fill(&random);
  test.sinks = {0, -kInf, 5, -2, 100, 1};
  ExpectMatchesOracle(test);
}

// ------------------------------------------------------------------ windows

TEST_P(AttentionOptionsTest, N24WindowWithAndWithoutAMask) {
  AttentionCase test = ZeroScores({1, 2, 3, 4});
  test.window_left = 1;
  test.window_right = 0;
  const Floats want = {1, 1.5f, 2.5f, 3.5f};
  EXPECT_EQ(RunAndCompare(test).output, want);
  test.attend = MatrixMask<uint8_t>(4, 4, std::vector<uint8_t>(16, 1));
  EXPECT_EQ(RunAndCompare(test).output, want);
}

TEST_P(AttentionOptionsTest, N28WindowCountsNeighboursNotTheTokenItself) {
  AttentionCase test = ZeroScores({1, 2, 3, 4});
  test.causal = Causal::kStart;
  test.window_left = 1;
  EXPECT_EQ(RunAndCompare(test).output, (Floats{1, 1.5f, 2.5f, 3.5f}));
  test.window_right = 0;
  EXPECT_EQ(RunAndCompare(test).output, (Floats{1, 1.5f, 2.5f, 3.5f}));
  test.window_left = 0;
  EXPECT_EQ(RunAndCompare(test).output, (Floats{1, 2, 3, 4}));
  test.causal = Causal::kNone;
  EXPECT_EQ(RunAndCompare(test).output, (Floats{1, 2, 3, 4}));
  test.window_right = 1;
  EXPECT_EQ(RunAndCompare(test).output, (Floats{1.5f, 2.5f, 3.5f, 4}));
  test.window_left = -1;
  EXPECT_EQ(RunAndCompare(test).output, (Floats{1.5f, 2, 2.5f, 2.5f}));
}

// N-30: in a query's own position, not in its row number.
TEST_P(AttentionOptionsTest, N30WindowOfAQueryInTheMiddle) {
  AttentionCase test = ListCase({0}, Floats(6), {1, 2, 3, 4, 5, 6});
  test.window_left = 1;
  test.query_offsets = {5};
  EXPECT_EQ(RunAndCompare(test).output[0], 5.5f);
  test.causal = Causal::kStart;
  EXPECT_EQ(RunAndCompare(test).output[0], 5.5f);
  test.query_offsets.clear();
  test.causal = Causal::kEnd;
  EXPECT_EQ(RunAndCompare(test).output[0], 5.5f);
  // Out of sight of every key.
  test.causal = Causal::kNone;
  test.query_offsets = {9};
  EXPECT_EQ(RunAndCompare(test).output[0], 0.0f);
  test.query_offsets = {-9};
  test.window_right = 2;
  EXPECT_EQ(RunAndCompare(test).output[0], 0.0f);
}

TEST_P(AttentionOptionsTest, EveryWindow) {
  Random random(3);
  for (int32_t left = -1; left <= 12; ++left) {
    for (int32_t right = -1; right <= 12; right += 2) {
      AttentionCase test(2, 4, 2, 9, 11, 3, 5);
      test.Fill(&random);
      test.window_left = left;
      test.window_right = right;
      test.causal = static_cast<Causal>(random.Between(0, 2));
      ExpectMatchesOracle(test);
    }
  }
  for (const int32_t left : {0, 1, 100, 127, 128, 129, 200}) {
    AttentionCase test(2, 4, 2, 300, 290, 3, 5);
    test.Fill(&random);
    test.window_left = left;
    test.window_right = 200 - left;
    ExpectMatchesOracle(test);
  }
}

// ---------------------------------------------------------- chunks, prefixes

TEST_P(AttentionOptionsTest, AttentionChunks) {
  AttentionCase test = ZeroScores({1, 2, 3, 4, 5});
  test.attention_chunk = 2;
  EXPECT_EQ(RunAndCompare(test).output, (Floats{1.5f, 1.5f, 3.5f, 3.5f, 5}));
  test.causal = Causal::kStart;
  EXPECT_EQ(RunAndCompare(test).output, (Floats{1, 1.5f, 3, 3.5f, 5}));
  test.causal = Causal::kNone;
  test.query_offsets = {-2};
  EXPECT_EQ(RunAndCompare(test).output, (Floats{0, 0, 1.5f, 1.5f, 3.5f}));
}

TEST_P(AttentionOptionsTest, PrefixIsSeenByAll) {
  AttentionCase test = ZeroScores({1, 2, 3, 4});
  test.causal = Causal::kStart;
  test.prefix_lengths = {3};
  EXPECT_EQ(RunAndCompare(test).output, (Floats{2, 2, 2, 2.5f}));
  test.prefix_lengths = {0};
  EXPECT_EQ(RunAndCompare(test).output, (Floats{1, 1.5f, 2, 2.5f}));
  // A prefix loosens causality and nothing else.
  test.prefix_lengths = {4};
  test.window_right = 1;
  EXPECT_EQ(RunAndCompare(test).output, (Floats{1.5f, 2, 2.5f, 2.5f}));
  test.window_right = -1;
  test.key_lengths = {2};
  EXPECT_EQ(RunAndCompare(test).output, (Floats{1.5f, 1.5f, 1.5f, 1.5f}));
}

// --------------------------------------------------------------- extra keys

TEST_P(AttentionOptionsTest, ExtraKeysAreSeenByAllAndComeLast) {
  AttentionCase test = ListCase({1, 1}, {0, 0}, {3, 6});
  test.extra_key = HeadsTensor(Layout::kHeadsFirst, 1, 1, 1, 1, 0);
  test.extra_value = HeadsTensor(Layout::kHeadsFirst, 1, 1, 1, 1, 0);
  test.extra_key.SetDense({0});
  test.extra_value.SetDense({0});
  test.attend = MatrixMask<uint8_t>(2, 2, {0, 0, 0, 1});
  test.bias = MatrixMask<float>(1, 1, {-3});
  const AttentionRun run = RunAndCompare(test);
  EXPECT_EQ(run.output[0], 0.0f);
  EXPECT_EQ(Floats(run.weights.begin(), run.weights.begin() + 3),
            (Floats{0, 0, 1}));
  EXPECT_EQ(run.lse[0], 0.0f);
  EXPECT_EQ(run.biased[2], 0.0f) << "a bias has no column for it";
  EXPECT_EQ(run.biased[0], -kInf);
  EXPECT_NEAR(run.output[1], 6 * std::exp(-3.0) / (1 + std::exp(-3.0)), 1e-6);
}

TEST_P(AttentionOptionsTest, ExtraKeysOfEveryCount) {
  Random random(4);
  for (const size_t keys : {0, 1, 5, 128, 131}) {
    for (size_t n = 0; n < 4; ++n) {
      AttentionCase test(2, 4, 2, 7, keys, 5, 9);
      test.Fill(&random);
      AddRandomExtraKeys(&test, &random);
      if (n % 2 == 1) {
        test.query_lengths = {3, 0};
        test.causal = Causal::kEnd;
        test.empty_rows = EmptyRows::kNan;
      }
      ExpectMatchesOracle(test);
    }
  }
}

TEST_P(AttentionOptionsTest, PoisonAmongExtraKeysIsSeen) {
  Random random(5);
  AttentionCase test(1, 4, 2, 3, 5, 6, 7);
  test.Fill(&random);
  AddRandomExtraKeys(&test, &random);
  test.extra_value.At(0, 1, 0, 2) = kNan;
  const AttentionRun run = RunCore(test);
  ASSERT_OK(run.status);
  for (size_t n = 0; n < run.output.size(); ++n) {
    // Heads 2 and 3 read group 1, channel 2.
    EXPECT_EQ(std::isnan(run.output[n]), n >= 2 * 3 * 7 && n % 7 == 2) << n;
  }
}

// -------------------------------------------------------------------- gates

TEST_P(AttentionOptionsTest, GatesScaleTheHeadsAndNothingElse) {
  Random random(6);
  AttentionCase test(2, 4, 2, 5, 9, 6, 7);
  test.Fill(&random);
  const AttentionRun plain = RunAndCompare(test);
  test.head_gates = {1, 0, -2, 0.5f};
  const AttentionRun gated = RunAndCompare(test);
  EXPECT_TRUE(SameBits(gated.weights, plain.weights));
  EXPECT_TRUE(SameBits(gated.lse, plain.lse));
  for (size_t n = 0; n < plain.output.size(); ++n) {
    EXPECT_EQ(gated.output[n],
              test.head_gates[n / (5 * 7) % 4] * plain.output[n]);
  }
}

// ------------------------------------------------------------------- scores

TEST_P(AttentionOptionsTest, ScoresAtEveryKey) {
  AttentionCase test = ListCase({2}, {1, -1, 3}, {1, 1, 1});
  test.softcap = 1.0f;
  test.bias = MatrixMask<float>(1, 3, {5, 5, 5});
  test.padding = {1, 0, 1};
  const AttentionRun run = RunAndCompare(test);
  EXPECT_EQ(run.raw, (Floats{2, -2, 6}));
  EXPECT_NEAR(run.capped[0], std::tanh(2.0), 1e-6);
  EXPECT_NEAR(run.capped[2], std::tanh(6.0), 1e-6);
  EXPECT_EQ(run.biased[0], -kInf);
  EXPECT_NEAR(run.biased[1], 5 - std::tanh(2.0), 1e-6);
  EXPECT_EQ(run.biased[2], -kInf);
  EXPECT_EQ(run.row_max[0], run.biased[1]);
}

TEST_P(AttentionOptionsTest, RowMaximumOfEmptyAndPoisonedRows) {
  AttentionCase test = ListCase({1, 1, 1}, {-3, kInf, -5}, {1, 2, 3});
  test.attend = MatrixMask<uint8_t>(3, 3, {1, 0, 1, 0, 0, 0, 1, 1, 1});
  const AttentionRun run = RunAndCompare(test);
  EXPECT_TRUE(SameBits(run.row_max, {-3, -kInf, kNan}));
}

// ------------------------------------------------------------------- memory

// M-07: 16 heads at 4096 without weights, under 16 MB beside the operands. The
// workspace is all a call allocates, whatever the options.
TEST_P(AttentionOptionsTest, M07LongSequencesNeedLittleScratch) {
  EXPECT_LT(AttentionWorkspaceBytes(4096, 4096, 64, 64), size_t{16} << 20);
  Random random(7);
  AttentionCase test(1, 16, 16, 4096, 4096, 64, 64);
  test.rows = 3;  // one block of rows is enough to see what is allocated
  test.query = HeadsTensor(Layout::kHeadsFirst, 1, 16, 3, 64, 0);
  test.Fill(&random);
  test.causal = Causal::kEnd;
  test.softcap = 20.0f;
  test.sinks = Floats(16, 0.0f);
  Workspace workspace;
  Floats output(16 * 3 * 64);
  AttentionOutputs outputs;
  outputs.output = HeadsView<float>::HeadsFirst(output.data(), 1, 16, 3, 64);
  ASSERT_OK(ScaledDotProductAttention(test.query.in(), test.key.in(),
                                      test.value.in(), test.Options(), outputs,
                                      &workspace));
  EXPECT_LT(workspace.bytes(), size_t{16} << 20);
}

}  // namespace
}  // namespace headwise
