// Linear: y = x W^T + b.
#include "headwise/linear.h"

#include <cmath>
#include <cstring>
#include <memory>

#include "headwise/workspace.h"
#include "kernels/kernels.h"
#include "reference/linear.h"
#include "test_util.h"
#include "tolerance.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(LinearTest);

std::unique_ptr<Linear> MakeLinear(const Floats& weight, const Floats& bias,
                                   size_t in, size_t out) {
  std::unique_ptr<Linear> linear;
  const Status status = Linear::FromWeights(
      {weight.data(), bias.empty() ? nullptr : bias.data()}, in, out, &linear);
  EXPECT_TRUE(status.ok()) << status.message();
  return linear;
}

Floats Forward(const Linear& linear, const Tensor& input, Tensor* output) {
  Workspace workspace;
  Status status = workspace.Reserve(
      linear.WorkspaceBytes(input.in().batch * input.in().rows));
  EXPECT_TRUE(status.ok()) << status.message();
  if (workspace.bytes() != 0) {
    std::memset(workspace.data(), 0xFF, workspace.bytes());  // NaN
  }
  status = linear.Forward(input.in(), output->out(), &workspace);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(output->GuardsIntact()) << "written outside the output";
  return output->Dense();
}

Floats Integers(size_t count, Random* random) {
  Floats values(count);
  for (float& value : values) {
    value = static_cast<float>(random->BetweenSigned(-8, 8));
  }
  return values;
}

// Small integers: every product and sum is exact in a float, so each result
// must equal integer arithmetic to the bit.
void ExpectExact(size_t batch, size_t rows, size_t in, size_t out, bool bias,
                 size_t row_pad, size_t batch_pad, Random* random) {
  SCOPED_TRACE(testing::Message()
               << "batch " << batch << ", rows " << rows << ", in " << in
               << ", out " << out << ", bias " << bias << ", row pad "
               << row_pad << ", batch pad " << batch_pad);
  const Floats weight = Integers(in * out, random);
  const Floats offset = Integers(bias ? out : 0, random);
  const auto linear = MakeLinear(weight, offset, in, out);
  ASSERT_NE(linear, nullptr);
  Tensor input(batch, rows, in, row_pad, batch_pad);
  input.SetDense(Integers(batch * rows * in, random));
  Tensor output(batch, rows, out, row_pad, batch_pad);
  Floats expected;
  for (size_t b = 0; b < batch; ++b) {
    for (size_t i = 0; i < rows; ++i) {
      for (size_t o = 0; o < out; ++o) {
        int64_t sum = bias ? static_cast<int64_t>(offset[o]) : 0;
        for (size_t k = 0; k < in; ++k) {
          sum += static_cast<int64_t>(input.At(b, i, k)) *
                 static_cast<int64_t>(weight[o * in + k]);
        }
        expected.push_back(static_cast<float>(sum));
      }
    }
  }
  EXPECT_EQ(Forward(*linear, input, &output), expected);
}

TEST_P(LinearTest, ExactOnIntegersInEverySmallSize) {
  Random random(1);
  for (size_t in = 1; in <= 20; ++in) {
    for (size_t out = 1; out <= 40; ++out) {
      for (size_t rows = 0; rows <= 9; ++rows) {
        ExpectExact(1, rows, in, out, (in + out + rows) % 2 == 0, 0, 0,
                    &random);
      }
    }
    if (HasFailure()) return;
  }
}

TEST_P(LinearTest, ExactOnIntegersAcrossBlocks) {
  Random random(2);
  for (const size_t in : {63, 64, 767, 768, 769, 1535, 1537, 2305}) {
    ExpectExact(1, 5, in, 37, true, 0, 0, &random);
    ExpectExact(2, 3, in, 9, false, 2, 3, &random);
  }
  for (const size_t rows : {126, 127, 128, 129, 131, 257}) {
    ExpectExact(1, rows, 6, 11, true, 0, 0, &random);
    ExpectExact(3, rows, 5, 7, false, 0, 0, &random);
    ExpectExact(3, rows, 5, 7, true, 0, 4, &random);
  }
  ExpectExact(1, 3, 7, 1000, true, 0, 0, &random);
}

