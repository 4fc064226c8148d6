// Packed sequences: each has the bits that it has alone, and nothing of one
// reaches another.
#include <cmath>
#include <vector>

#include "attention_case.h"
#include "cache_case.h"
#include "headwise/attention.h"
#include "headwise/workspace.h"
#include "layer_case.h"
#include "test_util.h"

namespace headwise {
namespace {

using Counts = std::vector<int32_t>;
using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(PackedAttentionTest);

constexpr size_t kHeads = 4;
constexpr size_t kKvHeads = 2;

Counts Cumulative(const std::vector<size_t>& lengths) {
  Counts sums = {0};
  for (const size_t length : lengths) {
    sums.push_back(sums.back() + static_cast<int32_t>(length));
  }
  return sums;
}

// Sequences one behind the other in one entry.
struct PackedCase {
  PackedCase(std::vector<size_t> queries, std::vector<size_t> keys,
             Random* random, Layout layout = Layout::kHeadsFirst)
      : query_starts(Cumulative(queries)),
        key_starts(Cumulative(keys)),
        whole(1, kHeads, kKvHeads, static_cast<size_t>(query_starts.back()),
              static_cast<size_t>(key_starts.back()), 6, 9, layout, 1) {
    whole.Fill(random);
    whole.cumulative_query_lengths = query_starts;
    whole.cumulative_key_lengths = key_starts;
  }
  size_t sequences() const { return query_starts.size() - 1; }
  size_t query_start(size_t n) const {
    return static_cast<size_t>(query_starts[n]);
  }
  size_t key_start(size_t n) const {
    return static_cast<size_t>(key_starts[n]);
  }

  // Sequence n as a call of its own.
  AttentionCase Alone(size_t n) const {
    const size_t rows = query_start(n + 1) - query_start(n);
    const size_t keys = key_start(n + 1) - key_start(n);
    AttentionCase test(1, kHeads, kKvHeads, rows, keys, 6, 9);
    for (size_t h = 0; h < kHeads; ++h) {
      for (size_t i = 0; i < rows; ++i) {
        for (size_t d = 0; d < 6; ++d) {
          test.query.At(0, h, i, d) =
              whole.query.At(0, h, query_start(n) + i, d);
        }
      }
    }
    for (size_t h = 0; h < kKvHeads; ++h) {
      for (size_t j = 0; j < keys; ++j) {
        for (size_t d = 0; d < 6; ++d) {
          test.key.At(0, h, j, d) = whole.key.At(0, h, key_start(n) + j, d);
        }
        for (size_t d = 0; d < 9; ++d) {
          test.value.At(0, h, j, d) = whole.value.At(0, h, key_start(n) + j, d);
        }
      }
    }
    test.scale = whole.scale;
    test.causal = whole.causal;
    test.empty_rows = whole.empty_rows;
    test.softcap = whole.softcap;
    test.alibi_slopes = whole.alibi_slopes;
    test.sinks = whole.sinks;
    test.head_gates = whole.head_gates;
    test.window_left = whole.window_left;
    test.window_right = whole.window_right;
    test.attention_chunk = whole.attention_chunk;
    const auto own = [&](const Counts& all) {
      return all.empty() ? Counts() : Counts{all[n]};
    };
    test.key_lengths = own(whole.key_lengths);
    test.query_lengths = own(whole.query_lengths);
    test.query_offsets = own(whole.query_offsets);
    test.prefix_lengths = own(whole.prefix_lengths);
    if (!whole.padding.empty()) {
      test.padding.assign(whole.padding.begin() + key_starts[n],
                          whole.padding.begin() + key_starts[n + 1]);
    }
    test.attend = Part(whole.attend, n);
    test.bias = Part(whole.bias, n);
    test.extra_key = whole.extra_key;
    test.extra_value = whole.extra_value;
    return test;
  }

  // The part of a mask over all queries and keys.
  template <typename T>
  MaskData<T> Part(const MaskData<T>& mask, size_t n) const {
    if (mask.data.empty()) return {};
    MaskData<T> part;
    part.heads = mask.heads;
    part.rows = query_start(n + 1) - query_start(n);
    part.keys = key_start(n + 1) - key_start(n);
    for (size_t h = 0; h < mask.heads; ++h) {
      for (size_t i = 0; i < part.rows; ++i) {
        const size_t row = (h * mask.rows + query_start(n) + i) * mask.keys;
        for (size_t j = 0; j < part.keys; ++j) {
          part.data.push_back(mask.data[row + key_start(n) + j]);
        }
      }
    }
    // A mask of sequences without a pair has no data, which means no mask.
    if (part.data.empty()) part.data.push_back(T());
    return part;
  }

