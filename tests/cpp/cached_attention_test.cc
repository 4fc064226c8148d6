// Attention over a key/value cache: any steps equal one pass, to the bit, and
// a rolling cache equals a mask that hides the same keys.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "attention_case.h"
#include "cache_case.h"
#include "headwise/attention.h"
#include "headwise/workspace.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;
using Counts = std::vector<int32_t>;

HEADWISE_TEST_ALL_TARGETS(CachedAttentionTest);

constexpr CacheType kTypes[] = {CacheType::kFloat32, CacheType::kFloat16,
                                CacheType::kBFloat16, CacheType::kInt8};

AttentionCase CausalCase(size_t batch, size_t length, Random* random) {
  AttentionCase test(batch, 4, 2, length, length, 6, 9, Layout::kHeadsLast, 1);
  test.Fill(random);
  test.causal = Causal::kStart;
  return test;
}

// Keys and values as a cache of this type gives them back.
void RoundTo(CacheType type, AttentionCase* test) {
  const auto cache = PoisonedCache(CacheConfig(*test, test->keys, 0, 0, type));
  ASSERT_OK(cache->Append(test->key.in(), test->value.in(), nullptr));
  Floats key(test->head_dim), value(test->v_head_dim);
  for (size_t b = 0; b < test->batch; ++b) {
    for (size_t h = 0; h < test->kv_heads; ++h) {
      for (size_t j = 0; j < test->keys; ++j) {
        cache->Unpack(b, h, j, 1, key.data(), value.data());
        for (size_t d = 0; d < key.size(); ++d) {
          test->key.At(b, h, j, d) = key[d];
        }
        for (size_t d = 0; d < value.size(); ++d) {
          test->value.At(b, h, j, d) = value[d];
        }
      }
    }
  }
}

TEST_P(CachedAttentionTest, K01AnyStepsEqualOnePass) {
  Random random(1);
  for (const size_t batch : {1, 3}) {
    for (const size_t length : {7, 70, 300}) {
      const AttentionCase test = CausalCase(batch, length, &random);
      const AttentionRun whole = RunAndCompare(test);
      for (const size_t step :
           {size_t{1}, size_t{2}, size_t{7}, size_t{64}, length}) {
        const auto cache = PoisonedCache(CacheConfig(test, length + 5));
        const CachedRun run =
            RunSteps(test, EqualSteps(length, step), cache.get());
        ASSERT_OK(run.status);
        EXPECT_TRUE(SameBits(run.output, whole.output))
            << "batch " << batch << ", " << length << " in steps of " << step;
        EXPECT_TRUE(SameBits(run.lse, whole.lse));
      }
    }
  }
}

// 7 tokens as 7, 3 + 4 and 1 x 7: the caches are equal, too.
TEST_P(CachedAttentionTest, K01TheCacheDoesNotKnowTheSteps) {
  Random random(2);
  for (const size_t batch : {1, 3}) {
    const AttentionCase test = CausalCase(batch, 7, &random);
    const auto whole = PoisonedCache(CacheConfig(test, 8));
    const CachedRun want = RunSteps(test, {7}, whole.get());
    for (const std::vector<size_t>& steps :
         {std::vector<size_t>{3, 4}, EqualSteps(7, 1)}) {
      const auto cache = PoisonedCache(CacheConfig(test, 8));
      const CachedRun run = RunSteps(test, steps, cache.get());
      ASSERT_OK(run.status);
      EXPECT_TRUE(SameBits(run.output, want.output));
      EXPECT_TRUE(SameHeldTokens(*cache, *whole));
    }
  }
}

