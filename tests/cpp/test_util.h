// What every test uses: instruction sets as parameters, reproducible random
// numbers, tensors surrounded by NaN, comparisons of bits.
#ifndef HEADWISE_TESTS_CPP_TEST_UTIL_H_
#define HEADWISE_TESTS_CPP_TEST_UTIL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "headwise/status.h"
#include "headwise/tensor_view.h"

namespace headwise {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ------------------------------------------------------- instruction sets

// Indices of the instruction sets that are compiled in and that this machine
// has. The absent ones are not skipped tests: they are no tests at all, and
// target_test.cc prints them.
std::vector<size_t> AvailableTargets();

// A test that runs once under each of them.
class TargetTest : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override;
  void TearDown() override;
};

std::string TargetNameOf(const testing::TestParamInfo<size_t>& info);

#define HEADWISE_TEST_ALL_TARGETS(Suite)                                   \
  class Suite : public ::headwise::TargetTest {};                          \
  INSTANTIATE_TEST_SUITE_P(                                                \
      Targets, Suite, ::testing::ValuesIn(::headwise::AvailableTargets()), \
      ::headwise::TargetNameOf)

// ------------------------------------------------------------- statements

#define ASSERT_OK(expression)                                              \
  do {                                                                     \
    const ::headwise::Status status_ = (expression);                       \
    ASSERT_TRUE(status_.ok()) << #expression << ": " << status_.message(); \
  } while (false)

// The code, and every one of `parts` within the message.
void ExpectError(const Status& status, StatusCode code,
                 const std::vector<std::string>& parts);

// ---------------------------------------------------------- random numbers

// Splitmix64: the same numbers on every machine and standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next();
  // Both ends included.
  size_t Between(size_t low, size_t high);
  int32_t BetweenSigned(int32_t low, int32_t high);
  float Uniform(float low, float high);
  bool Chance(double probability);
  template <typename T>
  T Pick(const std::vector<T>& from) {
    return from[Between(0, from.size() - 1)];
  }
  std::vector<float> Floats(size_t count, float low = -1.0f, float high = 1.0f);

 private:
  uint64_t state_;
};

// ----------------------------------------------------------------- tensors

enum class Layout {
  kHeadsFirst,  // [B, H, L, D]
  kHeadsLast,   // [B, L, H, D]
  kRowsFirst,   // [L, B, H, D], rows outermost
};

// A strided tensor [batch, heads, rows, cols] in a buffer whose other
// elements are NaN: what is read beyond the tensor shows in the result, and
// what is written there is noticed.
class HeadsTensor {
 public:
  HeadsTensor() = default;
  // `pad` elements follow every innermost row.
  HeadsTensor(Layout layout, size_t batch, size_t heads, size_t rows,
              size_t cols, size_t pad);

  HeadsView<float> out();
  HeadsView<const float> in() const;
  float& At(size_t b, size_t h, size_t row, size_t col);
  float At(size_t b, size_t h, size_t row, size_t col) const;
  // In logical order [B, H, rows, cols].
  std::vector<float> Dense() const;
  void SetDense(const std::vector<float>& values);
  void FillUniform(Random* random, float low, float high);
  // Whether everything around the tensor is as it was made.
  bool GuardsIntact() const;

 private:
  size_t Offset(size_t b, size_t h, size_t row, size_t col) const;

  std::vector<float> buffer_;
  HeadsView<float>
      view_;  // sizes and strides; copies have buffers of their own
};

// The same for activations [batch, rows, cols].
class Tensor {
 public:
  Tensor() = default;
  Tensor(size_t batch, size_t rows, size_t cols, size_t row_pad = 0,
         size_t batch_pad = 0);

  TensorView<float> out();
  TensorView<const float> in() const;
  // One batch entry as an unbatched tensor.
  TensorView<const float> Entry(size_t b) const;
  float& At(size_t b, size_t row, size_t col);
  float At(size_t b, size_t row, size_t col) const;
  std::vector<float> Dense() const;
  void SetDense(const std::vector<float>& values);
  void FillUniform(Random* random, float low, float high);
  bool GuardsIntact() const;

 private:
  std::vector<float> buffer_;
  TensorView<float> view_;  // as above
};

// ------------------------------------------------------------- comparisons

// Equal bits; every NaN is the same value.
bool SameBits(float a, float b);
testing::AssertionResult SameBits(const std::vector<float>& a,
                                  const std::vector<float>& b);

// |actual - expected| <= bound for each element; NaN must be NaN, an infinity
// the same infinity. Names the worst element.
testing::AssertionResult AllWithin(const std::vector<float>& actual,
                                   const std::vector<double>& expected,
                                   const std::vector<double>& bounds);

}  // namespace headwise

#endif  // HEADWISE_TESTS_CPP_TEST_UTIL_H_
