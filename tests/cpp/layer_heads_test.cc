// ProjectHeads: the heads as attention sees them, against the float64 oracle
// and against what Forward makes of them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "cache_case.h"
#include "headwise/attention.h"
#include "headwise/multi_head_attention.h"
#include "kernels/kernels.h"
#include "layer_case.h"
#include "layer_projection.h"
#include "memory.h"
#include "product.h"
#include "reference/multi_head_attention.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;
using Positions = std::vector<int32_t>;

HEADWISE_TEST_ALL_TARGETS(LayerHeadsTest);

struct Heads {
  Heads(const Config& c, size_t batch, size_t rows, size_t keys,
        Layout layout = Layout::kHeadsFirst, size_t pad = 0)
      : query(layout, batch, c.num_heads, rows, c.head_dim, pad),
        key(layout, batch, c.num_kv_heads, keys, c.head_dim, pad),
        value(layout, batch, c.num_kv_heads, keys, c.v_head_dim, pad) {
    for (HeadsTensor* x : {&query, &key, &value}) {
      x->SetDense(Floats(x->Dense().size(), 42.0f));
    }
  }
  ProjectedHeads out() { return {query.out(), key.out(), value.out()}; }
  bool Untouched() const {
    for (const HeadsTensor* x : {&query, &key, &value}) {
      for (const float value_in : x->Dense()) {
        if (value_in != 42.0f) return false;
      }
    }
    return true;
  }

  HeadsTensor query, key, value;
};

// With scratch full of NaN.
Status Project(const MultiHeadAttention& layer,
               const TensorView<const float>& query,
               const TensorView<const float>& key,
               const TensorView<const float>& value,
               const LayerOptions& options, Heads* heads) {
  Workspace workspace;
  HEADWISE_RETURN_IF_ERROR(
      layer.Reserve(query.batch, query.rows, key.rows, &workspace));
  if (workspace.bytes() != 0) {
    std::memset(workspace.data(), 0xFF, workspace.bytes());
  }
  const Status status =
      layer.ProjectHeads(query, key, value, options, heads->out(), &workspace);
  EXPECT_TRUE(heads->query.GuardsIntact());
  EXPECT_TRUE(heads->key.GuardsIntact());
  EXPECT_TRUE(heads->value.GuardsIntact());
  return status;
}

// What the oracle has as rows of heads side by side.
void ExpectNear(const HeadsTensor& got, const std::vector<double>& want) {
  const HeadsView<const float> view = got.in();
  std::vector<double> ordered, bounds;
  for (size_t b = 0; b < view.batch; ++b) {
    for (size_t h = 0; h < view.heads; ++h) {
      for (size_t i = 0; i < view.rows; ++i) {
        for (size_t d = 0; d < view.cols; ++d) {
          ordered.push_back(
              want[((b * view.rows + i) * view.heads + h) * view.cols + d]);
          // Sums of some dozen products of numbers around 1, normalised.
          bounds.push_back(1e-4 * (1.0 + std::fabs(ordered.back())));
        }
      }
    }
  }
  EXPECT_TRUE(AllWithin(got.Dense(), ordered, bounds));
}