// Every option that makes sense with a cache, in random steps.
TEST_P(CachedAttentionTest, K08OptionsInRandomStepsEqualOnePass) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(800 + seed);
    const size_t length = random.Between(1, seed % 4 == 0 ? 200 : 40);
    AttentionCase test = CausalCase(random.Between(1, 3), length, &random);
    AddRandomPositions(&test, &random);
    AddRandomScoreOptions(&test, &random);
    test.query_offsets.clear();
    test.prefix_lengths.clear();
    if (HasFailure()) return;
    const AttentionRun whole = RunAndCompare(test);
    const auto cache = PoisonedCache(CacheConfig(test, length));
    const CachedRun run =
        RunSteps(test, RandomSteps(length, length, &random), cache.get());
    ASSERT_OK(run.status);
    EXPECT_TRUE(SameBits(run.output, whole.output)) << test.Describe();
    EXPECT_TRUE(SameBits(run.lse, whole.lse)) << test.Describe();
    if (HasFailure()) return;
  }
}

TEST_P(CachedAttentionTest, EveryTypeEqualsItsRoundedKeys) {
  Random random(3);
  for (const CacheType type : kTypes) {
    AttentionCase test = CausalCase(2, 40, &random);
    const auto cache = PoisonedCache(CacheConfig(test, 40, 0, 0, type));
    const CachedRun run = RunSteps(test, EqualSteps(40, 7), cache.get());
    ASSERT_OK(run.status);
    RoundTo(type, &test);
    EXPECT_TRUE(SameBits(run.output, RunAndCompare(test).output));
  }
}

// Entries of different lengths, each as if it were alone.
TEST_P(CachedAttentionTest, RaggedBatchEqualsEachEntryAlone) {
  Random random(4);
  const AttentionCase test = CausalCase(3, 30, &random);
  const auto cache = PoisonedCache(CacheConfig(test, 30));
  Workspace workspace;
  Counts at = {0, 0, 0};
  for (const Counts& counts :
       {Counts{5, 0, 2}, Counts{1, 1, 1}, Counts{0, 7, 3}, Counts{9, 2, 9}}) {
    const size_t rows = 9;
    AttentionCase step(3, 4, 2, rows, rows, 6, 9);
    step.query.SetDense(Floats(3 * 4 * rows * 6, kNan));
    step.key.SetDense(Floats(3 * 2 * rows * 6, kNan));
    step.value.SetDense(Floats(3 * 2 * rows * 9, kNan));
    for (size_t b = 0; b < 3; ++b) {
      for (int32_t i = 0; i < counts[b]; ++i) {
        const size_t row = static_cast<size_t>(i);
        const size_t from = static_cast<size_t>(at[b] + i);
        for (size_t h = 0; h < 4; ++h) {
          for (size_t d = 0; d < 6; ++d) {
            step.query.At(b, h, row, d) = test.query.At(b, h, from, d);
            if (h < 2) {
              step.key.At(b, h, row, d) = test.key.At(b, h, from, d);
            }
          }
          for (size_t d = 0; d < 9 && h < 2; ++d) {
            step.value.At(b, h, row, d) = test.value.At(b, h, from, d);
          }
        }
      }
    }
    ASSERT_OK(cache->Append(step.key.in(), step.value.in(), counts.data()));
    HeadsTensor output(Layout::kHeadsFirst, 3, 4, rows, 9, 0);
    AttentionOutputs outputs;
    outputs.output = output.out();
    AttentionOptions options;
    options.causal = Causal::kStart;
    options.query_lengths = counts.data();
    ASSERT_OK(
        CachedAttention(step.query.in(), *cache, options, outputs, &workspace));
    const AttentionRun whole = RunCore(test);
    for (size_t b = 0; b < 3; ++b) {
      for (size_t h = 0; h < 4; ++h) {
        for (size_t i = 0; i < rows; ++i) {
          for (size_t d = 0; d < 9; ++d) {
            const bool counted = static_cast<int32_t>(i) < counts[b];
            const size_t row =
                (b * 4 + h) * 30 + static_cast<size_t>(at[b]) + i;
            EXPECT_TRUE(SameBits(output.At(b, h, i, d),
                                 counted ? whole.output[row * 9 + d] : 0.0f))
                << b << " " << h << " " << i << " " << d;
          }
        }
      }
      at[b] += counts[b];
    }
  }
}

