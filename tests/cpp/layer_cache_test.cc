// A layer that appends to a key/value cache: any steps equal one pass.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "cache_case.h"
#include "headwise/kv_cache.h"
#include "layer_case.h"
#include "memory.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;
using Counts = std::vector<int32_t>;

HEADWISE_TEST_ALL_TARGETS(LayerCacheTest);

struct Decoder {
  explicit Decoder(uint64_t seed) : random(seed) {
    config.embed_dim = 14;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 6;
    config.v_head_dim = 5;
    config.out_dim = 9;
    config = Resolved(config);
    weights = LayerWeights::Uniform(config, &random);
    layer = MakeLayer(config, weights);
    query_norm = random.Floats(6, 0.5f, 1.5f);
    norm.query_weight = query_norm.data();
    rotary.interleaved = true;
    options.rotary = &rotary;
    options.qk_norm = &norm;
    options.causal = Causal::kStart;
  }
  KvCacheConfig Cache(size_t batch, size_t capacity, size_t window = 0,
                      size_t sinks = 0,
                      CacheType type = CacheType::kFloat32) const {
    KvCacheConfig c;
    c.batch = batch;
    c.num_kv_heads = 2;
    c.head_dim = 6;
    c.v_head_dim = 5;
    c.capacity = capacity;
    c.window = window;
    c.sink_tokens = sinks;
    c.type = type;
    return c;
  }
  // One call over rows [begin, end) of x; its output goes to those rows.
  Status Step(const Tensor& x, size_t begin, size_t end, KvCache* cache,
              Tensor* output, const int32_t* counts = nullptr) {
    ForwardOutputs outputs;
    outputs.output = output->out();
    outputs.output.data += begin * outputs.output.row_stride;
    outputs.output.rows = end - begin;
    LayerOptions own = options;
    own.cache = cache;
    own.query_lengths = counts;
    if (workspace.bytes() != 0) {
      std::memset(workspace.data(), 0xFF, workspace.bytes());  // NaN
    }
    const TensorView<const float> rows = RowsOf(x.in(), begin, end);
    return layer->Forward(rows, rows, rows, own, outputs, &workspace);
  }
  Floats InSteps(const Tensor& x, const std::vector<size_t>& steps,
                 KvCache* cache) {
    const TensorView<const float> in = x.in();
    Tensor output(in.batch, in.rows, 9, 2, 3);
    size_t row = 0;
    for (const size_t step : steps) {
      const Status status = Step(x, row, row + step, cache, &output);
      EXPECT_TRUE(status.ok()) << status.message();
      row += step;
    }
    EXPECT_TRUE(output.GuardsIntact());
    return output.Dense();
  }

  Random random;
  Config config;
  LayerWeights weights;
  std::unique_ptr<MultiHeadAttention> layer;
  Floats query_norm;
  QkNorm norm;
  RotaryConfig rotary;
  LayerOptions options;
  Workspace workspace;
};

TEST_P(LayerCacheTest, K01AnyStepsEqualOnePassToTheBit) {
  Decoder decoder(1);
  for (const size_t batch : {1, 3}) {
    for (const size_t length : {7, 70, 200}) {
      Tensor x(batch, length, 14);
      x.FillUniform(&decoder.random, -1, 1);
      const LayerRun whole =
          RunLayer(*decoder.layer, x.in(), x.in(), x.in(), decoder.options);
      ASSERT_OK(whole.status);
      ExpectMatchesOracle(decoder.config, decoder.weights, x.in(), x.in(),
                          x.in(), decoder.options);
      for (const size_t step :
           {size_t{1}, size_t{2}, size_t{7}, size_t{64}, length}) {
        const auto cache = PoisonedCache(decoder.Cache(batch, length + 1));
        EXPECT_TRUE(
            SameBits(decoder.InSteps(x, EqualSteps(length, step), cache.get()),
                     whole.output))
            << "batch " << batch << ", " << length << " in steps of " << step;
        EXPECT_EQ(cache->max_length(), length);
      }
    }
  }
}