// Everything that shapes heads, at random, in any memory order.
TEST_P(LayerHeadsTest, AreTheOraclesAndWhatForwardAttendsWith) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(9700 + seed);
    Config config = RandomConfig(&random);
    if (config.head_dim < 2) config.head_dim = 46;
    // The functional core gets the extra keys from elsewhere.
    config.add_bias_kv = config.add_zero_attn = false;
    config = Resolved(config);
    const LayerWeights weights = LayerWeights::Uniform(config, &random);
    const auto layer = MakeLayer(config, weights);
    ASSERT_NE(layer, nullptr);
    const size_t batch = random.Between(2, 3);
    const size_t rows = random.Between(1, 20);
    const size_t keys = random.Between(1, seed % 8 == 0 ? 150 : 20);
    Tensor query(batch, rows, config.embed_dim, 1, 2);
    Tensor key(batch, keys, config.k_dim, 3);
    Tensor value(batch, keys, config.v_dim, 0, 4);
    for (Tensor* x : {&query, &key, &value}) x->FillUniform(&random, -0.5, 0.5);
    AttentionCase masks(batch, config.num_heads, config.num_kv_heads, rows,
                        keys, 1, 1);
    AddRandomMasks(&masks, &random);
    AddRandomPositions(&masks, &random);
    AddRandomScoreOptions(&masks, &random);
    LayerOptions options = Layered(masks.Options());
    QkNorm norm;
    const Floats query_norm = random.Floats(config.head_dim, 0.5f, 1.5f);
    const Floats key_norm = random.Floats(config.head_dim, 0.5f, 1.5f);
    norm.query_weight = query_norm.data();
    if (random.Chance(0.7)) norm.key_weight = key_norm.data();
    norm.epsilon = 1e-2f;
    if (random.Chance(0.5)) options.qk_norm = &norm;
    const RotaryConfig rotary = RandomRotary(config.head_dim, &random);
    const size_t axes = rotary.axes == 0 ? 1 : rotary.axes;
    Positions query_positions, key_positions;
    for (size_t n = 0; n < axes * batch * rows; ++n) {
      query_positions.push_back(random.BetweenSigned(0, 300));
    }
    for (size_t n = 0; n < axes * batch * keys; ++n) {
      key_positions.push_back(random.BetweenSigned(0, 300));
    }
    if (random.Chance(0.7)) {
      options.rotary = &rotary;
      if (random.Chance(0.4)) options.query_positions = query_positions.data();
      if (random.Chance(0.4)) options.key_positions = key_positions.data();
    }

    Heads heads(config, batch, rows, keys,
                random.Pick<Layout>({Layout::kHeadsFirst, Layout::kHeadsLast,
                                     Layout::kRowsFirst}),
                random.Between(0, 3));
    ASSERT_OK(
        Project(*layer, query.in(), key.in(), value.in(), options, &heads));
    const reference::MultiHeadAttentionResult want =
        reference::MultiHeadAttention(config, weights.view(), query.in(),
                                      key.in(), value.in(), options);
    ExpectNear(heads.query, want.query);
    ExpectNear(heads.key, want.key);
    ExpectNear(heads.value, want.value);

    const LayerRun run =
        RunLayer(*layer, query.in(), key.in(), value.in(), options);
    ASSERT_OK(run.status);
    AttentionOptions core = options;
    if (!core.scale.has_value()) core.scale = config.scale;
    HeadsTensor output(Layout::kHeadsFirst, batch, config.num_heads, rows,
                       config.v_head_dim, 0);
    Floats got_weights(run.weights.size());
    Floats lse(run.lse.size());
    AttentionOutputs outputs;
    outputs.output = output.out();
    outputs.weights_kind = WeightsKind::kPerHead;
    outputs.weights = got_weights.data();
    outputs.lse = lse.data();
    Workspace workspace;
    ASSERT_OK(ScaledDotProductAttention(heads.query.in(), heads.key.in(),
                                        heads.value.in(), core, outputs,
                                        &workspace));
    EXPECT_TRUE(SameBits(got_weights, run.weights));
    EXPECT_TRUE(SameBits(lse, run.lse));
    Floats side_by_side;
    for (size_t n = 0; n < batch * rows * config.num_heads; ++n) {
      const size_t row = n / config.num_heads;
      for (size_t d = 0; d < config.v_head_dim; ++d) {
        side_by_side.push_back(
            output.At(row / rows, n % config.num_heads, row % rows, d));
      }
    }
    EXPECT_TRUE(SameBits(side_by_side, run.head_outputs));
    if (HasFailure()) return;
  }
}

struct Small {
  explicit Small(uint64_t seed) : random(seed) {
    config.embed_dim = 14;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 6;
    config.v_head_dim = 5;
    config = Resolved(config);
    weights = LayerWeights::Uniform(config, &random);
    layer = MakeLayer(config, weights);
    options.rotary = &rotary;
    options.causal = Causal::kStart;
  }
  KvCacheConfig Cache(size_t batch, size_t capacity, size_t window = 0) const {
    KvCacheConfig c;
    c.batch = batch;
    c.num_kv_heads = 2;
    c.head_dim = 6;
    c.v_head_dim = 5;
    c.capacity = capacity;
    c.window = window;
    return c;
  }
  Random random;
  Config config;
  LayerWeights weights;
  std::unique_ptr<MultiHeadAttention> layer;
  RotaryConfig rotary;
  LayerOptions options;
};

// Scores need no values, and so no value input.
TEST_P(LayerHeadsTest, ValuesMayBeLeftOut) {
  Small small(1);
  Tensor x(2, 7, 14);
  x.FillUniform(&small.random, -1, 1);
  Heads all(small.config, 2, 7, 7), some(small.config, 2, 7, 7);
  ASSERT_OK(Project(*small.layer, x.in(), x.in(), x.in(), small.options, &all));
  ProjectedHeads outputs = some.out();
  outputs.value = HeadsView<float>();
  Workspace workspace;
  ASSERT_OK(small.layer->ProjectHeads(x.in(), x.in(), {}, small.options,
                                      outputs, &workspace));
  EXPECT_TRUE(SameBits(some.query.Dense(), all.query.Dense()));
  EXPECT_TRUE(SameBits(some.key.Dense(), all.key.Dense()));
  EXPECT_EQ(some.value.Dense(), Floats(2 * 2 * 7 * 5, 42.0f));
}

