// Where options meet: every combination of packed sequences, block masks,
// padding, lengths, offsets, score_mods, extra keys, sinks and biases, drawn at
// random and compared with the float64 oracle; and the same over caches whose
// entries have lengths of their own.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "attention_case.h"
#include "cache_case.h"
#include "headwise/attention.h"
#include "headwise/workspace.h"
#include "reference/attention.h"
#include "test_util.h"

namespace headwise {
namespace {

using Counts = std::vector<int32_t>;
using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(OptionMeetingsTest);

// The same answer for the same pair, without a pattern.
uint64_t Hash(uint64_t seed, size_t sequence, size_t head, int64_t i,
              int64_t j) {
  return Random(seed * 0x9E3779B97F4A7C15u + sequence * 1000003 + head * 10007 +
                static_cast<uint64_t>(i + 100000) * 131071 +
                static_cast<uint64_t>(j))
      .Next();
}

size_t Sequences(const AttentionCase& test) {
  return test.cumulative_query_lengths.empty()
             ? test.batch
             : test.cumulative_query_lengths.size() - 1;
}

// A total cut at random places, some of them the same.
Counts RandomCuts(size_t total, size_t pieces, Random* random) {
  Counts cuts = {0, static_cast<int32_t>(total)};
  while (cuts.size() < pieces + 1) {
    cuts.push_back(random->BetweenSigned(0, static_cast<int32_t>(total)));
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

int32_t Own(const Counts& cuts, size_t n, size_t otherwise) {
  return cuts.empty() ? static_cast<int32_t>(otherwise) : cuts[n + 1] - cuts[n];
}

// One value for each sequence, within what it may be.
void AddLengths(AttentionCase* test, Random* random) {
  const bool keys = random->Chance(0.5);
  const bool queries = random->Chance(0.4);
  const bool prefixes = test->causal != Causal::kNone && random->Chance(0.4);
  const bool offsets = test->causal != Causal::kEnd && random->Chance(0.5);
  for (size_t n = 0; n < Sequences(*test); ++n) {
    const int32_t most_keys = Own(test->cumulative_key_lengths, n, test->keys);
    const int32_t most = Own(test->cumulative_query_lengths, n, test->rows);
    if (keys) test->key_lengths.push_back(random->BetweenSigned(0, most_keys));
    if (queries) test->query_lengths.push_back(random->BetweenSigned(0, most));
    if (prefixes) {
      test->prefix_lengths.push_back(random->BetweenSigned(0, most_keys));
    }
    if (offsets) {
      test->query_offsets.push_back(
          random->BetweenSigned(-most - 3, most_keys + 3));
    }
  }
}

void AddPadding(AttentionCase* test, Random* random) {
  const double left = random->Pick<double>({0.0, 0.3});
  const double holes = random->Pick<double>({0.0, 0.2});
  bool on_the_left = true;
  for (size_t n = 0; n < test->batch * test->keys; ++n) {
    const Counts& cuts = test->cumulative_key_lengths;
    const bool starts = cuts.empty() ? n % test->keys == 0
                                     : std::count(cuts.begin(), cuts.end(),
                                                  static_cast<int32_t>(n)) != 0;
    on_the_left = (starts || on_the_left) && random->Chance(1.0 - left / 10);
    const bool hide = (left != 0.0 && on_the_left) || random->Chance(holes);
    test->padding.push_back(hide ? 1 : 0);
  }
}

// Mask of exactly the positions of the case, or more; some blocks empty, some
// full, some between.
std::unique_ptr<BlockMask> MakeMask(const AttentionCase& test, Random* random) {
  int64_t first = 0, end = 0, keys = 0;
  const AttentionOptions options = test.Options();
  for (size_t n = 0; n < Sequences(test); ++n) {
    const int32_t all_keys = Own(test.cumulative_key_lengths, n, test.keys);
    const int32_t all = Own(test.cumulative_query_lengths, n, test.rows);
    const int32_t rows =
        test.query_lengths.empty() ? all : test.query_lengths[n];
    if (rows == 0) continue;
    const int64_t at = reference::PositionOf(
        options, n, 0, static_cast<size_t>(all), static_cast<size_t>(all_keys));
    first = std::min(first, at);
    end = std::max(end, at + rows);
    keys = std::max<int64_t>(
        keys, test.key_lengths.empty() ? all_keys : test.key_lengths[n]);
  }
  BlockMaskShape shape;
  shape.batch = random->Chance(0.5) ? 1 : Sequences(test);
  shape.heads = random->Chance(0.5) ? 1 : test.heads;
  const size_t more = random->Chance(0.6) ? 0 : random->Between(0, 150);
  shape.first_query = first - static_cast<int64_t>(more / 2);
  shape.queries = static_cast<size_t>(end - first) + more;
  shape.keys = static_cast<size_t>(keys) + more;
  const uint64_t seed = random->Next();
  // Patches within blocks, and patches of whole blocks.
  const int64_t rows = random->Pick<int64_t>({50, 150});
  const int64_t columns = random->Pick<int64_t>({70, 300});
  std::unique_ptr<BlockMask> mask;
  const Status status = BlockMask::FromFunction(
      shape,
      [&](size_t n, size_t h, int64_t i, int64_t j) {
        const uint64_t patch = Hash(seed, n, h, i / rows, j / columns) % 4;
        return patch < 2 ? patch == 1
                         : Hash(seed, n, h, i, j) % (patch == 2 ? 2 : 30) == 0;
      },
      &mask);
  EXPECT_TRUE(status.ok()) << status.message();
  return mask;
}

// A score_mod that adds, hides by -infinity, and writes NaN and +infinity
// where masks hide.
struct Mod {
  const AttentionCase* test = nullptr;
  const reference::AttentionResult* seen = nullptr;
  uint64_t seed = 0;
  bool adds = false;

  // -infinity: hides.
  float At(size_t sequence, size_t head, int64_t i, int64_t j) const {
    const uint64_t hash = Hash(seed, sequence, head, i, j);
    if (hash % 5 == 0) return -kInf;
    return adds ? 0.25f * static_cast<float>(hash / 8 % 16) - 2.0f : 0.0f;
  }
};

void CallMod(void* context, const ScoreTile& tile) {
  const Mod& mod = *static_cast<const Mod*>(context);
  const AttentionCase& test = *mod.test;
  const bool packed = !test.cumulative_query_lengths.empty();
  const auto begin = [&](const Counts& cuts) {
    return packed ? static_cast<size_t>(cuts[tile.entry]) : 0;
  };
  const size_t b = packed ? 0 : tile.entry;
  for (size_t r = 0; r < tile.rows; ++r) {
    const size_t row = (b * test.heads + tile.head) * test.rows +
                       begin(test.cumulative_query_lengths) + tile.row + r;
    for (size_t c = 0; c < tile.keys; ++c) {
      float& score = tile.scores[r * tile.row_stride + c];
      const float own = mod.At(tile.entry, tile.head,
                               tile.query_position + static_cast<int64_t>(r),
                               static_cast<int64_t>(tile.key_position + c));
      const size_t column =
          begin(test.cumulative_key_lengths) + tile.key_position + c;
      const bool hidden = mod.seen->scores[row * test.columns() + column] ==
                          -std::numeric_limits<double>::infinity();
      score = hidden         ? (c % 2 == 0 ? kNan : kInf)
              : own == -kInf ? -kInf
                             : score + own;
    }
  }
}

// What the score_mod does, as a bias beside the case's own.
MaskData<float> BiasOf(const AttentionCase& test, const Mod& mod) {
  MaskData<float> bias = BroadcastMask<float>(test, 15);
  const AttentionOptions options = test.Options();
  const MaskView<float> own = test.bias.view();
  for (size_t b = 0; b < test.batch; ++b) {
    for (size_t h = 0; h < test.heads; ++h) {
      for (size_t i = 0; i < test.rows; ++i) {
        const reference::SequenceOfRow s =
            reference::FindSequence(options, b, i, test.rows, test.keys);
        const int64_t position = reference::PositionOf(
            options, s.index, i - s.query_begin, s.queries, s.keys);
        for (size_t j = 0; j < test.keys; ++j) {
          float added =
              own.present() ? own.Row(b, h, i)[j * own.key_stride()] : 0.0f;
          if (s.HasKey(j)) {
            added += mod.At(s.index, h, position,
                            static_cast<int64_t>(j - s.key_begin));
          }
          bias.data.push_back(added);
        }
      }
    }
  }
  return bias;
}

AttentionCase RandomCase(Random* random, size_t rows, size_t keys) {
  const bool packed = random->Chance(0.5);
  const Layout layout =
      random->Pick<Layout>({Layout::kHeadsFirst, Layout::kHeadsLast});
  AttentionCase test(packed ? 1 : random->Between(1, 3), 4, 2, rows, keys,
                     random->Between(1, 9), random->Between(1, 20), layout,
                     random->Between(0, 3));
  test.Fill(random, random->Pick<float>({0.3f, 2.0f}));
  if (packed) {
    const size_t pieces = random->Between(1, 5);
    test.cumulative_query_lengths = RandomCuts(rows, pieces, random);
    test.cumulative_key_lengths = RandomCuts(keys, pieces, random);
  }
  test.causal =
      random->Pick<Causal>({Causal::kNone, Causal::kStart, Causal::kEnd});
  AddLengths(&test, random);
  if (random->Chance(0.5)) AddPadding(&test, random);
  const auto shape = [&] {
    return static_cast<unsigned>(random->Between(0, 15));
  };
  if (random->Chance(0.3)) AddRandomAttendMask(&test, random, shape(), 0.7);
  if (random->Chance(0.3)) AddRandomBias(&test, random, shape(), 0.2);
  const int32_t most = static_cast<int32_t>(keys);
  if (random->Chance(0.3)) test.window_left = random->BetweenSigned(0, most);
  if (random->Chance(0.3)) test.window_right = random->BetweenSigned(0, most);
  if (random->Chance(0.2)) {
    test.attention_chunk = random->BetweenSigned(1, most + 3);
  }
  AddRandomScoreOptions(&test, random);
  if (random->Chance(0.4)) AddRandomExtraKeys(&test, random);
  if (random->Chance(0.4)) test.empty_rows = EmptyRows::kNan;
  if (random->Chance(0.3)) test.scale = random->Uniform(-2.0f, 2.0f);
  return test;
}

// Any part of the weights and scores, recomputed.
void ExpectTiles(const AttentionCase& test, const AttentionRun& run,
                 Random* random) {
  Workspace workspace;
  AttentionTileRequest request;
  request.batch_entry = random->Between(0, test.batch - 1);
  request.head = random->Between(0, test.heads - 1);
  request.row_begin = random->Between(0, test.rows);
  request.row_end = random->Between(request.row_begin, test.rows);
  request.key_begin = random->Between(0, test.keys);
  request.key_end = random->Between(request.key_begin, test.keys);
  request.lse = run.lse.data();
  const size_t width = request.key_end - request.key_begin;
  const size_t size = (request.row_end - request.row_begin) * width;
  for (const TileKind kind : {TileKind::kWeights, TileKind::kRaw,
                              TileKind::kCapped, TileKind::kBiased}) {
    request.kind = kind;
    Floats tile(size, kNan);
    ASSERT_OK(AttentionTile(test.query.in(), test.key.in(), test.Options(),
                            request, tile.data(), &workspace));
    const Floats& all = kind == TileKind::kWeights  ? run.weights
                        : kind == TileKind::kRaw    ? run.raw
                        : kind == TileKind::kCapped ? run.capped
                                                    : run.biased;
    for (size_t n = 0; n < size; ++n) {
      const size_t row =
          (request.batch_entry * test.heads + request.head) * test.rows +
          request.row_begin + n / width;
      const float want =
          all[row * test.columns() + request.key_begin + n % width];
      if (kind != TileKind::kWeights || std::isnan(want) || want == 0.0f) {
        ASSERT_TRUE(SameBits(tile[n], want)) << tile[n] << " " << want;
      } else {
        ASSERT_NEAR(tile[n], want, 3e-5f * want);
      }
    }
  }
}

TEST_P(OptionMeetingsTest, EqualTheOracle) {
  for (uint64_t seed = 0; seed < 240; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(5000 + seed);
    const bool small = seed % 5 != 0;
    AttentionCase test =
        RandomCase(&random, random.Between(1, small ? 30 : 150),
                   random.Between(1, small ? 50 : 330));
    // A query that is no number makes its own rows NaN.
    if (random.Chance(0.2)) {
      test.query.At(random.Between(0, test.batch - 1), random.Between(0, 3),
                    random.Between(0, test.rows - 1), 0) = kNan;
    }
    std::unique_ptr<BlockMask> mask;
    if (random.Chance(0.6)) mask = MakeMask(test, &random);
    test.block_mask = mask.get();
    AttentionCase expected = test;
    const reference::AttentionResult seen = RunOracle(test);
    Mod mod{&test, &seen, random.Next(),
            // A bias and a slope would be added in another order.
            test.bias.data.empty() && test.alibi_slopes.empty()};
    if (random.Chance(0.4)) {
      expected.bias = BiasOf(test, mod);
      test.score_mod = &CallMod;
      test.score_context = &mod;
    }
    PoisonHidden(&expected, &random);
    test.key = expected.key;
    test.value = expected.value;
    const AttentionRun run = RunCore(test);
    SCOPED_TRACE(test.Describe());
    ExpectMatchesOracle(expected, run);
    if (!HasFailure()) ExpectTiles(test, run, &random);
    if (HasFailure()) return;
  }
}

// A cache is keys with lengths and offsets: the same bits.
TEST_P(OptionMeetingsTest, RaggedCachesEqualLengthsAndOffsets) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(9000 + seed);
    AttentionCase test(random.Between(1, 3), 4, 2, random.Between(1, 70),
                       random.Between(1, 300), 5, 6);
    test.Fill(&random);
    // S is the largest length.
    for (size_t b = 0; b < test.batch; ++b) {
      test.key_lengths.push_back(
          b == 0 ? static_cast<int32_t>(test.keys)
                 : random.BetweenSigned(0, static_cast<int32_t>(test.keys)));
    }
    const bool counted = random.Chance(0.5);
    for (size_t b = 0; b < test.batch; ++b) {
      const int32_t rows = static_cast<int32_t>(test.rows);
      const int32_t count = counted ? random.BetweenSigned(0, rows) : rows;
      if (counted) test.query_lengths.push_back(count);
      test.query_offsets.push_back(test.key_lengths[b] - count);
    }
    test.causal = random.Pick<Causal>({Causal::kNone, Causal::kStart});
    if (random.Chance(0.3)) test.window_left = random.BetweenSigned(0, 150);
    if (random.Chance(0.3)) AddRandomAttendMask(&test, &random, 15, 0.7);
    if (random.Chance(0.3)) AddRandomBias(&test, &random, 15, 0.2);
    AddRandomScoreOptions(&test, &random);
    if (random.Chance(0.3)) test.empty_rows = EmptyRows::kNan;
    std::unique_ptr<BlockMask> mask;
    if (random.Chance(0.7)) mask = MakeMask(test, &random);
    test.block_mask = mask.get();
    const reference::AttentionResult seen = RunOracle(test);
    Mod mod{&test, &seen, random.Next(), true};
    if (random.Chance(0.4)) {
      test.score_mod = &CallMod;
      test.score_context = &mod;
    }
    SCOPED_TRACE(test.Describe());
    const auto cache = PoisonedCache(CacheConfig(test, test.keys + 5));
    ASSERT_OK(
        cache->Append(test.key.in(), test.value.in(), test.key_lengths.data()));
    AttentionOptions options = test.Options();
    options.key_lengths = nullptr;
    options.query_offsets = nullptr;
    const size_t rows = test.batch * test.heads * test.rows;
    HeadsTensor output(Layout::kHeadsFirst, test.batch, test.heads, test.rows,
                       test.v_head_dim, 0);
    Floats lse(rows), row_max(rows), weights(rows * test.keys),
        scores(rows * test.keys);
    AttentionOutputs outputs;
    outputs.output = output.out();
    outputs.lse = lse.data();
    outputs.row_max = row_max.data();
    outputs.weights_kind = WeightsKind::kPerHead;
    outputs.weights = weights.data();
    outputs.scores_kind = ScoresKind::kBiased;
    outputs.scores = scores.data();
    Workspace workspace;
    ASSERT_OK(
        CachedAttention(test.query.in(), *cache, options, outputs, &workspace));
    const AttentionRun run = RunCore(test);
    ASSERT_OK(run.status);
    EXPECT_TRUE(SameBits(output.Dense(), run.output)) << "output";
    EXPECT_TRUE(SameBits(lse, run.lse)) << "LSE";
    EXPECT_TRUE(SameBits(row_max, run.row_max)) << "row maximum";
    EXPECT_TRUE(SameBits(weights, run.weights)) << "weights";
    EXPECT_TRUE(SameBits(scores, run.biased)) << "scores";
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace headwise
