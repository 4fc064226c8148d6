// A block mask is a dense mask by other means: the same bits in every result,
// and no work where nobody looks.
#include "headwise/block_mask.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "attention_case.h"
#include "cache_case.h"
#include "headwise/attention.h"
#include "headwise/workspace.h"
#include "layer_case.h"
#include "memory.h"
#include "test_util.h"

namespace headwise {
namespace {

using Counts = std::vector<int32_t>;
using Floats = std::vector<float>;
using Visible = std::function<bool(size_t, size_t, int64_t, int64_t)>;

HEADWISE_TEST_ALL_TARGETS(BlockMaskTest);

std::unique_ptr<BlockMask> Make(const BlockMaskShape& shape,
                                const Visible& visible) {
  std::unique_ptr<BlockMask> made;
  const Status status = BlockMask::FromFunction(shape, visible, &made);
  EXPECT_TRUE(status.ok()) << status.message();
  return made;
}

bool Bit(const BlockMask::Bits& bits, size_t j) {
  return bits[j / 64] >> (j % 64) & 1;
}

// Blocks of nothing, of everything and of something, in no order.
Visible Patches(uint64_t seed) {
  return [seed](size_t b, size_t h, int64_t i, int64_t j) {
    const uint64_t patch = static_cast<uint64_t>((i + 4096) / 70) * 31 +
                           static_cast<uint64_t>(j / 90) * 17 + b * 7 + h * 3;
    Random random(seed + patch);
    const size_t kind = random.Between(0, 3);
    if (kind < 2) return kind == 1;
    Random own(seed ^ static_cast<uint64_t>((i + 4096) * 9973 + j * 31 + 1));
    return own.Chance(kind == 2 ? 0.5 : 0.02);
  };
}

// The same as a dense mask [B, H, L, S] of a call.
MaskData<uint8_t> Dense(const AttentionCase& test, const Visible& visible,
                        const Counts& offsets) {
  MaskData<uint8_t> mask;
  mask.batch = test.batch;
  mask.heads = test.heads;
  mask.rows = test.rows;
  mask.keys = test.keys;
  for (size_t b = 0; b < test.batch; ++b) {
    for (size_t h = 0; h < test.heads; ++h) {
      for (size_t i = 0; i < test.rows; ++i) {
        for (size_t j = 0; j < test.keys; ++j) {
          const int64_t offset = offsets.empty() ? 0 : offsets[b];
          mask.data.push_back(visible(b, h, offset + static_cast<int64_t>(i),
                                      static_cast<int64_t>(j)));
        }
      }
    }
  }
  return mask;
}

void ExpectSameRun(const AttentionRun& a, const AttentionRun& b) {
  ASSERT_OK(a.status);
  ASSERT_OK(b.status);
  EXPECT_TRUE(SameBits(a.output, b.output)) << "output";
  EXPECT_TRUE(SameBits(a.lse, b.lse)) << "LSE";
  EXPECT_TRUE(SameBits(a.row_max, b.row_max)) << "row maximum";
  EXPECT_TRUE(SameBits(a.weights, b.weights)) << "weights";
  EXPECT_TRUE(SameBits(a.averaged_weights, b.averaged_weights)) << "averaged";
  EXPECT_TRUE(SameBits(a.raw, b.raw)) << "raw scores";
  EXPECT_TRUE(SameBits(a.biased, b.biased)) << "biased scores";
}

TEST_P(BlockMaskTest, HoldsWhatTheFunctionSays) {
  const BlockMaskShape shape = {2, 3, -5, 150, 300};
  const Visible visible = Patches(11);
  const auto mask = Make(shape, visible);
  EXPECT_EQ(mask->empty_blocks() + mask->full_blocks() + mask->partial_blocks(),
            2u * 3 * 3 * 3);
  for (size_t b = 0; b < 2; ++b) {
    for (size_t h = 0; h < 3; ++h) {
      for (const size_t i : {0, 1, 63, 64, 127, 128, 149}) {
        for (size_t key = 0; key < 300; key += 7) {
          BlockMask::Bits bits;
          mask->RowBits(b, h, i, key, bits);
          for (size_t j = 0; j < BlockMask::kKeys; ++j) {
            const bool seen =
                key + j < 300 && visible(b, h, static_cast<int64_t>(i) - 5,
                                         static_cast<int64_t>(key + j));
            ASSERT_EQ(Bit(bits, j), seen) << i << " " << key << " " << j;
          }
        }
      }
    }
  }
}

TEST_P(BlockMaskTest, NothingBehindTheLastKey) {
  const auto mask = Make({1, 1, 0, 4, 200},
                         [](size_t, size_t, int64_t, int64_t) { return true; });
  EXPECT_EQ(mask->full_blocks(), 2u);
  for (const size_t key : {128, 130, 192, 199, 200}) {
    BlockMask::Bits bits;
    mask->RowBits(0, 0, 3, key, bits);
    for (size_t j = 0; j < BlockMask::kKeys; ++j) {
      ASSERT_EQ(Bit(bits, j), key + j < 200) << key << " " << j;
    }
  }
}

TEST_P(BlockMaskTest, AsksOnceForEachPair) {
  const BlockMaskShape shape = {2, 3, -5, 70, 130};
  std::vector<int> asked(2 * 3 * 70 * 130);
  Make(shape, [&](size_t b, size_t h, int64_t i, int64_t j) {
    const bool inside =
        b < 2 && h < 3 && i >= -5 && i < 65 && j >= 0 && j < 130;
    EXPECT_TRUE(inside) << b << " " << h << " " << i << " " << j;
    if (!inside) return false;
    const size_t row = (b * 3 + h) * 70 + static_cast<size_t>(i + 5);
    ++asked[row * 130 + static_cast<size_t>(j)];
    return true;
  });
  EXPECT_EQ(asked, std::vector<int>(asked.size(), 1));
}

TEST_P(BlockMaskTest, LookNeverOverlooks) {
  const BlockMaskShape shape = {1, 1, 0, 200, 520};
  const auto mask = Make(shape, [](size_t, size_t, int64_t i, int64_t j) {
    return (i / 64 + j / 128) % 2 == 0;
  });
  EXPECT_EQ(mask->partial_blocks(), 0u);
  EXPECT_GT(mask->bytes(), 0u);
  using Sees = BlockMask::Sees;
  EXPECT_EQ(mask->Look(0, 0, 0, 64, 0, 128), Sees::kAll);
  EXPECT_EQ(mask->Look(0, 0, 3, 60, 128, 128), Sees::kNone);
  EXPECT_EQ(mask->Look(0, 0, 3, 64, 128, 128), Sees::kSome);
  EXPECT_EQ(mask->Look(0, 0, 64, 8, 100, 28), Sees::kNone);
  EXPECT_EQ(mask->Look(0, 0, 64, 8, 100, 29), Sees::kSome);
  EXPECT_EQ(mask->Look(0, 0, 192, 8, 512, 8), Sees::kNone);
  // Beyond the mask there is nothing to look at, and nobody sees.
  EXPECT_EQ(mask->Look(0, 0, 0, 64, 256, 400), Sees::kSome);
  EXPECT_EQ(mask->Look(0, 0, 0, 64, 512, 9), Sees::kSome);
  EXPECT_EQ(mask->Look(0, 0, 0, 64, 512, 8), Sees::kAll);
  EXPECT_EQ(mask->Look(0, 0, 0, 64, 520, 128), Sees::kNone);
  EXPECT_EQ(mask->Look(0, 0, 0, 64, 128 * 40, 128), Sees::kNone);
  EXPECT_EQ(mask->Look(0, 0, 64 * 40, 64, 0, 128), Sees::kNone);
  EXPECT_EQ(mask->Look(0, 0, 192, 9, 128, 128), Sees::kSome);
  EXPECT_EQ(mask->Look(0, 0, 192, 8, 128, 128), Sees::kAll);
}

// Scores and tiles are of every key, those beyond key_lengths too, which the
// mask need not know.
TEST_P(BlockMaskTest, NeedsNoKeysBeyondTheLengths) {
  Random random(9);
  AttentionCase test(2, 4, 2, 70, 128 * 30, 2, 3);
  test.Fill(&random);
  test.key_lengths = {100, 60};
  const Visible visible = Patches(51);
  const auto mask = Make({2, 4, 0, 70, 100}, visible);
  AttentionCase dense = test;
  dense.attend = Dense(test, visible, {});
  test.block_mask = mask.get();
  ExpectSameRun(RunCore(test), RunCore(dense));
}

TEST_P(BlockMaskTest, FromBlocksAndFromBits) {
  Random random(3);
  const BlockMaskShape shape = {2, 2, 4, 100, 205};
  // Blocks of 17 x 30: 6 x 7 of them.
  std::vector<uint8_t> map(2 * 2 * 6 * 7);
  for (uint8_t& seen : map) seen = random.Chance(0.5) ? 2 : 0;
  std::unique_ptr<BlockMask> of_blocks;
  ASSERT_OK(BlockMask::FromBlocks(shape, map.data(), 17, 30, &of_blocks));
  // The bits behind the last key are set and mean nothing.
  std::vector<uint32_t> words(2 * 2 * 100 * 7, 0xFE000000u);
  for (size_t n = 0; n < words.size(); ++n) {
    if (n % 7 != 6) words[n] = 0;
  }
  for (size_t b = 0; b < 2; ++b) {
    for (size_t h = 0; h < 2; ++h) {
      for (size_t i = 0; i < 100; ++i) {
        for (size_t j = 0; j < 205; ++j) {
          if (map[((b * 2 + h) * 6 + i / 17) * 7 + j / 30] == 0) continue;
          words[((b * 2 + h) * 100 + i) * 7 + j / 32] |= 1u << j % 32;
        }
      }
    }
  }
  std::unique_ptr<BlockMask> of_bits;
  ASSERT_OK(BlockMask::FromBits(shape, words.data(), &of_bits));
  for (size_t b = 0; b < 2; ++b) {
    for (size_t h = 0; h < 2; ++h) {
      for (size_t i = 0; i < 100; ++i) {
        for (const size_t key : {0, 128}) {
          BlockMask::Bits one, other;
          of_blocks->RowBits(b, h, i, key, one);
          of_bits->RowBits(b, h, i, key, other);
          for (size_t j = 0; j < BlockMask::kKeys; ++j) {
            const bool seen =
                key + j < 205 &&
                map[((b * 2 + h) * 6 + i / 17) * 7 + (key + j) / 30] != 0;
            ASSERT_EQ(Bit(one, j), seen);
            ASSERT_EQ(Bit(other, j), seen);
          }
        }
      }
    }
  }
}

TEST_P(BlockMaskTest, EqualsTheDenseMask) {
  Random random(4);
  for (int round = 0; round < 30; ++round) {
    AttentionCase test(random.Between(1, 3), 4, 2, random.Between(1, 150),
                       random.Between(1, 300), 5, 6);
    test.Fill(&random);
    AddRandomScoreOptions(&test, &random);
    if (random.Chance(0.4)) AddRandomBias(&test, &random, 15, 0.2);
    if (random.Chance(0.4)) AddRandomExtraKeys(&test, &random);
    if (random.Chance(0.5)) {
      // Padding on the left moves the chunks away from the blocks.
      const size_t left = random.Between(0, test.keys);
      for (size_t n = 0; n < test.batch * test.keys; ++n) {
        test.padding.push_back(n % test.keys < left || random.Chance(0.1));
      }
    }
    if (random.Chance(0.3)) test.causal = Causal::kStart;
    if (random.Chance(0.3)) test.window_left = random.BetweenSigned(0, 200);
    for (size_t b = 0; b < test.batch && round % 2 == 0; ++b) {
      test.query_offsets.push_back(random.BetweenSigned(-20, 60));
    }
    BlockMaskShape shape;
    shape.batch = test.batch;
    shape.heads = 4;
    shape.first_query = -20;
    shape.queries = test.rows + 80;
    shape.keys = test.keys + random.Between(0, 200);
    const Visible visible = Patches(static_cast<uint64_t>(round) * 977 + 5);
    const auto mask = Make(shape, visible);
    AttentionCase dense = test;
    dense.attend = Dense(test, visible, test.query_offsets);
    test.block_mask = mask.get();
    SCOPED_TRACE(test.Describe());
    const AttentionRun run = RunCore(test);
    const AttentionRun expected = RunAndCompare(dense);
    ExpectSameRun(run, expected);
    // NaN behind it has no effect.
    PoisonHidden(&dense, &random);
    test.key = dense.key;
    test.value = dense.value;
    EXPECT_TRUE(SameBits(RunCore(test).output, run.output));

    AttentionTileRequest request;
    request.kind = TileKind::kWeights;
    request.head = 3;
    request.row_end = test.rows;
    request.key_begin = test.keys / 3;
    request.key_end = test.keys;
    request.lse = run.lse.data();
    Workspace workspace;
    const size_t width = request.key_end - request.key_begin;
    Floats tile(test.rows * width), wanted(test.rows * width);
    ASSERT_OK(AttentionTile(test.query.in(), test.key.in(), test.Options(),
                            request, tile.data(), &workspace));
    ASSERT_OK(AttentionTile(dense.query.in(), dense.key.in(), dense.Options(),
                            request, wanted.data(), &workspace));
    EXPECT_TRUE(SameBits(tile, wanted)) << "tile";
  }
}

TEST_P(BlockMaskTest, CountsFromTheStartOfAPackedSequence) {
  Random random(5);
  AttentionCase test(1, 4, 2, 190, 190, 5, 6);
  test.Fill(&random);
  test.cumulative_query_lengths = test.cumulative_key_lengths = {0, 50, 190};
  const Visible visible = Patches(21);
  const auto mask = Make({2, 4, 0, 140, 140}, visible);
  AttentionCase dense = test;
  dense.attend = Dense(test,
                       [&](size_t, size_t h, int64_t i, int64_t j) {
                         const size_t n = i < 50 ? 0 : 1;
                         if ((j < 50) != (i < 50)) return false;
                         const int64_t start = n == 0 ? 0 : 50;
                         return visible(n, h, i - start, j - start);
                       },
                       {});
  test.block_mask = mask.get();
  ExpectSameRun(RunCore(test), RunCore(dense));
}

TEST_P(BlockMaskTest, WithACacheInSteps) {
  Random random(6);
  AttentionCase test(2, 4, 2, 150, 150, 5, 6);
  test.Fill(&random);
  test.causal = Causal::kStart;
  const Visible visible = Patches(31);
  const auto mask =
      Make({1, 4, 0, 150, 150}, [&](size_t, size_t h, int64_t i, int64_t j) {
        return visible(0, h, i, j);
      });
  test.block_mask = mask.get();
  const AttentionRun whole = RunCore(test);
  ASSERT_OK(whole.status);
  const auto cache = PoisonedCache(CacheConfig(test, 200));
  const CachedRun run =
      RunSteps(test, RandomSteps(150, 40, &random), cache.get());
  ASSERT_OK(run.status);
  EXPECT_TRUE(SameBits(run.output, whole.output));
  EXPECT_TRUE(SameBits(run.lse, whole.lse));

  const auto rolling = PoisonedCache(CacheConfig(test, 0, 10));
  ExpectError(RunSteps(test, {5}, rolling.get()).status,
              StatusCode::kInvalidArgument, {"block_mask", "rolling"});
}

// Scores that a call computed, each once: what a score_mod was shown.
double ScoresComputed(AttentionCase test) {
  double count = 0;
  test.score_context = &count;
  test.score_mod = [](void* context, const ScoreTile& tile) {
    *static_cast<double*>(context) +=
        static_cast<double>(tile.rows) * static_cast<double>(tile.keys);
  };
  HeadsTensor output(Layout::kHeadsFirst, test.batch, test.heads, test.rows,
                     test.v_head_dim, 0);
  AttentionOutputs outputs;
  outputs.output = output.out();
  Workspace workspace;
  const Status status =
      ScaledDotProductAttention(test.query.in(), test.key.in(), test.value.in(),
                                test.Options(), outputs, &workspace);
  EXPECT_TRUE(status.ok()) << status.message();
  return count;
}

AttentionCase Long(size_t length) {
  AttentionCase test(1, 1, 1, length, length, 4, 4);
  Random random(7);
  test.Fill(&random);
  return test;
}

// What nobody sees is not computed: the work, counted, not timed.
TEST_P(BlockMaskTest, WorkFallsWithWhatIsSeen) {
  const double all = ScoresComputed(Long(1024));
  EXPECT_EQ(all, 1024.0 * 1024);

  AttentionCase causal = Long(1024);
  causal.causal = Causal::kStart;
  EXPECT_LT(ScoresComputed(causal), 0.51 * all);

  // The same said by a dense mask, or by a bias.
  std::vector<uint8_t> triangle(1024 * 1024);
  for (size_t n = 0; n < triangle.size(); ++n) {
    triangle[n] = n % 1024 <= n / 1024;
  }
  AttentionCase masked = Long(1024);
  masked.attend = MatrixMask<uint8_t>(1024, 1024, triangle);
  EXPECT_LT(ScoresComputed(masked), 0.51 * all);
  AttentionCase biased = Long(1024);
  biased.bias.rows = biased.bias.keys = 1024;
  for (const uint8_t seen : triangle) {
    biased.bias.data.push_back(seen != 0 ? 0.0f : -kInf);
  }
  EXPECT_LT(ScoresComputed(biased), 0.51 * all);

  // A window's work grows with the length, not with its square.
  const auto windowed = [](size_t length) {
    AttentionCase test = Long(length);
    test.window_left = 100;
    test.window_right = 0;
    return ScoresComputed(test);
  };
  EXPECT_LT(windowed(1024), 0.11 * all);
  EXPECT_LT(windowed(2048), 2.1 * windowed(1024));

  // Eight documents of 128 tokens.
  AttentionCase documents = Long(1024);
  const auto mask = Make(
      {1, 1, 0, 1024, 1024},
      [](size_t, size_t, int64_t i, int64_t j) { return i / 128 == j / 128; });
  documents.block_mask = mask.get();
  EXPECT_EQ(ScoresComputed(documents), all / 8);
  EXPECT_EQ(mask->partial_blocks(), 0u);
  // The same documents packed.
  AttentionCase packed = Long(1024);
  for (int32_t at = 0; at <= 1024; at += 128) {
    packed.cumulative_query_lengths.push_back(at);
    packed.cumulative_key_lengths.push_back(at);
  }
  EXPECT_EQ(ScoresComputed(packed), all / 8);

  // Within a block only what some row of a tile sees: a diagonal of 1.
  AttentionCase diagonal = Long(1024);
  const auto one =
      Make({1, 1, 0, 1024, 1024},
           [](size_t, size_t, int64_t i, int64_t j) { return i == j; });
  diagonal.block_mask = one.get();
  EXPECT_EQ(ScoresComputed(diagonal), 1024.0 * 4);
}

// N-49: a mask for other lengths is not used in silence.
TEST_P(BlockMaskTest, N49ChecksItsLengths) {
  Random random(8);
  AttentionCase test(1, 4, 2, 10, 20, 5, 6);
  test.Fill(&random);
  const Visible all = [](size_t, size_t, int64_t, int64_t) { return true; };
  const auto expect = [&](const BlockMaskShape& shape,
                          const std::vector<std::string>& parts) {
    const auto mask = Make(shape, all);
    test.block_mask = mask.get();
    ExpectError(RunCore(test).status, StatusCode::kShapeMismatch, parts);
  };
  expect({1, 1, 0, 9, 20}, {"block_mask", "0 to 9", "0 to 10"});
  expect({1, 1, 0, 10, 19}, {"19 keys", "20 keys"});
  expect({1, 1, 1, 10, 20}, {"1 to 11"});
  expect({2, 1, 0, 10, 20}, {"batch 2"});
  expect({1, 3, 0, 10, 20}, {"heads 3"});
  test.query_offsets = {5};
  expect({1, 1, 0, 10, 20}, {"5 to 15"});
  // One for a longer call says the same about a shorter one.
  test.query_offsets.clear();
  const Visible visible = Patches(41);
  const auto longer = Make({1, 4, -3, 300, 400}, visible);
  test.block_mask = longer.get();
  AttentionCase dense = test;
  dense.block_mask = nullptr;
  dense.attend = Dense(test, visible, {});
  ExpectSameRun(RunCore(test), RunCore(dense));
}

TEST_P(BlockMaskTest, MakingItCanFail) {
  std::unique_ptr<BlockMask> made;
  const auto all = [](size_t, size_t, int64_t, int64_t) { return true; };
  uint8_t map[1] = {1};
  ExpectError(BlockMask::FromBlocks({1, 1, 0, 4, 4}, map, 0, 4, &made),
              StatusCode::kInvalidArgument, {"blocks of 0"});
  ExpectError(BlockMask::FromBlocks({1, 1, 0, 4, 4}, nullptr, 4, 4, &made),
              StatusCode::kInvalidArgument, {"null"});
  ExpectError(BlockMask::FromBits({1, 1, 0, 4, 4}, nullptr, &made),
              StatusCode::kInvalidArgument, {"null"});
  ExpectError(
      BlockMask::FromFunction({1, 1, int64_t{1} << 40, 4, 4}, all, &made),
      StatusCode::kInvalidArgument, {"first_query"});
  SetAllocationLimit(16);
  const Status status =
      BlockMask::FromFunction({1, 1, 0, 400, 400}, all, &made);
  SetAllocationLimit(SIZE_MAX);
  ExpectError(status, StatusCode::kOutOfMemory, {"BlockMask", "400"});
  ExpectError(
      BlockMask::FromFunction({SIZE_MAX / 2, 3, 0, 400, 400}, all, &made),
      StatusCode::kOutOfMemory, {"BlockMask"});
  EXPECT_EQ(made, nullptr);
  ExpectError(BlockMask::FromFunction({1, 1, 0, SIZE_MAX, 0}, all, &made),
              StatusCode::kInvalidArgument, {"2^31"});
  ExpectError(BlockMask::FromFunction({1, 1, 0, 0, SIZE_MAX}, all, &made),
              StatusCode::kInvalidArgument, {"2^31"});
  ExpectError(BlockMask::FromFunction({1, 1, 0, 4, 4}, all, nullptr),
              StatusCode::kInvalidArgument, {"out"});
  // Nothing to see is legal, and needs no array.
  ASSERT_OK(BlockMask::FromFunction({SIZE_MAX, 0, 0, 4, 7}, all, &made));
  ASSERT_OK(BlockMask::FromBlocks({1, 1, 0, 0, 7}, nullptr, 4, 4, &made));
  ASSERT_OK(BlockMask::FromBits({1, 1, 0, 4, 0}, nullptr, &made));
  ASSERT_OK(BlockMask::FromFunction({1, 1, 0, 0, 7}, all, &made));
  EXPECT_EQ(made->full_blocks(), 0u);
}

}  // namespace
}  // namespace headwise
