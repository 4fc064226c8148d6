// Calls that a slip of the hand makes: null pointers, results that overwrite
// themselves, numbers at the end of the range.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "headwise/headwise.h"

namespace headwise {
namespace {

using InHeads = HeadsView<const float>;
using OutHeads = HeadsView<float>;

struct Arrays {
  std::vector<float> in = std::vector<float>(2 * 4 * 3 * 8, 0.5f);
  std::vector<float> out = std::vector<float>(2 * 4 * 3 * 8, 7.0f);
  Workspace workspace;

  InHeads Heads() const { return InHeads::HeadsFirst(in.data(), 2, 4, 3, 8); }
  AttentionOutputs Outputs() {
    AttentionOutputs outputs;
    outputs.output = OutHeads::HeadsFirst(out.data(), 2, 4, 3, 8);
    return outputs;
  }
  bool Untouched() const {
    for (float value : out) {
      if (value != 7.0f) return false;
    }
    return true;
  }
};

std::unique_ptr<MultiHeadAttention> Layer() {
  Config config;
  config.embed_dim = 8;
  config.num_heads = 2;
  std::unique_ptr<MultiHeadAttention> made;
  EXPECT_TRUE(MultiHeadAttention::Create(config, &made).ok());
  return made;
}

void ExpectInvalid(const Status& status, const char* word) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find(word), std::string::npos)
      << status.message();
}

TEST(HostileCalls, NullPointersOfTheFunctionalCore) {
  Arrays a;
  InHeads null = a.Heads();
  null.data = nullptr;
  AttentionOutputs nowhere = a.Outputs();
  nowhere.output.data = nullptr;
  const auto attend = [&](const InHeads& q, const InHeads& k, const InHeads& v,
                          const AttentionOutputs& o, Workspace* w) {
    return ScaledDotProductAttention(q, k, v, {}, o, w);
  };
  const InHeads x = a.Heads();
  ExpectInvalid(attend(null, x, x, a.Outputs(), &a.workspace), "query");
  ExpectInvalid(attend(x, null, x, a.Outputs(), &a.workspace), "key");
  ExpectInvalid(attend(x, x, null, a.Outputs(), &a.workspace), "value");
  ExpectInvalid(attend(x, x, x, nowhere, &a.workspace), "output");
  ExpectInvalid(attend(x, x, x, a.Outputs(), nullptr), "workspace");
  EXPECT_TRUE(a.Untouched());
  EXPECT_TRUE(attend(x, x, x, a.Outputs(), &a.workspace).ok());
  EXPECT_FLOAT_EQ(a.out[0], 0.5f);
}

// Extra keys have columns, even where there is no other key.
TEST(HostileCalls, WeightsOfExtraKeysAloneNeedAPlace) {
  Arrays a;
  const InHeads x = a.Heads();
  const InHeads none = InHeads::HeadsFirst(nullptr, 2, 4, 0, 8);
  AttentionOptions options;
  options.extra_key = options.extra_value =
      InHeads::HeadsFirst(a.in.data(), 1, 4, 2, 8);
  AttentionOutputs outputs = a.Outputs();
  outputs.weights_kind = WeightsKind::kPerHead;
  ExpectInvalid(
      ScaledDotProductAttention(x, none, none, options, outputs, &a.workspace),
      "weights");
  outputs.weights_kind = WeightsKind::kNone;
  outputs.scores_kind = ScoresKind::kRaw;
  ExpectInvalid(
      ScaledDotProductAttention(x, none, none, options, outputs, &a.workspace),
      "scores");
  Config config;
  config.embed_dim = 8;
  config.num_heads = 2;
  config.add_zero_attn = true;
  std::unique_ptr<MultiHeadAttention> mha;
  ASSERT_TRUE(MultiHeadAttention::Create(config, &mha).ok());
  ForwardOutputs layer_outputs;
  layer_outputs.output = {a.out.data(), 2, 3, 8};
  layer_outputs.weights_kind = WeightsKind::kAveraged;
  const TensorView<const float> rows(a.in.data(), 2, 3, 8);
  const TensorView<const float> no_rows(nullptr, 2, 0, 8);
  ExpectInvalid(
      mha->Forward(rows, no_rows, no_rows, {}, layer_outputs, &a.workspace),
      "weights");
  EXPECT_TRUE(a.Untouched());
}