// Weights and scores against the oracle, columns beyond an entry's length
// among them.
TEST_P(CachedAttentionTest, WeightsAndScoresOfARaggedCache) {
  Random random(5);
  AttentionCase test(2, 4, 2, 3, 150, 6, 9);
  test.Fill(&random);
  test.causal = Causal::kStart;
  const Counts lengths = {150, 131};
  const auto cache = PoisonedCache(CacheConfig(test, 160));
  ASSERT_OK(cache->Append(test.key.in(), test.value.in(), lengths.data()));
  AttentionOptions options;
  options.causal = Causal::kEnd;
  AttentionRun run;
  Workspace workspace;
  HeadsTensor output(Layout::kHeadsFirst, 2, 4, 3, 9, 0);
  AttentionOutputs outputs;
  outputs.output = output.out();
  const auto call = [&](WeightsKind weights, Floats* into, ScoresKind scores,
                        Floats* scores_into) {
    into->assign(2 * 4 * 3 * 150, kNan);
    scores_into->assign(2 * 4 * 3 * 150, kNan);
    outputs.weights_kind = weights;
    outputs.weights = into->data();
    outputs.scores_kind = scores;
    outputs.scores = scores_into->data();
    const Status status =
        CachedAttention(test.query.in(), *cache, options, outputs, &workspace);
    EXPECT_TRUE(status.ok()) << status.message();
  };
  Floats raw, unused;
  call(WeightsKind::kPerHead, &run.weights, ScoresKind::kBiased, &run.biased);
  call(WeightsKind::kAveraged, &unused, ScoresKind::kRaw, &raw);
  test.key_lengths = lengths;
  test.causal = Causal::kEnd;
  const AttentionRun want = RunAndCompare(test);
  EXPECT_TRUE(SameBits(output.Dense(), want.output));
  EXPECT_TRUE(SameBits(run.weights, want.weights));
  EXPECT_TRUE(SameBits(run.biased, want.biased));
  for (size_t n = 0; n < raw.size(); ++n) {
    const bool held = n < raw.size() / 2 || n % 150 < 131;
    EXPECT_TRUE(SameBits(raw[n], held ? want.raw[n] : -kInf)) << n;
  }
}

TEST_P(CachedAttentionTest, N05UnusedSlotsHoldNan) {
  for (const CacheType type : kTypes) {
    for (size_t length = 1; length <= 8; ++length) {
      AttentionCase test =
          ListCase(Floats(length), Floats(length), Floats(length));
      for (size_t i = 0; i < length; ++i) {
        test.value.At(0, 0, i, 0) = static_cast<float>(i + 1);
      }
      test.causal = Causal::kStart;
      const auto cache = PoisonedCache(CacheConfig(test, 8, 0, 0, type));
      const CachedRun run = RunSteps(test, {length}, cache.get());
      ASSERT_OK(run.status);
      // (1 + ... + n) / n; int8 stores one value a row exactly.
      EXPECT_NEAR(run.output[length - 1], static_cast<double>(length + 1) / 2,
                  1e-5);
      if (length == 3 && type != CacheType::kInt8) {
        EXPECT_EQ(run.output[2], 2.0f);
      }
    }
  }
}

TEST_P(CachedAttentionTest, N10MaskedKeysOfHalfPrecision) {
  for (const CacheType type : {CacheType::kFloat16, CacheType::kBFloat16}) {
    AttentionCase test = ListCase({0, 0}, {0, 0}, {10, 20});
    test.causal = Causal::kStart;
    const auto cache = PoisonedCache(CacheConfig(test, 2, 0, 0, type));
    ASSERT_OK(cache->Append(test.key.in(), test.value.in(), nullptr));
    test.attend = MatrixMask<uint8_t>(1, 2, {1, 0});
    test.causal = Causal::kNone;
    Floats output(1);
    AttentionOutputs outputs;
    outputs.output = HeadsView<float>::HeadsFirst(output.data(), 1, 1, 1, 1);
    Workspace workspace;
    ASSERT_OK(CachedAttention(RowsOf(test.query.in(), 0, 1), *cache,
                              test.Options(), outputs, &workspace));
    EXPECT_EQ(output[0], 10.0f);
  }
}

