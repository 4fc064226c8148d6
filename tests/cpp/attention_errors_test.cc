// Calls that ScaledDotProductAttention refuses: the code, what the message
// names, and that nothing was written.
#include "attention_case.h"
#include "headwise/workspace.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

// B 2, H 4, Hkv 2, L 3, S 5, D 6, Dv 7.
struct Views {
  Views()
      : query(Layout::kHeadsFirst, 2, 4, 3, 6, 0),
        key(Layout::kHeadsFirst, 2, 2, 5, 6, 0),
        value(Layout::kHeadsFirst, 2, 2, 5, 7, 0),
        output(Layout::kHeadsFirst, 2, 4, 3, 7, 0),
        q(query.in()),
        k(key.in()),
        v(value.in()) {
    Random random(1);
    query.FillUniform(&random, -1, 1);
    key.FillUniform(&random, -1, 1);
    value.FillUniform(&random, -1, 1);
    output.SetDense(Floats(168, 42.0f));
    outputs.output = output.out();
  }

  Status Call() {
    const Status status =
        ScaledDotProductAttention(q, k, v, options, outputs, &workspace);
    EXPECT_EQ(output.Dense() == Floats(168, 42.0f), !status.ok())
        << "written on an error, or not written without one";
    return status;
  }

  HeadsTensor query, key, value, output;
  HeadsView<const float> q, k, v;
  AttentionOptions options;
  AttentionOutputs outputs;
  Workspace workspace;
};

TEST(AttentionErrorsTest, AcceptsWhatFits) {
  Views views;
  ASSERT_OK(views.Call());
}

TEST(AttentionErrorsTest, HeadSizesOfQueryAndKeyDiffer) {
  Views views;
  views.k.cols = 5;
  ExpectError(views.Call(), StatusCode::kShapeMismatch,
              {"query", "key", "6", "5"});
}

TEST(AttentionErrorsTest, KeysAndValuesDifferInNumber) {
  Views views;
  views.v.rows = 4;
  ExpectError(views.Call(), StatusCode::kShapeMismatch, {"5", "4", "value"});
}

TEST(AttentionErrorsTest, BatchSizesDiffer) {
  {
    Views views;
    views.k.batch = 1;
    ExpectError(views.Call(), StatusCode::kShapeMismatch, {"batch", "2", "1"});
  }
  {
    Views views;
    views.v.batch = 1;
    ExpectError(views.Call(), StatusCode::kShapeMismatch, {"batch"});
  }
  {
    Views views;
    views.outputs.output.batch = 1;
    ExpectError(views.Call(), StatusCode::kShapeMismatch, {"batch"});
  }
}

TEST(AttentionErrorsTest, QueryHeadsAreNoMultipleOfKeyHeads) {
  Views views;
  views.q.heads = 3;
  views.outputs.output.heads = 3;
  ExpectError(views.Call(), StatusCode::kShapeMismatch, {"3", "2", "multiple"});
}

TEST(AttentionErrorsTest, NoKeyHeads) {
  Views views;
  views.k.heads = views.v.heads = 0;
  ExpectError(views.Call(), StatusCode::kShapeMismatch, {"heads", "0"});
}

TEST(AttentionErrorsTest, KeyAndValueHeadsDiffer) {
  Views views;
  views.v.heads = 1;
  ExpectError(views.Call(), StatusCode::kShapeMismatch, {"heads", "2", "1"});
}

TEST(AttentionErrorsTest, OutputDoesNotFit) {
  for (size_t HeadsView<float>::*size :
       {&HeadsView<float>::heads, &HeadsView<float>::rows,
        &HeadsView<float>::cols}) {
    Views views;
    views.outputs.output.*size -= 1;
    ExpectError(views.Call(), StatusCode::kShapeMismatch, {"output"});
  }
}

// Any other shape names the ones that are expected (N-21).
TEST(AttentionErrorsTest, MasksThatDoNotBroadcast) {
  const std::vector<uint8_t> mask(500, 1);
  const Floats bias(500, 0.0f);
  const size_t shapes[][4] = {{3, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 5, 1},
                              {1, 1, 1, 3}, {2, 4, 5, 3}, {0, 1, 1, 1},
                              {1, 1, 2, 5}, {1, 1, 1, 4}};
  for (const auto& s : shapes) {
    Views views;
    views.options.attend_mask.data = mask.data();
    views.options.attend_mask.batch = s[0];
    views.options.attend_mask.heads = s[1];
    views.options.attend_mask.rows = s[2];
    views.options.attend_mask.keys = s[3];
    ExpectError(views.Call(), StatusCode::kShapeMismatch,
                {"attend_mask", "batch 2", "heads 4", "queries 3", "keys 5"});
  }
  for (const auto& s : shapes) {
    Views views;
    views.options.attn_bias.data = bias.data();
    views.options.attn_bias.batch = s[0];
    views.options.attn_bias.heads = s[1];
    views.options.attn_bias.rows = s[2];
    views.options.attn_bias.keys = s[3];
    ExpectError(views.Call(), StatusCode::kShapeMismatch,
                {"attn_bias", "batch 2", "heads 4", "queries 3", "keys 5"});
  }
}