TEST_P(LinearTest, ExactOnIntegersWithStrides) {
  Random random(3);
  for (size_t n = 0; n < 60; ++n) {
    ExpectExact(random.Between(1, 4), random.Between(0, 9),
                random.Between(1, 30), random.Between(1, 40),
                random.Chance(0.5), random.Between(0, 5), random.Between(0, 7),
                &random);
  }
  ExpectExact(0, 3, 4, 5, true, 0, 0, &random);
  ExpectExact(3, 0, 4, 5, true, 1, 2, &random);
}

TEST_P(LinearTest, RealNumbersAgainstTheOracle) {
  Random random(4);
  for (size_t n = 0; n < 40; ++n) {
    const size_t in =
        n < 30 ? random.Between(1, 100) : random.Between(700, 1700);
    const size_t out = random.Between(1, 70);
    const Floats weight = random.Floats(in * out);
    const Floats bias = random.Floats(random.Chance(0.5) ? out : 0);
    const auto linear = MakeLinear(weight, bias, in, out);
    ASSERT_NE(linear, nullptr);
    Tensor input(2, 7, in, 1, 2);
    input.FillUniform(&random, -1, 1);
    Tensor output(2, 7, out, 2, 1);
    const LinearWeights weights = {weight.data(),
                                   bias.empty() ? nullptr : bias.data()};
    EXPECT_TRUE(AllWithin(Forward(*linear, input, &output),
                          reference::Linear(input.in(), weights, out),
                          BoundLinear(input.in(), weights, out)))
        << "in " << in << ", out " << out;
  }
}

// A row's bits do not depend on the rows around it.
TEST_P(LinearTest, RowsDoNotDependOnEachOther) {
  Random random(5);
  const size_t in = 801;
  const size_t out = 21;
  const auto linear =
      MakeLinear(random.Floats(in * out), random.Floats(out), in, out);
  ASSERT_NE(linear, nullptr);
  Tensor input(1, 139, in);
  input.FillUniform(&random, -1, 1);
  Tensor output(1, 139, out);
  const Floats all = Forward(*linear, input, &output);
  for (size_t row = 0; row < 139; ++row) {
    Tensor one(1, 1, in);
    for (size_t k = 0; k < in; ++k) one.At(0, 0, k) = input.At(0, row, k);
    Tensor result(1, 1, out);
    ASSERT_TRUE(SameBits(
        Forward(*linear, one, &result),
        Floats(all.begin() + row * out, all.begin() + (row + 1) * out)))
        << "row " << row;
  }
}

// NaN in a row stays in it, and an infinite weight in its column.
TEST_P(LinearTest, NanStaysInItsRow) {
  Random random(6);
  Floats weight = random.Floats(7 * 13);
  weight[5 * 7 + 2] = kInf;
  const auto linear = MakeLinear(weight, {}, 7, 13);
  ASSERT_NE(linear, nullptr);
  Tensor input(1, 6, 7);
  input.FillUniform(&random, 0.5f, 1);
  input.At(0, 3, 6) = kNan;
  Tensor output(1, 6, 13);
  const Floats got = Forward(*linear, input, &output);
  for (size_t row = 0; row < 6; ++row) {
    for (size_t o = 0; o < 13; ++o) {
      EXPECT_EQ(std::isnan(got[row * 13 + o]), row == 3);
      if (row != 3) {
        EXPECT_EQ(std::isinf(got[row * 13 + o]), o == 5);
      }
    }
  }
}

TEST_P(LinearTest, WeightsComeBackToTheBit) {
  Random random(7);
  for (size_t n = 0; n < 40; ++n) {
    const size_t in = random.Between(1, 40);
    const size_t out = random.Between(1, 70);
    const Floats weight = random.Floats(in * out);
    const Floats bias = random.Floats(n % 2 == 0 ? out : 0);
    const auto linear = MakeLinear(weight, bias, in, out);
    ASSERT_NE(linear, nullptr);
    EXPECT_EQ(linear->in_features(), in);
    EXPECT_EQ(linear->out_features(), out);
    EXPECT_EQ(linear->has_bias(), !bias.empty());
    Floats weight_back(in * out, kNan);
    Floats bias_back(bias.size(), kNan);
    ASSERT_OK(linear->GetWeights(
        {weight_back.data(), bias.empty() ? nullptr : bias_back.data()}));
    EXPECT_TRUE(SameBits(weight_back, weight));
    EXPECT_TRUE(SameBits(bias_back, bias));
  }
}

