// ScaledDotProductAttention against the float64 oracle, over sizes, layouts
// and masks. At least 4 heads and 2 key/value heads, and no two sizes equal,
// so that no mix-up of axes can hide (N-37).
#include "attention_case.h"
#include "test_util.h"

namespace headwise {
namespace {

HEADWISE_TEST_ALL_TARGETS(AttentionTest);

struct HeadCounts {
  size_t heads;
  size_t kv_heads;
};

HeadCounts PickHeads(Random* random) {
  static const HeadCounts kCounts[] = {{4, 2}, {6, 2}, {6, 3}, {4, 4}, {8, 2}};
  return kCounts[random->Between(0, 4)];
}

Layout PickLayout(Random* random) {
  static const Layout kLayouts[] = {Layout::kHeadsFirst, Layout::kHeadsLast,
                                    Layout::kRowsFirst};
  return kLayouts[random->Between(0, 2)];
}

AttentionCase PickCase(Random* random, size_t rows, size_t keys,
                       size_t head_dim, size_t v_head_dim) {
  const HeadCounts counts = PickHeads(random);
  AttentionCase test(random->Between(2, 3), counts.heads, counts.kv_heads, rows,
                     keys, head_dim, v_head_dim, PickLayout(random),
                     random->Between(0, 5));
  test.out_layout = PickLayout(random);
  test.out_pad = random->Between(0, 5);
  test.Fill(random, random->Pick<float>({0.1f, 1.0f, 3.0f}));
  return test;
}

TEST_P(AttentionTest, EveryHeadWidth) {
  Random random(1);
  std::vector<size_t> widths;
  for (size_t d = 1; d <= 40; ++d) widths.push_back(d);
  for (const size_t d : {64, 80, 128, 300}) widths.push_back(d);
  for (const size_t d : widths) {
    ExpectMatchesOracle(PickCase(&random, 7, 11, d, 9));
    ExpectMatchesOracle(PickCase(&random, 5, 19, 6, d));
  }
}

TEST_P(AttentionTest, EveryLength) {
  Random random(2);
  for (size_t n = 0; n <= 70; ++n) {
    ExpectMatchesOracle(PickCase(&random, n, 13, 5, 3));
    ExpectMatchesOracle(PickCase(&random, 6, n, 7, 10));
    ExpectMatchesOracle(PickCase(&random, random.Between(0, 70), n, 3, 5));
  }
}

// Around the places where blocks of rows and chunks of keys end.
TEST_P(AttentionTest, LengthsAroundBlocks) {
  Random random(3);
  for (const size_t n : {63, 64, 65, 127, 128, 129, 255, 256, 257, 400}) {
    ExpectMatchesOracle(PickCase(&random, 9, n, 10, 17));
    AttentionCase masked = PickCase(&random, n, 31, 4, 6);
    AddRandomAttendMask(&masked, &random, 2 | 1, 0.6);
    AddRandomBias(&masked, &random, 8 | 2, 0.1);
    ExpectMatchesOracle(masked);
    AttentionCase causal = PickCase(&random, n, n + 5, 6, 4);
    causal.causal = Causal::kEnd;
    ExpectMatchesOracle(causal);
  }
}

TEST_P(AttentionTest, ZeroSizes) {
  Random random(4);
  ExpectMatchesOracle(AttentionCase(0, 4, 2, 3, 5, 7, 6));
  ExpectMatchesOracle(PickCase(&random, 0, 5, 7, 6));
  ExpectMatchesOracle(PickCase(&random, 3, 0, 7, 6));
  ExpectMatchesOracle(PickCase(&random, 0, 0, 7, 6));
  ExpectMatchesOracle(PickCase(&random, 3, 5, 7, 0));
  // Without a channel every score is 0.
  ExpectMatchesOracle(PickCase(&random, 3, 5, 0, 6));
}

// A later chunk's maximum may be above or below what came before.
TEST_P(AttentionTest, MaximumMovesAcrossChunks) {
  Random random(5);
  for (const float slope : {-0.3f, -0.02f, 0.02f, 0.3f}) {
    AttentionCase test = PickCase(&random, 6, 300, 8, 5);
    test.bias = BroadcastMask<float>(test, 1);
    for (size_t j = 0; j < test.keys; ++j) {
      test.bias.data.push_back(slope * static_cast<float>(j));
    }
    ExpectMatchesOracle(test);
  }
}

TEST_P(AttentionTest, EveryBroadcastShape) {
  Random random(6);
  for (unsigned bits = 0; bits < 16; ++bits) {
    AttentionCase test = PickCase(&random, 7, 150, 5, 11);
    AddRandomAttendMask(&test, &random, bits, 0.6);
    ExpectMatchesOracle(test);
    test.attend = {};
    AddRandomBias(&test, &random, bits, 0.3);
    ExpectMatchesOracle(test);
    AddRandomAttendMask(&test, &random, 15 - bits, 0.8);
    ExpectMatchesOracle(test);
  }
}

TEST_P(AttentionTest, KeyPadding) {
  Random random(7);
  for (size_t n = 0; n < 20; ++n) {
    AttentionCase test = PickCase(&random, 6, n < 10 ? 21 : 280, 5, 9);
    const double hide = n % 2 == 0 ? 0.2 : 0.8;
    for (size_t j = 0; j < test.batch * test.keys; ++j) {
      test.padding.push_back(random.Chance(hide) ? (j % 5 == 0 ? 2 : 1) : 0);
    }
    ExpectMatchesOracle(test);
  }
}

TEST_P(AttentionTest, Lengths) {
  Random random(8);
  for (size_t n = 0; n < 30; ++n) {
    AttentionCase test = PickCase(&random, 9, n < 20 ? 17 : 270, 5, 6);
    for (size_t b = 0; b < test.batch; ++b) {
      const int32_t keys = static_cast<int32_t>(test.keys);
      if (n % 3 != 1) {
        test.key_lengths.push_back(random.BetweenSigned(0, keys));
      }
      if (n % 3 != 0) test.query_lengths.push_back(random.BetweenSigned(0, 9));
    }
    if (n % 2 == 0) test.causal = Causal::kEnd;
    ExpectMatchesOracle(test);
  }
}

TEST_P(AttentionTest, EveryCausalOffset) {
  Random random(9);
  for (int32_t offset = -11; offset <= 24; ++offset) {
    AttentionCase test = PickCase(&random, 10, 21, 5, 6);
    test.causal = Causal::kStart;
    for (size_t b = 0; b < test.batch; ++b) {
      test.query_offsets.push_back(offset + static_cast<int32_t>(b));
    }
    ExpectMatchesOracle(test);
  }
  for (const int32_t offset : {-3, 118, 120, 127, 128, 250, 300}) {
    AttentionCase test = PickCase(&random, 10, 290, 5, 6);
    test.causal = Causal::kStart;
    test.query_offsets.assign(test.batch, offset);
    ExpectMatchesOracle(test);
  }
}

// An offset is no mask by itself.
TEST_P(AttentionTest, OffsetsWithoutCausalHideNothing) {
  Random random(10);
  AttentionCase test = PickCase(&random, 5, 9, 4, 3);
  const AttentionRun plain = RunCore(test);
  test.query_offsets.assign(test.batch, -3);
  const AttentionRun run = RunCore(test);
  ASSERT_OK(run.status);
  EXPECT_TRUE(SameBits(run.output, plain.output));
}

TEST_P(AttentionTest, RandomCombinations) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(1000 + seed);
    const bool small = seed % 4 != 0;
    AttentionCase test = PickCase(&random, random.Between(1, small ? 40 : 140),
                                  random.Between(1, small ? 60 : 400),
                                  random.Between(1, 24), random.Between(1, 24));
    AddRandomMasks(&test, &random);
    if (seed % 3 != 0) {
      AddRandomPositions(&test, &random);
      AddRandomScoreOptions(&test, &random);
      if (random.Chance(0.3)) AddRandomExtraKeys(&test, &random);
    }
    PoisonHidden(&test, &random);
    ExpectMatchesOracle(test);
    if (HasFailure()) return;  // one precise report, not three hundred
  }
}

}  // namespace
}  // namespace headwise