  Counts query_starts;
  Counts key_starts;
  AttentionCase whole;
};

// Columns [begin, end) of the rows of `all` [H, rows, columns] from row
// `first`; with the extra columns from `extra` on.
Floats Columns(const Floats& all, size_t rows, size_t columns, size_t first,
               size_t count, size_t begin, size_t end, size_t extra) {
  Floats part;
  for (size_t h = 0; h < kHeads; ++h) {
    for (size_t i = first; i < first + count; ++i) {
      const auto row =
          all.begin() + static_cast<ptrdiff_t>((h * rows + i) * columns);
      part.insert(part.end(), row + static_cast<ptrdiff_t>(begin),
                  row + static_cast<ptrdiff_t>(end));
      part.insert(part.end(), row + static_cast<ptrdiff_t>(extra),
                  row + static_cast<ptrdiff_t>(columns));
    }
  }
  return part;
}

void ExpectAsAlone(const PackedCase& test) {
  SCOPED_TRACE(test.whole.Describe());
  const AttentionRun run = RunCore(test.whole);
  ASSERT_OK(run.status);
  const size_t rows = test.whole.rows;
  const size_t keys = test.whole.keys;
  const size_t columns = test.whole.columns();
  for (size_t n = 0; n < test.sequences(); ++n) {
    SCOPED_TRACE("sequence " + std::to_string(n));
    const AttentionCase own = test.Alone(n);
    const AttentionRun alone = RunCore(own);
    ASSERT_OK(alone.status);
    ExpectMatchesOracle(own, alone);
    const size_t first = test.query_start(n);
    const auto rows_of = [&](const Floats& all, size_t width) {
      return Columns(all, rows, width, first, own.rows, 0, width, width);
    };
    EXPECT_TRUE(SameBits(rows_of(run.output, 9), alone.output)) << "output";
    EXPECT_TRUE(SameBits(rows_of(run.lse, 1), alone.lse)) << "LSE";
    EXPECT_TRUE(SameBits(rows_of(run.row_max, 1), alone.row_max)) << "max";
    const size_t begin = test.key_start(n);
    const auto block = [&](const Floats& all) {
      return Columns(all, rows, columns, first, own.rows, begin,
                     begin + own.keys, keys);
    };
    EXPECT_TRUE(SameBits(block(run.weights), alone.weights)) << "weights";
    EXPECT_TRUE(SameBits(block(run.raw), alone.raw)) << "raw scores";
    EXPECT_TRUE(SameBits(block(run.capped), alone.capped)) << "capped";
    EXPECT_TRUE(SameBits(block(run.biased), alone.biased)) << "biased";
    // What other sequences get: weight 0 (NaN in a row that is NaN), no score.
    for (size_t h = 0; h < kHeads; ++h) {
      for (size_t i = first; i < first + own.rows; ++i) {
        for (size_t j = 0; j < keys; ++j) {
          if (j >= begin && j < begin + own.keys) continue;
          const size_t at = (h * rows + i) * columns + j;
          ASSERT_TRUE(run.weights[at] == 0.0f ||
                      std::isnan(run.output[(h * rows + i) * 9]))
              << run.weights[at];
          ASSERT_EQ(run.raw[at], -kInf);
          ASSERT_EQ(run.capped[at], -kInf);
          ASSERT_EQ(run.biased[at], -kInf);
        }
      }
    }
  }
}

TEST_P(PackedAttentionTest, EachSequenceAsAlone) {
  Random random(1);
  ExpectAsAlone({{3, 1, 130, 7}, {3, 1, 130, 7}, &random});
  PackedCase causal({5, 200, 63}, {5, 200, 63}, &random, Layout::kHeadsLast);
  causal.whole.causal = Causal::kStart;
  ExpectAsAlone(causal);
  // Cross-attention; empty sequences on either side.
  ExpectAsAlone({{2, 0, 65, 4, 0}, {150, 3, 0, 9, 0}, &random});
  ExpectAsAlone({{}, {}, &random});
}

TEST_P(PackedAttentionTest, WithEveryOption) {
  Random random(2);
  for (int round = 0; round < 40; ++round) {
    std::vector<size_t> queries, keys;
    const size_t count = random.Between(1, 5);
    const bool self = random.Chance(0.5);
    for (size_t n = 0; n < count; ++n) {
      queries.push_back(random.Between(0, 90));
      keys.push_back(self ? queries.back() : random.Between(0, 170));
    }
    PackedCase test(
        queries, keys, &random,
        random.Pick<Layout>({Layout::kHeadsFirst, Layout::kHeadsLast}));
    AttentionCase& whole = test.whole;
    if (whole.rows > 0 && whole.keys > 0) {
      if (random.Chance(0.3)) AddRandomAttendMask(&whole, &random, 7, 0.7);
      if (random.Chance(0.3)) AddRandomBias(&whole, &random, 7, 0.2);
      if (random.Chance(0.3)) {
        for (size_t j = 0; j < whole.keys; ++j) {
          whole.padding.push_back(random.Chance(0.3));
        }
      }
    }
    AddRandomScoreOptions(&whole, &random);
    if (random.Chance(0.4)) AddRandomExtraKeys(&whole, &random);
    if (random.Chance(0.3)) whole.window_left = random.BetweenSigned(0, 50);
    if (random.Chance(0.3)) whole.window_right = random.BetweenSigned(0, 50);
    if (random.Chance(0.2)) whole.attention_chunk = random.BetweenSigned(1, 50);
    if (random.Chance(0.2)) whole.empty_rows = EmptyRows::kNan;
    whole.causal =
        random.Pick<Causal>({Causal::kNone, Causal::kStart, Causal::kEnd});
    const bool key_lengths = random.Chance(0.3);
    const bool query_lengths = random.Chance(0.3);
    const bool offsets = whole.causal != Causal::kEnd && random.Chance(0.3);
    const bool prefix = whole.causal != Causal::kNone && random.Chance(0.3);
    for (size_t n = 0; n < count; ++n) {
      const int32_t l = static_cast<int32_t>(queries[n]);
      const int32_t s = static_cast<int32_t>(keys[n]);
      if (key_lengths) whole.key_lengths.push_back(random.BetweenSigned(0, s));
      if (query_lengths) {
        whole.query_lengths.push_back(random.BetweenSigned(0, l));
      }
      if (offsets) whole.query_offsets.push_back(random.BetweenSigned(-9, 99));
      if (prefix) whole.prefix_lengths.push_back(random.BetweenSigned(0, s));
    }
    ExpectAsAlone(test);
  }
}

// NaN in one sequence is nobody else's business.
TEST_P(PackedAttentionTest, NothingLeaks) {
  Random random(3);
  PackedCase test({4, 70, 5}, {4, 150, 5}, &random);
  const AttentionRun clean = RunCore(test.whole);
  for (size_t h = 0; h < kKvHeads; ++h) {
    test.whole.key.At(0, h, 100, 2) = kNan;
    test.whole.value.At(0, h, 101, 2) = kInf;
  }
  const AttentionRun run = RunCore(test.whole);
  ASSERT_OK(run.status);
  for (size_t h = 0; h < kHeads; ++h) {
    for (size_t i = 0; i < 79; ++i) {
      const size_t at = (h * 79 + i) * 9;
      if (i >= 4 && i < 74) {
        EXPECT_TRUE(std::isnan(run.output[at + 2]));
      } else {
        EXPECT_EQ(run.output[at], clean.output[at]);
      }
    }
  }
}

TEST_P(PackedAttentionTest, TilesAcrossSequences) {
  Random random(4);
  PackedCase test({6, 90, 3}, {20, 140, 5}, &random);
  AttentionCase& whole = test.whole;
  whole.causal = Causal::kEnd;
  const AttentionRun run = RunCore(whole);
  ASSERT_OK(run.status);
  Workspace workspace;
  for (int round = 0; round < 60; ++round) {
    AttentionTileRequest request;
    request.head = random.Between(0, kHeads - 1);
    request.row_begin = random.Between(0, whole.rows);
    request.row_end = random.Between(request.row_begin, whole.rows);
    request.key_begin = random.Between(0, whole.keys);
    request.key_end = random.Between(request.key_begin, whole.keys);
    request.lse = run.lse.data();
    const size_t width = request.key_end - request.key_begin;
    const size_t size = (request.row_end - request.row_begin) * width;
    for (const TileKind kind : {TileKind::kRaw, TileKind::kBiased}) {
      request.kind = kind;
      Floats tile(size, kNan);
      ASSERT_OK(AttentionTile(whole.query.in(), whole.key.in(), whole.Options(),
                              request, tile.data(), &workspace));
      const Floats& all = kind == TileKind::kRaw ? run.raw : run.biased;
      Floats expected;
      for (size_t i = request.row_begin; i < request.row_end; ++i) {
        const auto row =
            all.begin() + static_cast<ptrdiff_t>(
                              (request.head * whole.rows + i) * whole.keys);
        expected.insert(expected.end(),
                        row + static_cast<ptrdiff_t>(request.key_begin),
                        row + static_cast<ptrdiff_t>(request.key_end));
      }
      ASSERT_TRUE(SameBits(tile, expected));
    }
    request.kind = TileKind::kWeights;
    Floats tile(size, kNan);
    ASSERT_OK(AttentionTile(whole.query.in(), whole.key.in(), whole.Options(),
                            request, tile.data(), &workspace));
    for (size_t n = 0; n < size; ++n) {
      const size_t i = request.row_begin + n / width;
      const size_t j = request.key_begin + n % width;
      const float weight =
          run.weights[(request.head * whole.rows + i) * whole.keys + j];
      ASSERT_NEAR(tile[n], weight, 1e-6);
      if (weight == 0.0f) ASSERT_EQ(tile[n], 0.0f);
    }
  }
}

TEST_P(PackedAttentionTest, RefusesWhatDoesNotFit) {
  Random random(5);
  PackedCase test({3, 4}, {3, 4}, &random);
  AttentionCase& whole = test.whole;
  const auto expect = [&](const std::vector<std::string>& parts) {
    ExpectError(RunCore(whole).status, StatusCode::kInvalidArgument, parts);
    whole.cumulative_query_lengths = {0, 3, 7};
    whole.cumulative_key_lengths = {0, 3, 7};
  };
  whole.cumulative_query_lengths = {0, 3, 6};
  expect({"cumulative_query_lengths[2] is 6", "at 7"});
  whole.cumulative_key_lengths = {1, 3, 7};
  expect({"cumulative_key_lengths[0] is 1", "start at 0"});
  whole.cumulative_key_lengths = {0, 8, 7};
  expect({"cumulative_key_lengths[2] is 7"});
  whole.cumulative_key_lengths = {};
  expect({"go together"});
  whole.cumulative_query_lengths = {};
  expect({"go together"});
  whole.key_lengths = {3, 5};
  expect({"key_lengths[1] is 5", "0 to 4"});
  whole.key_lengths = {};
  whole.query_lengths = {4, 4};
  expect({"query_lengths[0] is 4", "0 to 3"});
  whole.query_lengths = {};
  whole.causal = Causal::kStart;
  whole.prefix_lengths = {3, 5};
  expect({"prefix_lengths[1] is 5", "0 to 4"});
  whole.prefix_lengths = {};

  PackedCase two({3}, {3}, &random);
  AttentionCase batch(2, kHeads, kKvHeads, 3, 3, 6, 9);
  batch.Fill(&random);
  batch.cumulative_query_lengths = {0, 3};
  batch.cumulative_key_lengths = {0, 3};
  ExpectError(RunCore(batch).status, StatusCode::kInvalidArgument,
              {"batch is 2"});
}

TEST_P(PackedAttentionTest, ALayerTurnsEachSequenceFromItsStart) {
  Random random(6);
  Config config;
  config.embed_dim = 20;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  config = Resolved(config);
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  const std::vector<size_t> lengths = {5, 131, 1, 40};
  const Counts starts = Cumulative(lengths);
  Tensor x(1, 177, 20);
  x.FillUniform(&random, -1, 1);
  RotaryConfig rotary;
  LayerOptions options;
  options.causal = Causal::kStart;
  options.rotary = &rotary;
  LayerOptions packed = options;
  packed.cumulative_query_lengths = starts.data();
  packed.cumulative_key_lengths = starts.data();
  packed.packed_sequences = lengths.size();
  const LayerRun run = RunLayer(*layer, x.in(), x.in(), x.in(), packed);
  ASSERT_OK(run.status);
  const size_t width = config.out_dim;
  for (size_t n = 0; n < lengths.size(); ++n) {
    const size_t begin = static_cast<size_t>(starts[n]);
    const auto own = RowsOf(x.in(), begin, begin + lengths[n]);
    const LayerRun alone = RunLayer(*layer, own, own, own, options);
    ASSERT_OK(alone.status);
    const auto from =
        run.output.begin() + static_cast<ptrdiff_t>(begin * width);
    EXPECT_TRUE(SameBits(
        Floats(from, from + static_cast<ptrdiff_t>(lengths[n] * width)),
        alone.output));
  }
}

// Of cross-attention: queries turn to where Causal::kEnd puts them, keys from
// 0.
TEST_P(PackedAttentionTest, ALayerTurnsQueriesToTheirOffset) {
  Random random(8);
  Config config;
  config.embed_dim = 12;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  config = Resolved(config);
  const auto layer = MakeLayer(config, LayerWeights::Uniform(config, &random));
  ASSERT_NE(layer, nullptr);
  const std::vector<size_t> lengths = {5, 31, 1};
  const std::vector<size_t> key_lengths = {9, 60, 4};
  const Counts starts = Cumulative(lengths);
  const Counts key_starts = Cumulative(key_lengths);
  Tensor x(1, 37, 12), y(1, 73, 12);
  x.FillUniform(&random, -1, 1);
  y.FillUniform(&random, -1, 1);
  RotaryConfig rotary;
  LayerOptions options;
  options.causal = Causal::kEnd;
  options.rotary = &rotary;
  LayerOptions packed = options;
  packed.cumulative_query_lengths = starts.data();
  packed.cumulative_key_lengths = key_starts.data();
  packed.packed_sequences = lengths.size();
  const LayerRun run = RunLayer(*layer, x.in(), y.in(), y.in(), packed);
  ASSERT_OK(run.status);
  for (size_t n = 0; n < lengths.size(); ++n) {
    const size_t begin = static_cast<size_t>(starts[n]);
    const size_t key_begin = static_cast<size_t>(key_starts[n]);
    const auto own = RowsOf(x.in(), begin, begin + lengths[n]);
    const auto keys = RowsOf(y.in(), key_begin, key_begin + key_lengths[n]);
    // The same positions, given one by one.
    Counts query_positions, key_positions;
    for (size_t i = 0; i < lengths[n]; ++i) {
      query_positions.push_back(
          static_cast<int32_t>(key_lengths[n] - lengths[n] + i));
    }
    for (size_t j = 0; j < key_lengths[n]; ++j) {
      key_positions.push_back(static_cast<int32_t>(j));
    }
    LayerOptions alone = options;
    alone.query_positions = query_positions.data();
    alone.key_positions = key_positions.data();
    const LayerRun expected = RunLayer(*layer, own, keys, keys, alone);
    ASSERT_OK(expected.status);
    const auto from = run.output.begin() + static_cast<ptrdiff_t>(begin * 12);
    EXPECT_TRUE(
        SameBits(Floats(from, from + static_cast<ptrdiff_t>(lengths[n] * 12)),
                 expected.output));
  }
}

TEST_P(PackedAttentionTest, ACacheHasEntriesInstead) {
  Random random(7);
  PackedCase test({3, 4}, {3, 4}, &random);
  const auto cache = PoisonedCache(CacheConfig(test.whole, 8));
  ASSERT_OK(cache->Append(test.whole.key.in(), test.whole.value.in(), nullptr));
  HeadsTensor output(Layout::kHeadsFirst, 1, kHeads, 7, 9, 0);
  AttentionOutputs outputs;
  outputs.output = output.out();
  Workspace workspace;
  ExpectError(CachedAttention(test.whole.query.in(), *cache,
                              test.whole.Options(), outputs, &workspace),
              StatusCode::kInvalidArgument,
              {"cumulative_query_lengths", "query_lengths"});
}

}  // namespace
}  // namespace headwise
