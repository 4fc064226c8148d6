#include "compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace headwise {
namespace conformance {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Excess(double got, double want, const Tolerance& tolerance) {
  if (std::isnan(want)) return std::isnan(got) ? 0.0 : kInfinity;
  if (std::isinf(want)) return got == want ? 0.0 : kInfinity;
  if (!std::isfinite(got)) return kInfinity;
  const double difference = std::abs(got - want);
  if (difference == 0.0) return 0.0;
  const double allowed = tolerance.abs + tolerance.rel * std::abs(want);
  // The quotient may round to either side of 1; the rule itself decides.
  if (difference <= allowed) return std::min(1.0, difference / allowed);
  return std::max(1.0 + std::numeric_limits<double>::epsilon(),
                  difference / allowed);
}

std::string IndexText(size_t flat, const Shape& shape) {
  Shape index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return ShapeText(index);
}

}  // namespace

Verdict Compare(const Result& got, const Tensor& want,
                const Tolerance& tolerance) {
  Verdict verdict;
  if (got.shape != want.shape || got.values.size() != want.values.size()) {
    verdict.worst = kInfinity;
    verdict.problem =
        "has shape " + ShapeText(got.shape) + ", want " + ShapeText(want.shape);
    return verdict;
  }
  size_t at = 0;
  size_t off = 0;
  for (size_t i = 0; i < want.values.size(); ++i) {
    if (!got.unspecified.empty() && got.unspecified[i] != 0) continue;
    const double excess =
        Excess(double{got.values[i]}, want.values[i], tolerance);
    if (excess > 1.0) ++off;
    if (excess > verdict.worst) {
      verdict.worst = excess;
      at = i;
    }
  }
  if (off == 0) return verdict;
  const double wanted = want.values[at];
  std::ostringstream text;
  text.precision(9);
  text << off << " of " << want.values.size() << " elements off, worst at "
       << IndexText(at, want.shape) << ": got " << got.values[at] << ", want "
       << wanted << ", allowed ";
  if (std::isfinite(wanted)) {
    text.precision(3);
    text << "±" << tolerance.abs + tolerance.rel * std::abs(wanted);
  } else {
    text << "exactly that";
  }
  verdict.problem = text.str();
  return verdict;
}

}  // namespace conformance
}  // namespace headwise
