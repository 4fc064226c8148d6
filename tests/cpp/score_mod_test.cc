// A score_mod changes scores where the contract says: behind the softcap, in
// front of biases and masks.
#include <cmath>
#include <vector>

#include "attention_case.h"
#include "cache_case.h"
#include "headwise/attention.h"
#include "headwise/workspace.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(ScoreModTest);

float Added(size_t entry, size_t head, int64_t position, int64_t key) {
  return 0.25f * static_cast<float>((position * 3 + key * 5 +
                                     static_cast<int64_t>(head * 2 + entry)) %
                                    16) -
         2.0f;
}

void Add(void*, const ScoreTile& tile) {
  for (size_t r = 0; r < tile.rows; ++r) {
    for (size_t c = 0; c < tile.keys; ++c) {
      tile.scores[r * tile.row_stride + c] += Added(
          tile.entry, tile.head, tile.query_position + static_cast<int64_t>(r),
          static_cast<int64_t>(tile.key_position + c));
    }
  }
}

// The same as a bias of a call.
MaskData<float> AddedBias(const AttentionCase& test) {
  MaskData<float> bias;
  bias.batch = test.batch;
  bias.heads = test.heads;
  bias.rows = test.rows;
  bias.keys = test.keys;
  for (size_t b = 0; b < test.batch; ++b) {
    for (size_t h = 0; h < test.heads; ++h) {
      for (size_t i = 0; i < test.rows; ++i) {
        const int64_t offset =
            test.query_offsets.empty() ? 0 : test.query_offsets[b];
        for (size_t j = 0; j < test.keys; ++j) {
          bias.data.push_back(Added(b, h, offset + static_cast<int64_t>(i),
                                    static_cast<int64_t>(j)));
        }
      }
    }
  }
  return bias;
}

TEST_P(ScoreModTest, AddingIsABias) {
  Random random(1);
  for (int round = 0; round < 20; ++round) {
    AttentionCase test(random.Between(1, 3), 4, 2, random.Between(1, 80),
                       random.Between(1, 300), 5, 6);
    test.Fill(&random);
    if (random.Chance(0.5)) test.softcap = 3.0f;
    if (random.Chance(0.4)) AddRandomAttendMask(&test, &random, 15, 0.6);
    if (random.Chance(0.4)) AddRandomExtraKeys(&test, &random);
    if (random.Chance(0.4)) {
      const size_t left = random.Between(0, test.keys);
      for (size_t n = 0; n < test.batch * test.keys; ++n) {
        test.padding.push_back(n % test.keys < left);
      }
    }
    if (random.Chance(0.4)) test.causal = Causal::kStart;
    for (size_t b = 0; b < test.batch && round % 2 == 0; ++b) {
      test.query_offsets.push_back(random.BetweenSigned(0, 60));
    }
    AttentionCase biased = test;
    biased.bias = AddedBias(test);
    test.score_mod = Add;
    SCOPED_TRACE(test.Describe());
    const AttentionRun run = RunCore(test);
    const AttentionRun expected = RunAndCompare(biased);
    ASSERT_OK(run.status);
    EXPECT_TRUE(SameBits(run.output, expected.output));
    EXPECT_TRUE(SameBits(run.lse, expected.lse));
    EXPECT_TRUE(SameBits(run.weights, expected.weights));
    EXPECT_TRUE(SameBits(run.biased, expected.biased));
    // Only biased scores know of it.
    EXPECT_TRUE(SameBits(run.raw, expected.raw));
    EXPECT_TRUE(SameBits(run.capped, expected.capped));

    AttentionTileRequest request;
    request.kind = TileKind::kBiased;
    request.batch_entry = test.batch - 1;
    request.head = 2;
    request.row_begin = test.rows / 2;
    request.row_end = test.rows;
    request.key_begin = test.keys / 3;
    request.key_end = test.keys;
    const size_t width = request.key_end - request.key_begin;
    Floats tile((test.rows - test.rows / 2) * width);
    Workspace workspace;
    ASSERT_OK(AttentionTile(test.query.in(), test.key.in(), test.Options(),
                            request, tile.data(), &workspace));
    for (size_t n = 0; n < tile.size(); ++n) {
      const size_t row = (request.batch_entry * 4 + 2) * test.rows +
                         request.row_begin + n / width;
      ASSERT_TRUE(SameBits(
          tile[n],
          run.biased[row * test.columns() + request.key_begin + n % width]));
    }
  }
}