TEST_P(CachedAttentionTest, N11HalfPrecisionScoresDoNotOverflow) {
  AttentionCase test(1, 1, 1, 1, 2, 6, 6);
  test.query.SetDense(Floats(6, 150.0f));
  test.key.SetDense(Floats(12, 150.0f));
  test.value.SetDense({10, 10, 10, 10, 10, 10, 20, 20, 20, 20, 20, 20});
  test.scale = 1.0f;
  const auto cache =
      PoisonedCache(CacheConfig(test, 2, 0, 0, CacheType::kFloat16));
  ASSERT_OK(cache->Append(test.key.in(), test.value.in(), nullptr));
  Floats output(6);
  Floats lse(1);
  AttentionOutputs outputs;
  outputs.output = HeadsView<float>::HeadsFirst(output.data(), 1, 1, 1, 6);
  outputs.lse = lse.data();
  Workspace workspace;
  ASSERT_OK(CachedAttention(test.query.in(), *cache, test.Options(), outputs,
                            &workspace));
  EXPECT_EQ(output, Floats(6, 15.0f));
  EXPECT_NEAR(lse[0], 135000.693, 0.02);
}

TEST_P(CachedAttentionTest, N15CausalCountsTheTokensHeld) {
  AttentionCase test = ListCase({0, 0, 0, 0}, {0, 0, 0, 0}, {1, 2, 3, 4});
  for (const Causal causal : {Causal::kStart, Causal::kEnd}) {
    test.causal = causal;
    const auto cache = PoisonedCache(CacheConfig(test, 4));
    const CachedRun run = RunSteps(test, {3, 1}, cache.get());
    ASSERT_OK(run.status);
    EXPECT_EQ(run.output, (Floats{1, 1.5f, 2, 2.5f}));
  }
}

TEST_P(CachedAttentionTest, N30WindowOverACache) {
  AttentionCase test = ListCase(Floats(6), Floats(6), {1, 2, 3, 4, 5, 6});
  test.causal = Causal::kStart;
  test.window_left = 1;
  const auto cache = PoisonedCache(CacheConfig(test, 6));
  const CachedRun run = RunSteps(test, EqualSteps(6, 1), cache.get());
  ASSERT_OK(run.status);
  EXPECT_EQ(run.output[5], 5.5f);
  // The same of a rolling cache: a window of two tokens.
  test.window_left = -1;
  const auto rolling = PoisonedCache(CacheConfig(test, 0, 2));
  const CachedRun rolled = RunSteps(test, EqualSteps(6, 1), rolling.get());
  ASSERT_OK(rolled.status);
  EXPECT_EQ(rolled.output, run.output);
}

// Every length, in steps of any size; unused slots hold NaN.
TEST_P(CachedAttentionTest, K03RollingWindowEqualsItsMask) {
  Random random(30);
  for (const size_t window : {5, 16}) {
    for (const size_t sinks : {0, 4}) {
      for (size_t length = 1; length <= 40; ++length) {
        AttentionCase test = CausalCase(2, length, &random);
        const auto cache = PoisonedCache(CacheConfig(test, 0, window, sinks));
        const CachedRun run =
            RunSteps(test, RandomSteps(length, 9, &random), cache.get());
        ASSERT_OK(run.status);
        test.attend = RollingMask(length, window, sinks);
        const AttentionRun want = RunCore(test);
        EXPECT_TRUE(SameBits(run.output, want.output))
            << "window " << window << ", " << sinks << " sinks, " << length
            << " tokens";
        EXPECT_TRUE(SameBits(run.lse, want.lse));
        if (length % 8 == 0) ExpectMatchesOracle(test, want);
      }
    }
  }
}