TEST_P(LayerCacheTest, K08RollingInAnySteps) {
  Decoder decoder(2);
  for (const size_t window : {5, 16}) {
    for (const size_t length : {1, 4, 5, 6, 17, 40, 260}) {
      Tensor x(2, length, 14);
      x.FillUniform(&decoder.random, -1, 1);
      const KvCacheConfig config = decoder.Cache(2, 0, window, 3);
      LayerOptions masked = decoder.options;
      const MaskData<uint8_t> mask = RollingMask(length, window, 3);
      masked.attend_mask = mask.view();
      const LayerRun want =
          RunLayer(*decoder.layer, x.in(), x.in(), x.in(), masked);
      ASSERT_OK(want.status);
      std::unique_ptr<KvCache> first;
      for (size_t n = 0; n < 4; ++n) {
        // A prompt longer than the ring in one call, too.
        auto cache = PoisonedCache(config);
        const std::vector<size_t> steps =
            n == 0 ? std::vector<size_t>{length}
            : n == 1
                ? EqualSteps(length, 1)
                : RandomSteps(length, n == 2 ? 10 : length, &decoder.random);
        EXPECT_TRUE(
            SameBits(decoder.InSteps(x, steps, cache.get()), want.output))
            << "window " << window << ", " << length << " tokens";
        if (first == nullptr) {
          first = std::move(cache);
        } else {
          EXPECT_TRUE(SameHeldTokens(*cache, *first));
        }
      }
    }
  }
}

// Without causality the rows of a call see each other, and what a rolling
// cache keeps before them.
TEST_P(LayerCacheTest, RollingRowsThatSeeWhatFollows) {
  Decoder decoder(9);
  for (const int32_t right : {-1, 0, 3}) {
    for (const size_t step : {1, 7, 64}) {
      const size_t length = 75, window = 5, sinks = 2;
      Tensor x(2, length, 14);
      x.FillUniform(&decoder.random, -1, 1);
      decoder.options.causal = Causal::kNone;
      decoder.options.window_right = right;
      const auto cache = PoisonedCache(decoder.Cache(2, 0, window, sinks));
      const Floats got =
          decoder.InSteps(x, EqualSteps(length, step), cache.get());
      MaskData<uint8_t> mask;
      mask.rows = mask.keys = length;
      for (size_t i = 0; i < length; ++i) {
        const size_t appended = std::min(length, (i / step + 1) * step);
        const size_t end =
            right < 0 ? appended
                      : std::min(appended, i + static_cast<size_t>(right) + 1);
        for (size_t j = 0; j < length; ++j) {
          mask.data.push_back(j < end && (j < sinks || j + window > i));
        }
      }
      LayerOptions masked = decoder.options;
      masked.window_right = -1;
      masked.attend_mask = mask.view();
      ExpectMatchesOracle(decoder.config, decoder.weights, x.in(), x.in(),
                          x.in(), masked);
      const LayerRun want =
          RunLayer(*decoder.layer, x.in(), x.in(), x.in(), masked);
      ASSERT_OK(want.status);
      EXPECT_TRUE(SameBits(got, want.output))
          << "right " << right << ", steps of " << step;
    }
  }
}

// A long call is taken in blocks: what later blocks bring cannot be seen.
TEST_P(LayerCacheTest, RollingRefusesManyRowsThatSeeWhatFollows) {
  Decoder decoder(10);
  Tensor x(2, 65, 14), output(2, 65, 9);
  x.FillUniform(&decoder.random, -1, 1);
  const auto cache = PoisonedCache(decoder.Cache(2, 0, 5));
  decoder.options.causal = Causal::kNone;
  ExpectError(decoder.Step(x, 0, 65, cache.get(), &output),
              StatusCode::kInvalidArgument, {"65 rows", "64", "kStart"});
  EXPECT_EQ(cache->max_length(), 0u);
  ASSERT_OK(decoder.Step(x, 0, 64, cache.get(), &output));
  cache->Clear();
  // Nothing follows that would be seen.
  decoder.options.window_right = 0;
  ASSERT_OK(decoder.Step(x, 0, 65, cache.get(), &output));
  const Floats sees_nothing = output.Dense();
  cache->Clear();
  decoder.options.window_right = -1;
  decoder.options.causal = Causal::kStart;
  ASSERT_OK(decoder.Step(x, 0, 65, cache.get(), &output));
  EXPECT_TRUE(SameBits(output.Dense(), sees_nothing));
  // A cache that drops nothing takes all rows at once.
  decoder.options.causal = Causal::kNone;
  const auto whole = PoisonedCache(decoder.Cache(2, 65));
  ASSERT_OK(decoder.Step(x, 0, 65, whole.get(), &output));
}