// Half of a pair is no silent nothing.
TEST(HostileCalls, ExtraValuesWithoutKeys) {
  Arrays a;
  AttentionOptions options;
  options.extra_value = InHeads::HeadsFirst(a.in.data(), 1, 4, 2, 8);
  KvCacheConfig config;
  config.batch = 2;
  config.num_kv_heads = 4;
  config.head_dim = 8;
  config.capacity = 3;
  std::unique_ptr<KvCache> cache;
  ASSERT_TRUE(KvCache::Create(config, &cache).ok());
  ExpectInvalid(
      CachedAttention(a.Heads(), *cache, options, a.Outputs(), &a.workspace),
      "extra_key");
  LayerOptions layer_options;
  layer_options.extra_value = options.extra_value;
  ForwardOutputs outputs;
  outputs.output = {a.out.data(), 2, 3, 8};
  const TensorView<const float> x(a.in.data(), 2, 3, 8);
  ExpectInvalid(Layer()->Forward(x, x, x, layer_options, outputs, &a.workspace),
                "extra_key");
  EXPECT_TRUE(a.Untouched());
}

TEST(HostileCalls, PackedSequencesWithoutLengths) {
  Arrays a;
  AttentionOptions options;
  options.packed_sequences = 2;
  ExpectInvalid(ScaledDotProductAttention(a.Heads(), a.Heads(), a.Heads(),
                                          options, a.Outputs(), &a.workspace),
                "packed_sequences is 2");
  EXPECT_TRUE(a.Untouched());
}

TEST(HostileCalls, NullPointersOfMergeAttention) {
  Arrays a;
  const AttentionPart part = {a.in.data(), a.in.data()};
  ExpectInvalid(MergeAttention(&part, 1, 2, 3, nullptr, nullptr), "output");
  EXPECT_TRUE(MergeAttention(&part, 1, 2, 0, nullptr, nullptr).ok());
}

TEST(HostileCalls, NullPointersOfTheLayers) {
  Arrays a;
  Config config;
  config.embed_dim = 8;
  config.num_heads = 2;
  ExpectInvalid(MultiHeadAttention::Create(config, nullptr), "out");
  ExpectInvalid(Linear::Create(3, 4, true, 0, nullptr), "out");
  const auto mha = Layer();
  const TensorView<const float> x(a.in.data(), 2, 3, 8);
  const TensorView<const float> null(nullptr, 2, 3, 8);
  ForwardOutputs outputs;
  outputs.output = {a.out.data(), 2, 3, 8};
  ForwardOutputs nowhere;
  nowhere.output = {nullptr, 2, 3, 8};
  Workspace* w = &a.workspace;
  ExpectInvalid(mha->Forward(null, x, x, {}, outputs, w), "query");
  ExpectInvalid(mha->Forward(x, null, x, {}, outputs, w), "key");
  ExpectInvalid(mha->Forward(x, x, null, {}, outputs, w), "value");
  ExpectInvalid(mha->Forward(x, x, x, {}, nowhere, w), "output");
  ExpectInvalid(mha->Forward(x, x, x, {}, outputs, nullptr), "workspace");
  ExpectInvalid(mha->Reserve(1, 2, 3, nullptr), "workspace");
  std::unique_ptr<Linear> linear;
  ASSERT_TRUE(Linear::Create(8, 8, true, 0, &linear).ok());
  ExpectInvalid(linear->Forward(null, outputs.output, w), "input");
  ExpectInvalid(linear->Forward(x, nowhere.output, w), "output");
  ExpectInvalid(linear->Forward(x, outputs.output, nullptr), "workspace");
  EXPECT_TRUE(a.Untouched());
  EXPECT_TRUE(mha->Forward(x, x, x, {}, outputs, w).ok());
}

TEST(HostileCalls, ResultsThatOverlapThemselves) {
  Arrays a;
  const InHeads x = a.Heads();
  for (size_t OutHeads::*stride :
       {&OutHeads::batch_stride, &OutHeads::head_stride,
        &OutHeads::row_stride}) {
    for (size_t value : {size_t{0}, size_t{7}}) {
      AttentionOutputs outputs = a.Outputs();
      outputs.output.*stride = value;
      ExpectInvalid(
          ScaledDotProductAttention(x, x, x, {}, outputs, &a.workspace),
          "overlap");
    }
  }
  const auto mha = Layer();
  const TensorView<const float> in(a.in.data(), 2, 3, 8);
  for (size_t value : {size_t{0}, size_t{4}}) {
    ForwardOutputs outputs;
    outputs.output = {a.out.data(), 2, 3, 8};
    outputs.output.row_stride = value;
    ExpectInvalid(mha->Forward(in, in, in, {}, outputs, &a.workspace),
                  "overlap");
  }
  EXPECT_TRUE(a.Untouched());
}

TEST(HostileCalls, EveryOrderOfAxesIsApart) {
  // [L, B, H, D] and the like are views as good as [B, H, L, D].
  Arrays a;
  const InHeads x = a.Heads();
  const size_t counts[] = {2, 4, 3};
  const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                            {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    size_t strides[3];
    size_t stride = 8;
    for (int i = 2; i >= 0; --i) {
      strides[order[i]] = stride;
      stride *= counts[order[i]];
    }
    AttentionOutputs outputs = a.Outputs();
    outputs.output.batch_stride = strides[0];
    outputs.output.head_stride = strides[1];
    outputs.output.row_stride = strides[2];
    EXPECT_TRUE(
        ScaledDotProductAttention(x, x, x, {}, outputs, &a.workspace).ok());
  }
}