// Appending the heads by hand is what Forward does with the cache.
TEST_P(LayerHeadsTest, StandBehindWhatACacheHolds) {
  for (const size_t window : {0, 5}) {
    Small small(2);
    Tensor x(2, 9, 14);
    x.FillUniform(&small.random, -1, 1);
    const auto cache =
        PoisonedCache(small.Cache(2, window == 0 ? 9 : 0, window));
    const TensorView<const float> first = RowsOf(x.in(), 0, 6);
    const TensorView<const float> next = RowsOf(x.in(), 6, 9);
    LayerOptions options = small.options;
    options.cache = cache.get();
    Workspace workspace;
    Tensor output(2, 6, 14);
    Floats want(2 * 3 * 4 * 5);
    ForwardOutputs outputs;
    outputs.output = output.out();
    ASSERT_OK(small.layer->Forward(first, first, first, options, outputs,
                                   &workspace));
    std::unique_ptr<KvCache> own;
    ASSERT_OK(cache->Fork(&own));

    Heads heads(small.config, 2, 3, 3, Layout::kHeadsLast);
    ASSERT_OK(Project(*small.layer, next, next, next, options, &heads));
    EXPECT_TRUE(SameHeldTokens(*cache, *own));
    // The last rows of one pass over all of them.
    Heads whole(small.config, 2, 9, 9);
    ASSERT_OK(
        Project(*small.layer, x.in(), x.in(), x.in(), small.options, &whole));
    for (size_t n = 0; n < 2 * 4 * 3 * 6; ++n) {
      const size_t b = n / 72, h = n / 18 % 4, i = n / 6 % 3, d = n % 6;
      EXPECT_EQ(heads.query.At(b, h, i, d), whole.query.At(b, h, 6 + i, d));
      if (h >= 2) continue;
      EXPECT_EQ(heads.key.At(b, h, i, d), whole.key.At(b, h, 6 + i, d));
    }
    ASSERT_OK(own->Append(heads.key.in(), heads.value.in(), nullptr));
    Floats got(2 * 3 * 4 * 5);
    AttentionOutputs core;
    core.output = HeadsView<float>::HeadsLast(got.data(), 2, 4, 3, 5);
    AttentionOptions core_options;
    core_options.causal = Causal::kStart;
    core_options.scale = small.config.scale;
    ASSERT_OK(CachedAttention(heads.query.in(), *own, core_options, core,
                              &workspace));
    outputs.output.rows = 3;
    outputs.head_outputs = want.data();
    ASSERT_OK(
        small.layer->Forward(next, next, next, options, outputs, &workspace));
    EXPECT_TRUE(SameHeldTokens(*cache, *own));
    EXPECT_TRUE(SameBits(got, want));
  }
}

TEST_P(LayerHeadsTest, ZeroLengths) {
  Small small(3);
  const size_t sizes[][3] = {{0, 3, 4}, {2, 0, 4}, {2, 3, 0}, {2, 0, 0}};
  for (const auto& s : sizes) {
    Tensor query(s[0], s[1], 14), key(s[0], s[2], 14);
    query.FillUniform(&small.random, -1, 1);
    key.FillUniform(&small.random, -1, 1);
    Heads heads(small.config, s[0], s[1], s[2]);
    ASSERT_OK(Project(*small.layer, query.in(), key.in(), key.in(),
                      small.options, &heads));
    const reference::MultiHeadAttentionResult want =
        reference::MultiHeadAttention(small.config, small.weights.view(),
                                      query.in(), key.in(), key.in(),
                                      small.options);
    ExpectNear(heads.query, want.query);
    ExpectNear(heads.key, want.key);
    ExpectNear(heads.value, want.value);
  }
}

TEST_P(LayerHeadsTest, ReservedCallsAllocateNothing) {
  Small small(4);
  Tensor x(2, 20, 14);
  x.FillUniform(&small.random, -1, 1);
  Heads heads(small.config, 2, 20, 20);
  Workspace workspace;
  ASSERT_OK(small.layer->Reserve(2, 20, 20, &workspace));
  const size_t count = AllocationCount();
  ASSERT_OK(small.layer->ProjectHeads(x.in(), x.in(), x.in(), small.options,
                                      heads.out(), &workspace));
  EXPECT_EQ(AllocationCount(), count);
}