TEST_P(LinearTest, RefusedWeightsLeaveTheOldOnes) {
  Random random(8);
  const Floats weight = random.Floats(12);
  const Floats bias = random.Floats(4);
  const Floats other = random.Floats(12);
  for (const bool has_bias : {true, false}) {
    const auto linear = MakeLinear(weight, has_bias ? bias : Floats(), 3, 4);
    ASSERT_NE(linear, nullptr);
    ExpectError(linear->SetWeights({nullptr, has_bias ? bias.data() : nullptr}),
                StatusCode::kInvalidArgument, {"weight", "4", "3"});
    ExpectError(
        linear->SetWeights({other.data(), has_bias ? nullptr : bias.data()}),
        StatusCode::kInvalidArgument, {"bias", "4"});
    Floats back(12);
    ASSERT_OK(linear->GetWeights({back.data(), nullptr}));
    EXPECT_EQ(back, weight);
    ASSERT_OK(
        linear->SetWeights({other.data(), has_bias ? bias.data() : nullptr}));
    ASSERT_OK(linear->GetWeights({back.data(), nullptr}));
    EXPECT_EQ(back, other);
  }
}

TEST_P(LinearTest, RefusesSizesThatDoNotFit) {
  Random random(9);
  const auto linear = MakeLinear(random.Floats(12), {}, 3, 4);
  ASSERT_NE(linear, nullptr);
  Workspace workspace;
  const size_t shapes[][6] = {{2, 5, 2, 2, 5, 4},
                              {2, 5, 3, 2, 5, 3},
                              {2, 5, 3, 2, 4, 4},
                              {2, 5, 3, 1, 5, 4}};
  for (const auto& s : shapes) {
    Tensor input(s[0], s[1], s[2]);
    Tensor output(s[3], s[4], s[5]);
    output.SetDense(Floats(s[3] * s[4] * s[5], 42.0f));
    ExpectError(linear->Forward(input.in(), output.out(), &workspace),
                StatusCode::kShapeMismatch,
                {"Linear", "3 inputs", "4 outputs"});
    EXPECT_EQ(output.Dense(), Floats(s[3] * s[4] * s[5], 42.0f));
  }
}

TEST(LinearCreateTest, RefusesZeroWidths) {
  std::unique_ptr<Linear> linear;
  ExpectError(Linear::Create(0, 4, true, 0, &linear),
              StatusCode::kInvalidConfig, {"in_features", "0", "1"});
  ExpectError(Linear::Create(4, 0, true, 0, &linear),
              StatusCode::kInvalidConfig, {"out_features", "0", "1"});
  EXPECT_EQ(linear, nullptr);
}

// Panels are as wide as the vectors they were packed for. Read by another
// instruction set they would give wrong numbers, so that is an error.
TEST(LinearTargetTest, RefusesPanelsOfAnotherWidth) {
  Random random(10);
  const Floats weight = random.Floats(5 * 9);
  Tensor input(1, 3, 5);
  input.FillUniform(&random, -1, 1);
  for (const size_t packed_for : AvailableTargets()) {
    ASSERT_TRUE(kernels::UseTestTarget(packed_for));
    const size_t width = kernels::PanelWidth();
    const auto linear = MakeLinear(weight, {}, 5, 9);
    for (const size_t used : AvailableTargets()) {
      ASSERT_TRUE(kernels::UseTestTarget(used));
      Tensor output(1, 3, 9);
      output.SetDense(Floats(27, 42.0f));
      Workspace workspace;
      const Status status =
          linear->Forward(input.in(), output.out(), &workspace);
      Floats back(45);
      const Status read = linear->GetWeights({back.data(), nullptr});
      if (kernels::PanelWidth() == width) {
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(read.ok()) << read.message();
        continue;
      }
      ExpectError(status, StatusCode::kInvalidArgument,
                  {"packed", std::to_string(width), "set the weights again"});
      ExpectError(read, StatusCode::kInvalidArgument, {"packed"});
      EXPECT_EQ(output.Dense(), Floats(27, 42.0f));
    }
  }
  kernels::UseBestTarget();
}

}  // namespace
}  // namespace headwise