TEST(AttentionErrorsTest, LengthsOutOfRange) {
  for (const int32_t wrong : {-1, 6, 1 << 30}) {
    Views views;
    const int32_t lengths[] = {5, wrong};
    views.options.key_lengths = lengths;
    ExpectError(views.Call(), StatusCode::kInvalidArgument,
                {"key_lengths[1]", std::to_string(wrong), "5"});
  }
  for (const int32_t wrong : {-1, 4}) {
    Views views;
    const int32_t lengths[] = {wrong, 3};
    views.options.query_lengths = lengths;
    ExpectError(views.Call(), StatusCode::kInvalidArgument,
                {"query_lengths[0]", std::to_string(wrong), "3"});
  }
}

TEST(AttentionErrorsTest, OffsetsContradictCausalEnd) {
  Views views;
  const int32_t offsets[] = {0, 0};
  views.options.query_offsets = offsets;
  views.options.causal = Causal::kEnd;
  ExpectError(views.Call(), StatusCode::kInvalidArgument,
              {"query_offsets", "kEnd"});
}

TEST(AttentionErrorsTest, ScaleMustBeFinite) {
  for (const float wrong : {kNan, kInf, -kInf}) {
    Views views;
    views.options.scale = wrong;
    ExpectError(views.Call(), StatusCode::kInvalidArgument, {"scale"});
  }
}

TEST(AttentionErrorsTest, EnumsOutOfRange) {
  {
    Views views;
    views.options.causal = static_cast<Causal>(3);
    ExpectError(views.Call(), StatusCode::kInvalidArgument, {"causal"});
  }
  {
    Views views;
    views.options.empty_rows = static_cast<EmptyRows>(-1);
    ExpectError(views.Call(), StatusCode::kInvalidArgument, {"empty_rows"});
  }
  {
    Views views;
    views.outputs.weights_kind = static_cast<WeightsKind>(7);
    ExpectError(views.Call(), StatusCode::kInvalidArgument, {"weights_kind"});
  }
}

TEST(AttentionErrorsTest, WeightsWithoutAPlaceForThem) {
  for (const WeightsKind kind :
       {WeightsKind::kPerHead, WeightsKind::kAveraged}) {
    Views views;
    views.outputs.weights_kind = kind;
    ExpectError(views.Call(), StatusCode::kInvalidArgument, {"weights"});
  }
}

TEST(AttentionErrorsTest, SoftcapMustBePositive) {
  for (const float softcap : {-1.0f, kInf, kNan}) {
    Views views;
    views.options.softcap = softcap;
    ExpectError(views.Call(), StatusCode::kInvalidArgument,
                {"softcap", "positive"});
  }
}

TEST(AttentionErrorsTest, WindowsAndChunks) {
  Views left;
  left.options.window_left = -2;
  ExpectError(left.Call(), StatusCode::kInvalidArgument,
              {"window_left is -2", "-1"});
  Views right;
  right.options.window_right = -7;
  ExpectError(right.Call(), StatusCode::kInvalidArgument,
              {"window_right is -7", "-1"});
  Views chunk;
  chunk.options.attention_chunk = -1;
  ExpectError(chunk.Call(), StatusCode::kInvalidArgument,
              {"attention_chunk is -1", "0"});
}

TEST(AttentionErrorsTest, PrefixesNeedCausalityAndFit) {
  const int32_t lengths[] = {2, 6};
  Views views;
  views.options.prefix_lengths = lengths;
  ExpectError(views.Call(), StatusCode::kInvalidArgument,
              {"prefix_lengths[1] is 6", "0 to 5"});
  const int32_t good[] = {2, 5};
  views.options.prefix_lengths = good;
  ExpectError(views.Call(), StatusCode::kInvalidArgument,
              {"prefix_lengths", "causal is kNone"});
  views.options.causal = Causal::kStart;
  ASSERT_OK(views.Call());
}

TEST(AttentionErrorsTest, ExtraKeysMustFit) {
  const Floats numbers(2 * 2 * 200 * 7);
  using View = HeadsView<const float>;
  const auto refused = [&](const View& key, const View& value,
                           const std::vector<std::string>& parts) {
    Views views;
    views.options.extra_key = key;
    views.options.extra_value = value;
    ExpectError(views.Call(), StatusCode::kShapeMismatch, parts);
  };
  const auto view = [&](size_t batch, size_t heads, size_t rows, size_t cols) {
    return View::HeadsFirst(numbers.data(), batch, heads, rows, cols);
  };
  refused(view(3, 2, 1, 6), view(1, 2, 1, 7), {"extra_key [3, 2, 1, 6]"});
  refused(view(1, 4, 1, 6), view(1, 4, 1, 7), {"extra_key", "[1, 4, 1, 6]"});
  refused(view(1, 2, 1, 5), view(1, 2, 1, 7), {"[1, 2, 1, 5]", "6"});
  refused(view(1, 2, 1, 6), view(1, 2, 1, 6), {"extra_value", "7"});
  refused(view(1, 2, 2, 6), view(1, 2, 1, 7), {"extra_key", "extra_value"});
  refused(view(1, 2, 1, 6), View(), {"extra_value [0, 0, 0, 0]"});
  refused(view(1, 2, 129, 6), view(1, 2, 129, 7), {"129", "128"});
}

TEST(AttentionErrorsTest, ScoresNeedAPlace) {
  Views views;
  views.outputs.scores_kind = ScoresKind::kRaw;
  ExpectError(views.Call(), StatusCode::kInvalidArgument,
              {"scores", "null", "kNone"});
  views.outputs.scores_kind = static_cast<ScoresKind>(4);
  ExpectError(views.Call(), StatusCode::kInvalidArgument, {"scores_kind 4"});
}

}  // namespace
}  // namespace headwise