// Whatever it writes at hidden keys, they stay hidden; a bias of -infinity,
// too; and its own -infinity hides.
TEST_P(ScoreModTest, HiddenStaysHidden) {
  AttentionCase test = ListCase({0, 0}, {0, 0, 0, 0}, {1, 2, 4, 8});
  test.attend = MatrixMask<uint8_t>(2, 4, {1, 1, 0, 1, 1, 1, 0, 1});
  test.bias = MatrixMask<float>(2, 4, {0, -kInf, 0, 0, 0, -kInf, 0, 0});
  test.score_mod = [](void*, const ScoreTile& tile) {
    for (size_t r = 0; r < tile.rows; ++r) {
      for (size_t c = 0; c < tile.keys; ++c) {
        const size_t key = tile.key_position + c;
        float& score = tile.scores[r * tile.row_stride + c];
        if (key == 1 || key == 2) score = tile.row + r == 0 ? kNan : kInf;
        if (key == 3 && tile.row + r == 1) score = -kInf;
      }
    }
  };
  const AttentionRun run = RunCore(test);
  ASSERT_OK(run.status);
  EXPECT_EQ(run.output, (Floats{4.5f, 1.0f}));
  EXPECT_EQ(run.weights, (Floats{.5f, 0, 0, .5f, 1, 0, 0, 0}));
}

TEST_P(ScoreModTest, PackedSequencesHaveNumbersAndPositions) {
  Random random(2);
  AttentionCase test(1, 4, 2, 150, 150, 5, 6);
  test.Fill(&random);
  test.cumulative_query_lengths = test.cumulative_key_lengths = {0, 9, 150};
  AttentionCase biased = test;
  biased.bias = AddedBias(test);
  for (size_t h = 0; h < 4; ++h) {
    for (size_t i = 0; i < 150; ++i) {
      for (size_t j = 0; j < 150; ++j) {
        const size_t n = i < 9 ? 0 : 1;
        const int64_t start = n == 0 ? 0 : 9;
        biased.bias.data[(h * 150 + i) * 150 + j] =
            Added(n, h, static_cast<int64_t>(i) - start,
                  static_cast<int64_t>(j) - start);
      }
    }
  }
  test.score_mod = Add;
  const AttentionRun run = RunCore(test);
  ASSERT_OK(run.status);
  EXPECT_TRUE(SameBits(run.output, RunCore(biased).output));
}

TEST_P(ScoreModTest, WithCachesInSteps) {
  Random random(3);
  AttentionCase test(1, 4, 2, 150, 150, 5, 6);
  test.Fill(&random);
  test.causal = Causal::kStart;
  test.score_mod = Add;
  const AttentionRun whole = RunCore(test);
  const auto cache = PoisonedCache(CacheConfig(test, 200));
  EXPECT_TRUE(SameBits(
      RunSteps(test, RandomSteps(150, 40, &random), cache.get()).output,
      whole.output));
  // A rolling cache drops tokens, but what it holds keeps its positions.
  AttentionCase windowed = test;
  windowed.window_left = 9;
  const auto rolling = PoisonedCache(CacheConfig(test, 0, 10));
  EXPECT_TRUE(SameBits(
      RunSteps(test, RandomSteps(150, 40, &random), rolling.get()).output,
      RunCore(windowed).output));
}

}  // namespace
}  // namespace headwise