// Long enough for the ring to turn several times.
TEST_P(CachedAttentionTest, K08RollingInRandomSteps) {
  Random random(31);
  for (const CacheType type : kTypes) {
    AttentionCase test = CausalCase(2, 400, &random);
    const KvCacheConfig config = CacheConfig(test, 0, 16, 4, type);
    const auto first = PoisonedCache(config);
    const CachedRun want =
        RunSteps(test, RandomSteps(400, 64, &random), first.get());
    ASSERT_OK(want.status);
    for (size_t n = 0; n < 3; ++n) {
      const auto cache = PoisonedCache(config);
      const CachedRun run = RunSteps(
          test, RandomSteps(400, n == 0 ? 1 : 64, &random), cache.get());
      ASSERT_OK(run.status);
      EXPECT_TRUE(SameBits(run.output, want.output));
      EXPECT_TRUE(SameHeldTokens(*cache, *first));
    }
    RoundTo(type, &test);
    test.attend = RollingMask(400, 16, 4);
    EXPECT_TRUE(SameBits(want.output, RunCore(test).output));
  }
}

// Softcap, ALiBi, sinks and gates compose with what a rolling cache drops.
TEST_P(CachedAttentionTest, K08RollingWithScoreOptions) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(860 + seed);
    const size_t length = random.Between(1, 260);
    const size_t window = random.Between(1, 40);
    const size_t sinks = random.Between(0, 5);
    AttentionCase test = CausalCase(2, length, &random);
    AddRandomScoreOptions(&test, &random);
    const auto cache = PoisonedCache(CacheConfig(test, 0, window, sinks));
    const CachedRun run =
        RunSteps(test, RandomSteps(length, 64, &random), cache.get());
    ASSERT_OK(run.status);
    test.attend = RollingMask(length, window, sinks);
    const AttentionRun want = RunCore(test);
    EXPECT_TRUE(SameBits(run.output, want.output)) << test.Describe();
    EXPECT_TRUE(SameBits(run.lse, want.lse)) << test.Describe();
  }
}

// Without causality a query sees what follows it, as far as it is appended and
// window_right lets it; the window reaches back from the query as ever.
TEST_P(CachedAttentionTest, RollingQueriesThatSeeWhatFollows) {
  Random random(34);
  for (const int32_t right : {-1, 0, 2, 70}) {
    for (const size_t window : {1, 5, 16}) {
      for (const size_t step : {1, 7, 64}) {
        const size_t sinks = random.Between(0, 4);
        const size_t length = 70;
        AttentionCase test = CausalCase(2, length, &random);
        test.causal = Causal::kNone;
        test.window_right = right;
        const auto cache = PoisonedCache(CacheConfig(test, 0, window, sinks));
        const CachedRun run =
            RunSteps(test, EqualSteps(length, step), cache.get());
        ASSERT_OK(run.status);
        MaskData<uint8_t>& mask = test.attend;
        mask.rows = mask.keys = length;
        for (size_t i = 0; i < length; ++i) {
          const size_t appended = std::min(length, (i / step + 1) * step);
          const size_t end =
              right < 0
                  ? appended
                  : std::min(appended, i + static_cast<size_t>(right) + 1);
          for (size_t j = 0; j < length; ++j) {
            mask.data.push_back(j < end && (j < sinks || j + window > i));
          }
        }
        test.window_right = -1;
        const AttentionRun want = RunAndCompare(test);
        EXPECT_TRUE(SameBits(run.output, want.output))
            << "right " << right << ", window " << window << ", steps of "
            << step;
        EXPECT_TRUE(SameBits(run.lse, want.lse));
      }
    }
  }
}

TEST_P(CachedAttentionTest, K05UnboundedTextInFixedMemory) {
  Random random(32);
  AttentionCase test = CausalCase(1, 1000, &random);
  const auto cache = PoisonedCache(CacheConfig(test, 0, 16, 4));
  const size_t bytes = cache->bytes();
  const CachedRun run = RunSteps(test, EqualSteps(1000, 1), cache.get());
  ASSERT_OK(run.status);
  EXPECT_EQ(cache->bytes(), bytes);
  for (size_t p = 0; p < 1000; ++p) {
    if (p < 4 || p >= 984) EXPECT_TRUE(cache->Holds(0, p)) << p;
  }
  test.attend = RollingMask(1000, 16, 4);
  EXPECT_TRUE(SameBits(run.output, RunCore(test).output));
}

