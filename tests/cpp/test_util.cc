#include "test_util.h"

#include <cmath>

#include "kernels/kernels.h"

// Sizes that cannot be had are part of the tests: AddressSanitizer shall
// answer null like any allocator, not end the program.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEADWISE_TESTS_UNDER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(HEADWISE_TESTS_UNDER_ASAN)
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
#endif

namespace headwise {
namespace {

// Before and after each tensor: more than the widest panel of any target.
constexpr size_t kGuard = 64;

// A NaN that no arithmetic makes.
float GuardValue() {
  const uint32_t bits = 0x7FC0DEADu;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

bool IsGuard(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(value));
  return bits == 0x7FC0DEADu;
}

}  // namespace

std::vector<size_t> AvailableTargets() {
  std::vector<size_t> available;
  for (size_t i = 0; i < kernels::TestTargetCount(); ++i) {
    if (kernels::UseTestTarget(i)) available.push_back(i);
  }
  kernels::UseBestTarget();
  return available;
}

void TargetTest::SetUp() { ASSERT_TRUE(kernels::UseTestTarget(GetParam())); }

void TargetTest::TearDown() { kernels::UseBestTarget(); }

std::string TargetNameOf(const testing::TestParamInfo<size_t>& info) {
  return kernels::TestTargetName(info.param);
}

void ExpectError(const Status& status, StatusCode code,
                 const std::vector<std::string>& parts) {
  EXPECT_EQ(static_cast<int>(status.code()), static_cast<int>(code))
      << status.message();
  const std::string message = status.message();
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos)
        << "\"" << part << "\" is not in: " << message;
  }
}

// ---------------------------------------------------------- random numbers

