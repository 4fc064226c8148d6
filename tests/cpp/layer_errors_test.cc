// Calls that a layer refuses: the code, what the message names, and that
// nothing was written.
#include <memory>

#include "headwise/multi_head_attention.h"
#include "headwise/workspace.h"
#include "layer_case.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(LayerErrorsTest);

TEST_P(LayerErrorsTest, RefusesSizesThatDoNotFit) {
  Config config;
  config.embed_dim = 12;
  config.num_heads = 4;
  config.k_dim = 10;
  config.v_dim = 9;
  config.out_dim = 7;
  config = Resolved(config);
  std::unique_ptr<MultiHeadAttention> layer;
  ASSERT_OK(MultiHeadAttention::Create(config, &layer));
  Workspace workspace;
  const auto forward = [&](size_t query_batch, size_t query_rows,
                           size_t query_cols, size_t key_batch, size_t key_rows,
                           size_t key_cols, size_t value_rows,
                           size_t value_cols, size_t out_rows,
                           size_t out_cols) {
    const Tensor query(query_batch, query_rows, query_cols);
    const Tensor key(key_batch, key_rows, key_cols);
    const Tensor value(key_batch, value_rows, value_cols);
    Tensor output(query_batch, out_rows, out_cols);
    output.SetDense(Floats(query_batch * out_rows * out_cols, 42.0f));
    ForwardOutputs outputs;
    outputs.output = output.out();
    const Status status = layer->Forward(query.in(), key.in(), value.in(),
                                         LayerOptions(), outputs, &workspace);
    if (!status.ok()) {
      // Nothing was written.
      EXPECT_EQ(output.Dense(),
                Floats(query_batch * out_rows * out_cols, 42.0f));
    }
    return status;
  };
  EXPECT_TRUE(forward(2, 3, 12, 2, 5, 10, 5, 9, 3, 7).ok());
  ExpectError(forward(2, 3, 11, 2, 5, 10, 5, 9, 3, 7),
              StatusCode::kShapeMismatch, {"query", "11", "12"});
  ExpectError(forward(2, 3, 12, 2, 5, 12, 5, 9, 3, 7),
              StatusCode::kShapeMismatch, {"key", "12", "10"});
  ExpectError(forward(2, 3, 12, 2, 5, 10, 5, 10, 3, 7),
              StatusCode::kShapeMismatch, {"value", "10", "9"});
  ExpectError(forward(2, 3, 12, 2, 5, 10, 5, 9, 3, 12),
              StatusCode::kShapeMismatch, {"output", "12", "7"});
  ExpectError(forward(2, 3, 12, 1, 5, 10, 5, 9, 3, 7),
              StatusCode::kShapeMismatch, {"batch"});
  ExpectError(forward(2, 3, 12, 2, 5, 10, 4, 9, 3, 7),
              StatusCode::kShapeMismatch, {"key", "value", "5", "4"});
  ExpectError(forward(2, 3, 12, 2, 5, 10, 5, 9, 4, 7),
              StatusCode::kShapeMismatch, {"output", "4", "3"});
  // And the layer works on.
  EXPECT_TRUE(forward(2, 3, 12, 2, 5, 10, 5, 9, 3, 7).ok());
}

// The options are checked as those of the functional core, before anything is
// written: attention_errors_test.cc has all of them.
TEST_P(LayerErrorsTest, RefusesOptionsBeforeWriting) {
  Config config;
  config.embed_dim = 8;
  config.num_heads = 4;
  std::unique_ptr<MultiHeadAttention> layer;
  ASSERT_OK(MultiHeadAttention::Create(config, &layer));
  Tensor x(2, 3, 8);
  x.SetDense(Floats(48, 1.0f));
  Tensor output(2, 3, 8);
  output.SetDense(Floats(48, 42.0f));
  ForwardOutputs outputs;
  outputs.output = output.out();
  Workspace workspace;
  const int32_t lengths[] = {3, 4};
  LayerOptions options;
  options.key_lengths = lengths;
  ExpectError(
      layer->Forward(x.in(), x.in(), x.in(), options, outputs, &workspace),
      StatusCode::kInvalidArgument, {"key_lengths[1]", "4", "3"});
  // Positions without rotary would be ignored.
  const int32_t positions[] = {0, 1, 2, 0, 1, 2};
  LayerOptions of_queries;
  of_queries.query_positions = positions;
  LayerOptions of_keys;
  of_keys.key_positions = positions;
  for (const LayerOptions& given : {of_queries, of_keys}) {
    ExpectError(
        layer->Forward(x.in(), x.in(), x.in(), given, outputs, &workspace),
        StatusCode::kInvalidArgument, {"positions", "rotary"});
    HeadsTensor heads(Layout::kHeadsFirst, 2, 4, 3, 2, 0);
    HeadsTensor keys = heads;
    ProjectedHeads projected;
    projected.query = heads.out();
    projected.key = keys.out();
    ExpectError(layer->ProjectHeads(x.in(), x.in(), x.in(), given, projected,
                                    &workspace),
                StatusCode::kInvalidArgument, {"positions", "rotary"});
  }
  outputs.weights_kind = WeightsKind::kPerHead;
  ExpectError(layer->Forward(x.in(), x.in(), x.in(), LayerOptions(), outputs,
                             &workspace),
              StatusCode::kInvalidArgument, {"weights"});
  EXPECT_EQ(output.Dense(), Floats(48, 42.0f));
}

}  // namespace
}  // namespace headwise