// scale * q.k where scale * q, or q.k, would overflow on the way.
TEST(HostileCalls, ScoresOverflowOnlyWhenTheyAreTooLarge) {
  struct Case {
    float scale, q, k, score;
  };
  for (const Case& c :
       {Case{1e20f, 1e20f, 0.0f, 0.0f}, Case{1e19f, 1e20f, 1e-38f, 10.0f},
        Case{-1e19f, 1e20f, 1e-38f, -10.0f}, Case{1e-30f, 1e20f, 1e20f, 1e10f},
        Case{1.0f, 3.0f, 2.0f, 6.0f}}) {
    const float q[] = {c.q}, v[] = {2.0f, 4.0f};
    const float k[] = {c.k, 0.0f};
    float out = 0.0f, lse = 0.0f;
    AttentionOptions options;
    options.scale = c.scale;
    AttentionOutputs outputs;
    outputs.output = OutHeads::HeadsFirst(&out, 1, 1, 1, 1);
    outputs.lse = &lse;
    Workspace workspace;
    ASSERT_TRUE(ScaledDotProductAttention(InHeads::HeadsFirst(q, 1, 1, 1, 1),
                                          InHeads::HeadsFirst(k, 1, 1, 2, 1),
                                          InHeads::HeadsFirst(v, 1, 1, 2, 1),
                                          options, outputs, &workspace)
                    .ok());
    const double first = static_cast<double>(c.score);
    const double largest = std::fmax(first, 0.0);
    const double total = std::exp(first - largest) + std::exp(-largest);
    const double want =
        (2.0 * std::exp(first - largest) + 4.0 * std::exp(-largest)) / total;
    EXPECT_NEAR(out, want, 4e-6) << c.scale << ' ' << c.q << ' ' << c.k;
    const double want_lse = largest + std::log(total);
    EXPECT_NEAR(lse, want_lse, 4e-6 * std::fmax(1.0, want_lse));
  }
}

// A chunk only a neighbour sees adds +0 to a row's sum, which turns the -0 that
// a fused multiply-add rounds to into +0: the sign must not tell who else was
// in the tile.
TEST(HostileCalls, SignOfZeroDoesNotDependOnNeighbours) {
  const size_t keys = 257;
  const std::vector<float> q(2, 1.0f);
  std::vector<float> k(keys, -200.0f), v(keys, 0.0f);
  k[0] = 0.0f;
  k[128] = -60.0f * 0.69314718f;
  v[128] = -std::ldexp(1.0f, -120);
  k[256] = -300.0f;
  v[256] = 1.0f;
  const int32_t offset = 255;
  AttentionOptions options;
  options.scale = 1.0f;
  options.causal = Causal::kStart;
  options.query_offsets = &offset;
  Workspace workspace;
  bool sign[2];
  for (size_t rows = 1; rows <= 2; ++rows) {
    float out[2];
    AttentionOutputs outputs;
    outputs.output = OutHeads::HeadsFirst(out, 1, 1, rows, 1);
    ASSERT_TRUE(
        ScaledDotProductAttention(InHeads::HeadsFirst(q.data(), 1, 1, rows, 1),
                                  InHeads::HeadsFirst(k.data(), 1, 1, keys, 1),
                                  InHeads::HeadsFirst(v.data(), 1, 1, keys, 1),
                                  options, outputs, &workspace)
            .ok());
    sign[rows - 1] = std::signbit(out[0]);
  }
  EXPECT_EQ(sign[0], sign[1]);
}

TEST(HostileCalls, WorkspaceSizesSaturate) {
  for (size_t huge : {SIZE_MAX, SIZE_MAX - 3, SIZE_MAX - 100}) {
    EXPECT_EQ(AttentionWorkspaceBytes(8, huge, 64, 0), SIZE_MAX);
    EXPECT_EQ(AttentionWorkspaceBytes(8, 8, 64, huge), SIZE_MAX);
    EXPECT_EQ(AttentionWorkspaceBytes(8, 8, huge, 8), SIZE_MAX);
  }
}

TEST(HostileCalls, NoHeadsIsNoAttention) {
  Arrays a;
  InHeads none = a.Heads();
  none.heads = 0;
  AttentionOutputs outputs = a.Outputs();
  outputs.output.heads = 0;
  EXPECT_EQ(ScaledDotProductAttention(none, a.Heads(), a.Heads(), {}, outputs,
                                      &a.workspace)
                .code(),
            StatusCode::kShapeMismatch);
}

}  // namespace
}  // namespace headwise
