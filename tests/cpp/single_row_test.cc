// A single row has kernels of its own, which take several panels at once: the
// same bits as among others, at every width around whole groups of panels.
#include <memory>
#include <vector>

#include "attention_case.h"
#include "headwise/linear.h"
#include "headwise/workspace.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(SingleRowTest);

constexpr size_t kWidths[] = {1,  7,  31,  32,  33,  63,  64,
                              65, 96, 127, 128, 129, 160, 257};

TEST_P(SingleRowTest, OfALinearLayer) {
  Random random(1);
  for (const size_t out : kWidths) {
    // Deeper than a block of the depth, too.
    for (const size_t in : {5, 769}) {
      std::unique_ptr<Linear> linear;
      ASSERT_OK(Linear::Create(in, out, true, 3, &linear));
      const Floats weight = random.Floats(in * out);
      const Floats bias = random.Floats(out);
      ASSERT_OK(linear->SetWeights({weight.data(), bias.data()}));
      Tensor x(1, 3, in, 1);
      x.FillUniform(&random, -1, 1);
      Tensor all(1, 3, out, 2), one(1, 1, out, 2);
      Workspace workspace;
      ASSERT_OK(linear->Forward(x.in(), all.out(), &workspace));
      for (size_t row = 0; row < 3; ++row) {
        TensorView<const float> own = x.in();
        own.data = x.in().Row(0, row);
        own.rows = 1;
        ASSERT_OK(linear->Forward(own, one.out(), &workspace));
        for (size_t j = 0; j < out; ++j) {
          ASSERT_TRUE(SameBits(one.At(0, 0, j), all.At(0, row, j)))
              << in << " to " << out << ", row " << row << ", " << j;
        }
        EXPECT_TRUE(one.GuardsIntact());
      }
    }
  }
}

TEST_P(SingleRowTest, OfAttention) {
  Random random(2);
  for (const size_t v_head_dim : kWidths) {
    for (const size_t keys : {3, 130, 257}) {
      AttentionCase test(1, 4, 2, 3, keys, 9, v_head_dim);
      test.Fill(&random);
      test.window_left = 200;
      test.query_offsets = {static_cast<int32_t>(keys)};
      const AttentionRun all = RunAndCompare(test);
      for (size_t row = 0; row < 3; ++row) {
        AttentionCase one(1, 4, 2, 1, keys, 9, v_head_dim);
        for (size_t h = 0; h < 4; ++h) {
          for (size_t d = 0; d < 9; ++d) {
            one.query.At(0, h, 0, d) = test.query.At(0, h, row, d);
          }
        }
        one.key = test.key;
        one.value = test.value;
        one.window_left = 200;
        one.query_offsets = {static_cast<int32_t>(keys + row)};
        const AttentionRun run = RunCore(one);
        ASSERT_OK(run.status);
        Floats expected;
        for (size_t h = 0; h < 4; ++h) {
          const auto from = all.output.begin() +
                            static_cast<ptrdiff_t>((h * 3 + row) * v_head_dim);
          expected.insert(expected.end(), from,
                          from + static_cast<ptrdiff_t>(v_head_dim));
        }
        ASSERT_TRUE(SameBits(run.output, expected))
            << "Dv " << v_head_dim << ", S " << keys << ", row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace headwise