// Entries take different numbers of tokens per call, by query_lengths; what
// stands behind them is NaN.
TEST_P(LayerCacheTest, RaggedBatchEqualsEachEntryAlone) {
  for (const size_t window : {0, 6}) {
    Decoder decoder(3);
    const KvCacheConfig config = decoder.Cache(3, window == 0 ? 40 : 0, window);
    const auto cache = PoisonedCache(config);
    std::vector<Floats> sequence(3), got(3);
    for (const Counts& counts :
         {Counts{5, 2, 0}, Counts{1, 1, 1}, Counts{0, 9, 3}}) {
      const size_t rows = 9;
      Tensor x(3, rows, 14);
      x.SetDense(Floats(3 * rows * 14, kNan));
      for (size_t b = 0; b < 3; ++b) {
        for (size_t i = 0; i < static_cast<size_t>(counts[b]); ++i) {
          for (size_t d = 0; d < 14; ++d) {
            x.At(b, i, d) = decoder.random.Uniform(-1, 1);
            sequence[b].push_back(x.At(b, i, d));
          }
        }
      }
      Tensor output(3, rows, 9);
      ASSERT_OK(decoder.Step(x, 0, rows, cache.get(), &output, counts.data()));
      for (size_t b = 0; b < 3; ++b) {
        for (size_t i = 0; i < static_cast<size_t>(counts[b]); ++i) {
          for (size_t d = 0; d < 9; ++d) got[b].push_back(output.At(b, i, d));
        }
      }
    }
    for (size_t b = 0; b < 3; ++b) {
      const size_t length = sequence[b].size() / 14;
      EXPECT_EQ(cache->length(b), length);
      Tensor x(1, length, 14);
      x.SetDense(sequence[b]);
      KvCacheConfig alone = config;
      alone.batch = 1;
      const auto own = PoisonedCache(alone);
      EXPECT_TRUE(SameBits(decoder.InSteps(x, {length}, own.get()), got[b]))
          << "entry " << b;
    }
  }
}

// Small types lose precision, and nothing else.
TEST_P(LayerCacheTest, SmallTypesAreClose) {
  Decoder decoder(4);
  Tensor x(2, 30, 14);
  x.FillUniform(&decoder.random, -1, 1);
  const auto exact = PoisonedCache(decoder.Cache(2, 30));
  const Floats want = decoder.InSteps(x, EqualSteps(30, 7), exact.get());
  const struct {
    CacheType type;
    float error;
  } kCases[] = {{CacheType::kFloat16, 0.01f},
                {CacheType::kBFloat16, 0.1f},
                {CacheType::kInt8, 0.1f}};
  for (const auto& c : kCases) {
    const auto cache = PoisonedCache(decoder.Cache(2, 30, 0, 0, c.type));
    const Floats got = decoder.InSteps(x, EqualSteps(30, 7), cache.get());
    const auto again = PoisonedCache(decoder.Cache(2, 30, 0, 0, c.type));
    EXPECT_TRUE(
        SameBits(decoder.InSteps(x, EqualSteps(30, 1), again.get()), got));
    for (size_t n = 0; n < got.size(); ++n) {
      EXPECT_NEAR(got[n], want[n], c.error);
    }
    EXPECT_FALSE(SameBits(got, want));
  }
}