uint64_t Random::Next() {
  state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

size_t Random::Between(size_t low, size_t high) {
  return low + static_cast<size_t>(Next() % (uint64_t{high - low} + 1));
}

int32_t Random::BetweenSigned(int32_t low, int32_t high) {
  return low + static_cast<int32_t>(
                   Between(0, static_cast<size_t>(int64_t{high} - low)));
}

float Random::Uniform(float low, float high) {
  const float unit = static_cast<float>(Next() >> 40) * 0x1.0p-24f;
  return low + (high - low) * unit;
}

bool Random::Chance(double probability) {
  return static_cast<double>(Next() >> 11) * 0x1.0p-53 < probability;
}

std::vector<float> Random::Floats(size_t count, float low, float high) {
  std::vector<float> values(count);
  for (float& value : values) value = Uniform(low, high);
  return values;
}

// ----------------------------------------------------------------- tensors

HeadsTensor::HeadsTensor(Layout layout, size_t batch, size_t heads, size_t rows,
                         size_t cols, size_t pad) {
  const size_t stride = cols + pad;
  buffer_.assign(batch * heads * rows * stride + 2 * kGuard, GuardValue());
  view_.batch = batch;
  view_.heads = heads;
  view_.rows = rows;
  view_.cols = cols;
  switch (layout) {
    case Layout::kHeadsFirst:
      view_.row_stride = stride;
      view_.head_stride = rows * stride;
      view_.batch_stride = heads * rows * stride;
      break;
    case Layout::kHeadsLast:
      view_.head_stride = stride;
      view_.row_stride = heads * stride;
      view_.batch_stride = rows * heads * stride;
      break;
    case Layout::kRowsFirst:
      view_.head_stride = stride;
      view_.batch_stride = heads * stride;
      view_.row_stride = batch * heads * stride;
      break;
  }
}

size_t HeadsTensor::Offset(size_t b, size_t h, size_t row, size_t col) const {
  return kGuard + b * view_.batch_stride + h * view_.head_stride +
         row * view_.row_stride + col;
}

HeadsView<float> HeadsTensor::out() {
  HeadsView<float> view = view_;
  view.data = buffer_.data() + kGuard;
  return view;
}

HeadsView<const float> HeadsTensor::in() const {
  // A tensor that was never made has no elements to point at.
  if (buffer_.empty()) return {};
  return {buffer_.data() + kGuard,
          view_.batch,
          view_.heads,
          view_.rows,
          view_.cols,
          view_.batch_stride,
          view_.head_stride,
          view_.row_stride};
}

float& HeadsTensor::At(size_t b, size_t h, size_t row, size_t col) {
  return buffer_[Offset(b, h, row, col)];
}

float HeadsTensor::At(size_t b, size_t h, size_t row, size_t col) const {
  return buffer_[Offset(b, h, row, col)];
}

std::vector<float> HeadsTensor::Dense() const {
  std::vector<float> values;
  for (size_t b = 0; b < view_.batch; ++b) {
    for (size_t h = 0; h < view_.heads; ++h) {
      for (size_t row = 0; row < view_.rows; ++row) {
        for (size_t col = 0; col < view_.cols; ++col) {
          values.push_back(At(b, h, row, col));
        }
      }
    }
  }
  return values;
}

void HeadsTensor::SetDense(const std::vector<float>& values) {
  size_t n = 0;
  for (size_t b = 0; b < view_.batch; ++b) {
    for (size_t h = 0; h < view_.heads; ++h) {
      for (size_t row = 0; row < view_.rows; ++row) {
        for (size_t col = 0; col < view_.cols; ++col) {
          At(b, h, row, col) = values.at(n++);
        }
      }
    }
  }
}

void HeadsTensor::FillUniform(Random* random, float low, float high) {
  SetDense(random->Floats(view_.batch * view_.heads * view_.rows * view_.cols,
                          low, high));
}

bool HeadsTensor::GuardsIntact() const {
  std::vector<bool> inside(buffer_.size(), false);
  for (size_t b = 0; b < view_.batch; ++b) {
    for (size_t h = 0; h < view_.heads; ++h) {
      for (size_t row = 0; row < view_.rows; ++row) {
        for (size_t col = 0; col < view_.cols; ++col) {
          inside[Offset(b, h, row, col)] = true;
        }
      }
    }
  }
  for (size_t i = 0; i < buffer_.size(); ++i) {
    if (!inside[i] && !IsGuard(buffer_[i])) return false;
  }
  return true;
}

Tensor::Tensor(size_t batch, size_t rows, size_t cols, size_t row_pad,
               size_t batch_pad) {
  view_.batch = batch;
  view_.rows = rows;
  view_.cols = cols;
  view_.row_stride = cols + row_pad;
  view_.batch_stride = rows * view_.row_stride + batch_pad;
  buffer_.assign(batch * view_.batch_stride + 2 * kGuard, GuardValue());
}

TensorView<float> Tensor::out() {
  TensorView<float> view = view_;
  view.data = buffer_.data() + kGuard;
  return view;
}

TensorView<const float> Tensor::in() const {
  TensorView<const float> view;
  view.data = buffer_.data() + kGuard;
  view.batch = view_.batch;
  view.rows = view_.rows;
  view.cols = view_.cols;
  view.batch_stride = view_.batch_stride;
  view.row_stride = view_.row_stride;
  return view;
}

TensorView<const float> Tensor::Entry(size_t b) const {
  TensorView<const float> view = in();
  view.data += b * view.batch_stride;
  view.batch = 1;
  return view;
}

float& Tensor::At(size_t b, size_t row, size_t col) {
  return buffer_[kGuard + b * view_.batch_stride + row * view_.row_stride +
                 col];
}

float Tensor::At(size_t b, size_t row, size_t col) const {
  return buffer_[kGuard + b * view_.batch_stride + row * view_.row_stride +
                 col];
}

std::vector<float> Tensor::Dense() const {
  std::vector<float> values;
  for (size_t b = 0; b < view_.batch; ++b) {
    for (size_t row = 0; row < view_.rows; ++row) {
      for (size_t col = 0; col < view_.cols; ++col) {
        values.push_back(At(b, row, col));
      }
    }
  }
  return values;
}

void Tensor::SetDense(const std::vector<float>& values) {
  size_t n = 0;
  for (size_t b = 0; b < view_.batch; ++b) {
    for (size_t row = 0; row < view_.rows; ++row) {
      for (size_t col = 0; col < view_.cols; ++col) {
        At(b, row, col) = values.at(n++);
      }
    }
  }
}

void Tensor::FillUniform(Random* random, float low, float high) {
  SetDense(random->Floats(view_.batch * view_.rows * view_.cols, low, high));
}

bool Tensor::GuardsIntact() const {
  std::vector<bool> inside(buffer_.size(), false);
  for (size_t b = 0; b < view_.batch; ++b) {
    for (size_t row = 0; row < view_.rows; ++row) {
      const size_t first =
          kGuard + b * view_.batch_stride + row * view_.row_stride;
      for (size_t col = 0; col < view_.cols; ++col) inside[first + col] = true;
    }
  }
  for (size_t i = 0; i < buffer_.size(); ++i) {
    if (!inside[i] && !IsGuard(buffer_[i])) return false;
  }
  return true;
}

// ------------------------------------------------------------- comparisons

bool SameBits(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

testing::AssertionResult SameBits(const std::vector<float>& a,
                                  const std::vector<float>& b) {
  if (a.size() != b.size()) {
    return testing::AssertionFailure()
           << "sizes differ: " << a.size() << " and " << b.size();
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (SameBits(a[i], b[i])) continue;
    return testing::AssertionFailure()
           << "element " << i << " of " << a.size() << ": "
           << testing::PrintToString(a[i]) << " and "
           << testing::PrintToString(b[i]) << ", difference " << a[i] - b[i];
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult AllWithin(const std::vector<float>& actual,
                                   const std::vector<double>& expected,
                                   const std::vector<double>& bounds) {
  if (actual.size() != expected.size() || actual.size() != bounds.size()) {
    return testing::AssertionFailure()
           << "sizes differ: " << actual.size() << " values, "
           << expected.size() << " expected, " << bounds.size() << " bounds";
  }
  size_t worst = actual.size();
  double worst_ratio = 1.0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i];
    const double e = expected[i];
    double ratio;
    if (std::isfinite(a) && std::isfinite(e)) {
      ratio = a == e ? 0.0 : std::abs(a - e) / bounds[i];
      // A bound that is not a number proves nothing.
      if (!(ratio >= 0.0)) ratio = HUGE_VAL;
    } else {
      const bool same = std::isnan(e) ? std::isnan(a) : a == e;
      ratio = same ? 0.0 : HUGE_VAL;
    }
    if (ratio > worst_ratio) {
      worst_ratio = ratio;
      worst = i;
    }
  }
  if (worst == actual.size()) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "worst element " << worst << " of " << actual.size() << ": got "
         << testing::PrintToString(actual[worst]) << ", expected "
         << testing::PrintToString(expected[worst]) << ", bound "
         << bounds[worst] << ", exceeded " << worst_ratio << " times";
}

}  // namespace headwise
