// N-46: the exponential of softmax, measured through the weights it makes.
#include <cmath>

#include "attention_case.h"
#include "test_util.h"
#include "tolerance.h"

namespace headwise {
namespace {

HEADWISE_TEST_ALL_TARGETS(ExpAccuracyTest);

// The keys score 0 and x: the second weight is e^x / (1 + e^x). Besides the
// exponential's own error there are the rounding of the sum and of the
// division. Where x < -17 the sum is exactly 1, so nothing hides.
void ExpectWeight(float weight, double x) {
  const double expected = std::exp(x) / (1.0 + std::exp(x));
  if (expected < kSmallestNormal) {
    EXPECT_GE(weight, 0.0f) << "x " << x;
    EXPECT_LE(weight, kSmallestNormal * (1.0 + kExpError)) << "x " << x;
    return;
  }
  const double roundings = x < -17.0 ? 0.0 : 2.0 * kRoundoff;
  EXPECT_LE(std::abs(weight / expected - 1.0), kExpError + roundings)
      << "x " << x << ", weight " << weight << ", expected " << expected;
}

TEST_P(ExpAccuracyTest, N46SweepOverRows) {
  Random random(46);
  std::vector<float> x;
  for (int n = 0; n <= 104 * 128; ++n) {
    x.push_back(-static_cast<float>(n) / 128.0f);
    x.push_back(random.Uniform(-104.0f, 0.0f));
  }
  const AttentionRun run = RunCore(ListCase(x, {0, 1}, {0, 1}));
  ASSERT_OK(run.status);
  for (size_t i = 0; i < x.size(); ++i) {
    ExpectWeight(run.weights[2 * i + 1], x[i]);
    // The output is the same weight.
    ExpectWeight(run.output[i], x[i]);
    if (HasFailure()) return;
  }
}

// One key after the other at each place of a chunk: every lane.
TEST_P(ExpAccuracyTest, EveryLane) {
  std::vector<float> x = {0};
  for (int n = 1; n < 128; ++n) x.push_back(-18.0f - 0.53f * n);
  const AttentionRun run = RunCore(ListCase({1}, x, x));
  ASSERT_OK(run.status);
  EXPECT_EQ(run.weights[0], 1.0f);
  for (size_t j = 1; j < x.size(); ++j) ExpectWeight(run.weights[j], x[j]);
}

// Just above, at and below the place where results leave the normal numbers.
TEST_P(ExpAccuracyTest, SmallestNormalResults) {
  std::vector<float> x;
  for (float at = -87.25f; at > -87.5f; at = std::nextafter(at, -100.0f)) {
    if (x.size() >= 40000) break;
    x.push_back(at);
  }
  for (const float far :
       {-87.3365f, -88.0f, -103.97f, -104.0f, -200.0f, -1e4f, -1e30f, -kInf}) {
    x.push_back(far);
  }
  const AttentionRun run = RunCore(ListCase(x, {0, 1}, {0, 1}));
  ASSERT_OK(run.status);
  for (size_t i = 0; i < x.size(); ++i) {
    // 0 * -infinity is an honest NaN.
    if (x[i] == -kInf) continue;
    ExpectWeight(run.weights[2 * i + 1], x[i]);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace headwise