// After a crop the sequence goes on as if the cropped tokens had never been.
TEST_P(CachedAttentionTest, CropAndGoOn) {
  Random random(33);
  AttentionCase test = CausalCase(2, 60, &random);
  for (const size_t window : {0, 7}) {
    const KvCacheConfig config =
        CacheConfig(test, 80, window, window == 0 ? 0 : 3);
    const auto plain = PoisonedCache(config);
    const CachedRun want = RunSteps(test, EqualSteps(60, 10), plain.get());
    ASSERT_OK(want.status);
    const auto cache = PoisonedCache(config);
    ASSERT_OK(cache->Append(RowsOf(test.key.in(), 0, 50),
                            RowsOf(test.value.in(), 0, 50), nullptr));
    // A speculation of 9 tokens, of which none is taken.
    ASSERT_OK(cache->Append(RowsOf(test.key.in(), 20, 29),
                            RowsOf(test.value.in(), 20, 29), nullptr));
    for (size_t b = 0; b < 2; ++b) ASSERT_OK(cache->Crop(b, 50));
    Workspace workspace;
    HeadsTensor output(Layout::kHeadsFirst, 2, 4, 10, 9, 0);
    AttentionOutputs outputs;
    outputs.output = output.out();
    ASSERT_OK(cache->Append(RowsOf(test.key.in(), 50, 60),
                            RowsOf(test.value.in(), 50, 60), nullptr));
    ASSERT_OK(CachedAttention(RowsOf(test.query.in(), 50, 60), *cache,
                              test.Options(), outputs, &workspace));
    for (size_t b = 0; b < 2; ++b) {
      for (size_t h = 0; h < 4; ++h) {
        for (size_t n = 0; n < 10 * 9; ++n) {
          EXPECT_TRUE(SameBits(output.At(b, h, n / 9, n % 9),
                               want.output[((b * 4 + h) * 60 + 50) * 9 + n]));
        }
      }
    }
  }
}

struct ErrorCall {
  explicit ErrorCall(size_t window) : test(MakeCase()) {
    cache = PoisonedCache(CacheConfig(test, 12, window));
    EXPECT_TRUE(cache->Append(test.key.in(), test.value.in(), nullptr).ok());
    output = HeadsTensor(Layout::kHeadsFirst, 2, 4, 7, 9, 0);
    output.SetDense(Floats(2 * 4 * 7 * 9, 42.0f));
    outputs.output = output.out();
  }
  static AttentionCase MakeCase() {
    Random random(40);
    return CausalCase(2, 7, &random);
  }
  Status Call() {
    Workspace workspace;
    const Status status =
        CachedAttention(query.data == nullptr ? test.query.in() : query, *cache,
                        options, outputs, &workspace);
    EXPECT_EQ(output.Dense() == Floats(2 * 4 * 7 * 9, 42.0f), !status.ok());
    EXPECT_EQ(cache->length(0), 7u);
    return status;
  }
  AttentionCase test;
  std::unique_ptr<KvCache> cache;
  HeadsTensor output;
  HeadsView<const float> query;
  AttentionOptions options;
  AttentionOutputs outputs;
};

TEST(CachedAttentionErrorsTest, WhatTheCacheKnowsMustNotBeGiven) {
  const Counts counts = {1, 2};
  const uint8_t mask[14] = {};
  const Floats numbers(2 * 4 * 7 * 9);
  {
    ErrorCall call(0);
    ASSERT_OK(call.Call());
  }
  {
    ErrorCall call(0);
    call.options.key_lengths = counts.data();
    ExpectError(call.Call(), StatusCode::kInvalidArgument,
                {"key_lengths", "cache"});
  }
  {
    ErrorCall call(0);
    call.options.query_offsets = counts.data();
    ExpectError(call.Call(), StatusCode::kInvalidArgument,
                {"query_offsets", "cache"});
  }
  {
    ErrorCall call(0);
    call.options.key_padding_mask = mask;
    ExpectError(call.Call(), StatusCode::kInvalidArgument,
                {"key_padding_mask", "query_lengths"});
  }
  {
    ErrorCall call(0);
    call.options.extra_key =
        HeadsView<const float>::HeadsFirst(numbers.data(), 1, 2, 1, 6);
    call.options.extra_value =
        HeadsView<const float>::HeadsFirst(numbers.data(), 1, 2, 1, 9);
    ExpectError(call.Call(), StatusCode::kInvalidArgument,
                {"extra_key", "append"});
  }
  {
    ErrorCall call(0);
    call.query = call.test.query.in();
    call.query.cols = 5;
    ExpectError(call.Call(), StatusCode::kShapeMismatch, {"5", "6"});
  }
}