// One piece of scratch serves every product of a call, whichever has most rows.
TEST_P(LayerHeadsTest, ScratchFitsTheLargestProduct) {
  const Small small(6);
  const Config& c = small.config;
  const size_t depth =
      std::max({c.num_heads * c.v_head_dim, c.embed_dim, c.k_dim, c.v_dim});
  Arena product;
  TakeProductScratch(90, depth, &product);
  for (const bool more_queries : {true, false}) {
    // Only addresses are computed.
    Workspace workspace;
    Arena counter;
    const size_t queries = more_queries ? 90 : 3;
    const size_t keys = more_queries ? 3 : 90;
    TakeProjectionScratch(c, 1, queries, keys, &counter);
    ASSERT_OK(workspace.Reserve(counter.used()));
    Arena arena(workspace.data());
    const ProjectionScratch scratch =
        TakeProjectionScratch(c, 1, queries, keys, &arena);
    const auto* begin = reinterpret_cast<const unsigned char*>(scratch.product);
    const auto* end =
        reinterpret_cast<const unsigned char*>(scratch.positions.offsets);
    EXPECT_GE(static_cast<size_t>(end - begin), product.used());
  }
}

TEST_P(LayerHeadsTest, RefusedCallsWriteNothing) {
  Small small(5);
  Tensor x(2, 6, 14);
  x.FillUniform(&small.random, -1, 1);
  const auto cache = PoisonedCache(small.Cache(2, 8));
  const auto other = PoisonedCache(small.Cache(3, 8));
  const Positions lengths = {1, 2};
  Workspace workspace;
  struct Call {
    TensorView<const float> query, key, value;
    LayerOptions options;
    ProjectedHeads outputs;
    Workspace* workspace;
  };
  const auto refused = [&](auto change, StatusCode code,
                           const std::vector<std::string>& parts) {
    Heads heads(small.config, 2, 6, 6);
    Call call = {x.in(),        x.in(),      x.in(),
                 small.options, heads.out(), &workspace};
    change(&call);
    ExpectError(
        small.layer->ProjectHeads(call.query, call.key, call.value,
                                  call.options, call.outputs, call.workspace),
        code, parts);
    EXPECT_TRUE(heads.Untouched());
    EXPECT_EQ(cache->max_length(), 0u);
  };
  refused([](Call* c) { c->workspace = nullptr; }, StatusCode::kInvalidArgument,
          {"ProjectHeads", "workspace"});
  refused([](Call* c) { c->query.cols = 13; }, StatusCode::kShapeMismatch,
          {"query", "13", "14"});
  refused([](Call* c) { c->key.batch = 1; }, StatusCode::kShapeMismatch,
          {"query [2, 6]", "key [1, 6]"});
  refused([](Call* c) { c->value.rows = 5; }, StatusCode::kShapeMismatch,
          {"key [2, 6]", "value [2, 5]"});
  refused([](Call* c) { c->value.data = nullptr; },
          StatusCode::kInvalidArgument, {"value", "null"});
  refused([](Call* c) { c->outputs.query.heads = 2; },
          StatusCode::kShapeMismatch, {"query heads [2, 2, 6, 6]", "[2, 4"});
  refused([](Call* c) { c->outputs.key.rows = 7; }, StatusCode::kShapeMismatch,
          {"key heads [2, 2, 7, 6]", "[2, 2, 6, 6]"});
  refused([](Call* c) { c->outputs.value.cols = 6; },
          StatusCode::kShapeMismatch, {"value heads", "[2, 2, 6, 5]"});
  refused([](Call* c) { c->outputs.key.data = nullptr; },
          StatusCode::kInvalidArgument, {"key", "null"});
  refused([](Call* c) { c->outputs.key.head_stride = 1; },
          StatusCode::kInvalidArgument, {"rows of key overlap"});
  RotaryConfig odd;
  odd.dim = 5;
  refused([&](Call* c) { c->options.rotary = &odd; },
          StatusCode::kInvalidConfig, {"dim", "5", "even"});
  refused([&](Call* c) { c->options.cache = other.get(); },
          StatusCode::kShapeMismatch, {"[3, 2, .., 6 and 5]", "[2, 2"});
  refused(
      [&](Call* c) {
        c->options.cache = cache.get();
        c->options.query_offsets = lengths.data();
      },
      StatusCode::kInvalidArgument, {"query_offsets", "cache"});
  // A layer packed for this instruction set, used under one of another width.
  const size_t width = kernels::PanelWidth();
  for (const size_t target : AvailableTargets()) {
    ASSERT_TRUE(kernels::UseTestTarget(target));
    if (kernels::PanelWidth() == width) continue;
    refused([](Call*) {}, StatusCode::kInvalidArgument, {"packed"});
  }
  ASSERT_TRUE(kernels::UseTestTarget(GetParam()));
  SetAllocationLimit(16);
  refused([](Call*) {}, StatusCode::kOutOfMemory, {});
  SetAllocationLimit(SIZE_MAX);
}

}  // namespace
}  // namespace headwise
