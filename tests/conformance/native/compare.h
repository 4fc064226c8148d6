// The tolerance rule: |got - want| <= tol_abs + tol_rel * |want|, NaN exactly
// where NaN is wanted, infinities equal.
#ifndef HEADWISE_TESTS_CONFORMANCE_NATIVE_COMPARE_H_
#define HEADWISE_TESTS_CONFORMANCE_NATIVE_COMPARE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "case_file.h"

namespace headwise {
namespace conformance {

// A result of the library.
struct Result {
  Shape shape;
  std::vector<float> values;
  // Empty, or for each element 1 where its source leaves open what it is.
  std::vector<uint8_t> unspecified;
};

struct Verdict {
  // Up to 1: how much of what is allowed the worst element uses up.
  double worst = 0.0;
  // Empty when the result is within tolerance.
  std::string problem;
};

Verdict Compare(const Result& got, const Tensor& want,
                const Tolerance& tolerance);

}  // namespace conformance
}  // namespace headwise

#endif  // HEADWISE_TESTS_CONFORMANCE_NATIVE_COMPARE_H_