TEST(CachedAttentionErrorsTest, WhatARollingCacheCannotHonour) {
  Floats many(2 * 4 * 7 * 7);
  const uint8_t mask[1] = {1};
  const float bias[1] = {0};
  const Counts counts = {1, 2};
  const auto refused = [&](auto change, const std::vector<std::string>& parts) {
    ErrorCall call(5);
    change(&call);
    ExpectError(call.Call(), StatusCode::kInvalidArgument, parts);
  };
  {
    ErrorCall call(5);
    call.options.causal = Causal::kStart;
    call.options.window_left = 4;
    ASSERT_OK(call.Call());
  }
  refused([&](ErrorCall* c) { c->options.attend_mask.data = mask; },
          {"attend_mask", "rolling"});
  refused([&](ErrorCall* c) { c->options.attn_bias.data = bias; },
          {"attn_bias", "rolling"});
  refused(
      [&](ErrorCall* c) {
        c->options.causal = Causal::kStart;
        c->options.prefix_lengths = counts.data();
      },
      {"prefix_lengths"});
  refused(
      [&](ErrorCall* c) {
        c->outputs.weights_kind = WeightsKind::kPerHead;
        c->outputs.weights = many.data();
      },
      {"weights", "rolling"});
  refused(
      [&](ErrorCall* c) {
        c->outputs.scores_kind = ScoresKind::kRaw;
        c->outputs.scores = many.data();
      },
      {"scores", "rolling"});
  refused([&](ErrorCall* c) { c->options.window_left = 5; },
          {"window_left is 5", "window 5", "4"});
}

TEST(CachedAttentionErrorsTest, RollingTakesOneBlockOfQueries) {
  Random random(41);
  const AttentionCase test = CausalCase(1, 65, &random);
  const auto cache = PoisonedCache(CacheConfig(test, 0, 5));
  const CachedRun run = RunSteps(test, {65}, cache.get());
  ExpectError(run.status, StatusCode::kInvalidArgument, {"65", "64"});
}

// Cropped, a rolling cache may not hold the windows of earlier queries.
TEST(CachedAttentionErrorsTest, RollingQueriesWhoseWindowIsGone) {
  Random random(42);
  AttentionCase test = CausalCase(1, 300, &random);
  const auto cache = PoisonedCache(CacheConfig(test, 0, 16, 4));
  ASSERT_OK(cache->Append(test.key.in(), test.value.in(), nullptr));
  size_t oldest = 299;
  while (cache->Holds(0, oldest - 1)) --oldest;
  ASSERT_OK(cache->Crop(0, oldest + 18));
  const auto attend = [&](size_t rows) {
    Workspace workspace;
    Floats output(4 * rows * 9, 42.0f);
    AttentionOutputs outputs;
    outputs.output = HeadsView<float>::HeadsFirst(output.data(), 1, 4, rows, 9);
    const Status status =
        CachedAttention(RowsOf(test.query.in(), 0, rows), *cache,
                        test.Options(), outputs, &workspace);
    EXPECT_EQ(output[0] == 42.0f, !status.ok());
    return status;
  };
  // The query at oldest + 15 sees 16 tokens, from the oldest on.
  ASSERT_OK(attend(3));
  ExpectError(attend(4), StatusCode::kInvalidArgument,
              {"position " + std::to_string(oldest + 14), "token", "dropped"});
}

}  // namespace
}  // namespace headwise