// Beam search: a fork goes its own way, and so does a reordered batch.
TEST_P(LayerCacheTest, ForkAndReorderGoOn) {
  Decoder decoder(5);
  Tensor x(2, 12, 14);
  x.FillUniform(&decoder.random, -1, 1);
  const auto cache = PoisonedCache(decoder.Cache(2, 12));
  Tensor output(2, 12, 9);
  ASSERT_OK(decoder.Step(x, 0, 10, cache.get(), &output));
  std::unique_ptr<KvCache> fork;
  ASSERT_OK(cache->Fork(&fork));
  ASSERT_OK(decoder.Step(x, 10, 12, cache.get(), &output));
  Tensor swapped(2, 12, 14);
  for (size_t i = 0; i < 12; ++i) {
    for (size_t d = 0; d < 14; ++d) {
      swapped.At(0, i, d) = x.At(1, i, d);
      swapped.At(1, i, d) = x.At(0, i, d);
    }
  }
  const Counts source = {1, 0};
  ASSERT_OK(fork->Reorder(source.data()));
  Tensor other(2, 12, 9);
  ASSERT_OK(decoder.Step(swapped, 10, 12, fork.get(), &other));
  for (size_t i = 10; i < 12; ++i) {
    for (size_t d = 0; d < 9; ++d) {
      EXPECT_EQ(other.At(0, i, d), output.At(1, i, d));
      EXPECT_EQ(other.At(1, i, d), output.At(0, i, d));
    }
  }
}

// Nothing is allocated by a step once the workspace is reserved.
TEST_P(LayerCacheTest, ReservedStepsAllocateNothing) {
  Decoder decoder(6);
  Tensor x(2, 20, 14);
  x.FillUniform(&decoder.random, -1, 1);
  Tensor output(2, 20, 9);
  for (const size_t window : {0, 5}) {
    const auto cache =
        PoisonedCache(decoder.Cache(2, window == 0 ? 20 : 0, window));
    ASSERT_OK(decoder.Step(x, 0, 19, cache.get(), &output));
    ASSERT_OK(decoder.layer->Reserve(2, 1, 1, &decoder.workspace, cache.get()));
    const size_t count = AllocationCount();
    ASSERT_OK(decoder.Step(x, 19, 20, cache.get(), &output));
    EXPECT_EQ(AllocationCount(), count);
  }
}

