#include "reference/rotary.h"

#include <algorithm>
#include <cmath>

namespace headwise {
namespace reference {
namespace {

constexpr double kTurn = 6.283185307179586;

// Share of a frequency that is divided by the factor: 0 for pairs that turn
// more than beta_fast times over the original length, 1 for those below
// beta_slow, a line between; at whole pairs (Peng et al. 2023, 3.2).
double YarnShare(const RotaryConfig& c, double dim, size_t pair) {
  // The pair that makes n turns: base^(-2 pair / dim) * length = n * 2 pi.
  const auto pair_of = [&](double turns) {
    return dim / 2.0 * std::log(c.original_length / (turns * kTurn)) /
           std::log(c.base);
  };
  const double low = std::max(0.0, std::floor(pair_of(c.beta_fast)));
  const double high = std::min(dim - 1.0, std::ceil(pair_of(c.beta_slow)));
  const double at = static_cast<double>(pair);
  if (at <= low) return 0.0;
  if (at >= high) return 1.0;
  return (at - low) / (high - low);
}

// The same of Llama 3.1, by wavelength.
double Llama3Share(const RotaryConfig& c, double frequency) {
  const double wavelength = kTurn / frequency;
  if (wavelength < c.original_length / c.high_frequency_factor) return 0.0;
  if (wavelength > c.original_length / c.low_frequency_factor) return 1.0;
  return 1.0 - (c.original_length / wavelength - c.low_frequency_factor) /
                   (c.high_frequency_factor - c.low_frequency_factor);
}

}  // namespace

RotaryAngles AnglesOf(const RotaryConfig& c, size_t head_dim) {
  const size_t width = c.dim == 0 ? head_dim : c.dim;
  const double dim = static_cast<double>(width);
  const double base = c.scaling == RotaryScaling::kNtk
                          ? c.base * std::pow(c.factor, dim / (dim - 2.0))
                          : c.base;
  RotaryAngles angles;
  for (size_t pair = 0; pair < width / 2; ++pair) {
    const double own =
        1.0 / std::pow(base, 2.0 * static_cast<double>(pair) / dim);
    double share = 0.0;
    if (c.scaling == RotaryScaling::kLinear) share = 1.0;
    if (c.scaling == RotaryScaling::kYarn) share = YarnShare(c, dim, pair);
    if (c.scaling == RotaryScaling::kLlama3) share = Llama3Share(c, own);
    angles.frequencies.push_back((1.0 - share) * own + share * own / c.factor);
  }
  if (c.scaling == RotaryScaling::kYarn && c.factor > 1.0) {
    angles.magnitude = 1.0 + 0.1 * std::log(c.factor);
  }
  return angles;
}

size_t AxisOf(const RotaryConfig& config, size_t pair) {
  size_t axis = 0;
  size_t end = config.axes == 0 ? pair + 1 : config.sections[0];
  while (pair >= end) end += config.sections[++axis];
  return axis;
}

int64_t RotaryPosition(const RotaryPositions& positions, size_t axis, size_t b,
                       size_t row, size_t batch, size_t rows) {
  if (positions.positions != nullptr) {
    return positions.positions[(axis * batch + b) * rows + row];
  }
  const int64_t first = positions.offsets == nullptr ? 0 : positions.offsets[b];
  return first + static_cast<int64_t>(row);
}

void RotaryEmbedding(const RotaryConfig& config,
                     const RotaryPositions& positions, size_t batch,
                     size_t rows, size_t heads, size_t head_dim,
                     std::vector<double>* x) {
  const RotaryAngles angles = AnglesOf(config, head_dim);
  const size_t pairs = angles.frequencies.size();
  for (size_t b = 0; b < batch; ++b) {
    for (size_t row = 0; row < rows; ++row) {
      for (size_t h = 0; h < heads; ++h) {
        double* head = x->data() + ((b * rows + row) * heads + h) * head_dim;
        for (size_t pair = 0; pair < pairs; ++pair) {
          const double angle =
              angles.frequencies[pair] *
              static_cast<double>(RotaryPosition(
                  positions, AxisOf(config, pair), b, row, batch, rows));
          const double cos = angles.magnitude * std::cos(angle);
          const double sin = angles.magnitude * std::sin(angle);
          double& left = head[config.interleaved ? 2 * pair : pair];
          double& right =
              head[config.interleaved ? 2 * pair + 1 : pair + pairs];
          const double x0 = left;
          const double x1 = right;
          left = x0 * cos - x1 * sin;
          right = x0 * sin + x1 * cos;
        }
      }
    }
  }
}

void NormaliseRows(const float* weight, double epsilon, size_t head_dim,
                   std::vector<double>* x) {
  for (size_t row = 0; row < x->size() / head_dim; ++row) {
    double* values = x->data() + row * head_dim;
    double squares = 0.0;
    for (size_t d = 0; d < head_dim; ++d) squares += values[d] * values[d];
    const double root =
        std::sqrt(squares / static_cast<double>(head_dim) + epsilon);
    for (size_t d = 0; d < head_dim; ++d) {
      values[d] *= (weight == nullptr ? 1.0 : weight[d]) / root;
    }
  }
}

}  // namespace reference
}  // namespace headwise