TEST_P(LayerCacheTest, RefusedCallsAppendNothing) {
  Decoder decoder(7);
  Tensor x(2, 6, 14);
  x.FillUniform(&decoder.random, -1, 1);
  const auto cache = PoisonedCache(decoder.Cache(2, 8));
  Tensor output(2, 6, 9);
  ASSERT_OK(decoder.Step(x, 0, 5, cache.get(), &output));
  const Floats before = output.Dense();
  std::unique_ptr<KvCache> held;
  ASSERT_OK(cache->Fork(&held));
  const auto refused = [&](auto change, StatusCode code,
                           const std::vector<std::string>& parts) {
    LayerOptions options = decoder.options;
    options.cache = cache.get();
    ForwardOutputs outputs;
    outputs.output = output.out();
    TensorView<const float> query = x.in();
    TensorView<const float> key = x.in();
    change(&options, &outputs, &query, &key);
    const size_t lengths[] = {options.cache->length(0),
                              options.cache->max_length()};
    ExpectError(decoder.layer->Forward(query, key, key, options, outputs,
                                       &decoder.workspace),
                code, parts);
    EXPECT_TRUE(SameHeldTokens(*cache, *held));
    EXPECT_EQ(options.cache->length(0), lengths[0]);
    EXPECT_EQ(options.cache->max_length(), lengths[1]);
    EXPECT_TRUE(SameBits(output.Dense(), before));
  };
  using Options = LayerOptions*;
  using Outputs = ForwardOutputs*;
  using View = TensorView<const float>*;
  // K-10: 6 more than 5 of 8.
  refused([&](Options, Outputs, View, View) {}, StatusCode::kInvalidArgument,
          {"5 tokens of 8", "6 more", "capacity"});
  const Counts counts = {3, 4};
  refused(
      [&](Options o, Outputs, View, View) { o->query_lengths = counts.data(); },
      StatusCode::kInvalidArgument, {"entry 1", "4 more"});
  const Counts too_many = {1, 7};
  refused([&](Options o, Outputs, View,
              View) { o->query_lengths = too_many.data(); },
          StatusCode::kInvalidArgument, {"counts[1] is 7", "0 to 6"});
  const Counts few = {1, 2};
  refused(
      [&](Options o, Outputs, View, View) {
        o->query_lengths = few.data();
        o->key_lengths = few.data();
      },
      StatusCode::kInvalidArgument, {"key_lengths", "cache"});
  refused(
      [&](Options o, Outputs, View, View) {
        o->query_lengths = few.data();
        o->query_offsets = few.data();
      },
      StatusCode::kInvalidArgument, {"query_offsets", "cache"});
  refused([&](Options, Outputs, View, View k) { k->rows = 5; },
          StatusCode::kShapeMismatch, {"6 queries", "5 keys"});
  refused(
      [&](Options o, Outputs, View, View) {
        o->query_lengths = few.data();
        o->softcap = -1;
      },
      StatusCode::kInvalidArgument, {"softcap"});
  refused(
      [&](Options o, Outputs out, View, View) {
        o->query_lengths = few.data();
        out->weights_kind = WeightsKind::kPerHead;
      },
      StatusCode::kInvalidArgument, {"weights", "null"});
  RotaryConfig odd;
  odd.dim = 5;
  refused(
      [&](Options o, Outputs, View, View) {
        o->query_lengths = few.data();
        o->rotary = &odd;
      },
      StatusCode::kInvalidConfig, {"dim", "5", "even"});
  const auto other = PoisonedCache(decoder.Cache(3, 8));
  refused([&](Options o, Outputs, View, View) { o->cache = other.get(); },
          StatusCode::kShapeMismatch, {"[3, 2, .., 6 and 5]", "[2, 2"});
  const auto rolling = PoisonedCache(decoder.Cache(2, 0, 4));
  refused(
      [&](Options o, Outputs, View, View) {
        o->cache = rolling.get();
        o->window_left = 4;
      },
      StatusCode::kInvalidArgument, {"window_left is 4", "window 4"});
  // No memory: the workspace is asked for before anything is appended.
  decoder.workspace.Release();
  SetAllocationLimit(16);
  refused(
      [&](Options o, Outputs, View, View) { o->query_lengths = few.data(); },
      StatusCode::kOutOfMemory, {});
  SetAllocationLimit(SIZE_MAX);

  Config extra = decoder.config;
  extra.add_zero_attn = true;
  decoder.layer = MakeLayer(extra, decoder.weights);
  refused(
      [&](Options o, Outputs, View, View) { o->query_lengths = few.data(); },
      StatusCode::kInvalidArgument, {"add_zero_attn", "cache"});
}

// M-15: 20 generations one after the other: no memory is asked for after the
// first, and the cache stays as large as it was.
TEST_P(LayerCacheTest, M15GenerationsReuseTheirMemory) {
  Decoder decoder(8);
  Tensor x(1, 25, 14);
  x.FillUniform(&decoder.random, -1, 1);
  Tensor output(1, 25, 9);
  const auto cache = PoisonedCache(decoder.Cache(1, 25));
  const auto generate = [&] {
    for (size_t row = 0; row < 25; ++row) {
      ASSERT_OK(decoder.Step(x, row, row + 1, cache.get(), &output));
    }
    cache->Clear();
  };
  generate();
  const Floats first = output.Dense();
  const size_t bytes = cache->bytes() + decoder.workspace.bytes();
  const size_t count = AllocationCount();
  for (size_t n = 1; n < 20; ++n) generate();
  EXPECT_TRUE(SameBits(output.Dense(), first));
  EXPECT_EQ(AllocationCount(), count);
  EXPECT_EQ(cache->bytes() + decoder.workspace.bytes(), bytes);
}

}  // namespace
}  // namespace headwise
