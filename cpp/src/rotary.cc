#include "headwise/rotary.h"

#include <algorithm>
#include <cmath>

#include "rotary_checks.h"

namespace headwise {
namespace {

constexpr double kTwoPi = 6.283185307179586476925;

// Of a rising line from 0 at `low` to 1 at `high`.
double Ramp(double x, double low, double high) {
  return std::clamp((x - low) / std::max(high - low, 1e-3), 0.0, 1.0);
}

// The (fractional) pair that makes `rotations` turns over the original length.
double PairOfRotations(const RotaryConfig& c, double dim, double rotations) {
  return dim * std::log(c.original_length / (rotations * kTwoPi)) /
         (2.0 * std::log(c.base));
}

double YarnFrequency(const RotaryConfig& c, double dim, size_t i, double f) {
  const double low =
      std::max(std::floor(PairOfRotations(c, dim, c.beta_fast)), 0.0);
  const double high =
      std::min(std::ceil(PairOfRotations(c, dim, c.beta_slow)), dim - 1.0);
  const double slow = Ramp(static_cast<double>(i), low, high);
  return f * (1.0 - slow) + f / c.factor * slow;
}

double Llama3Frequency(const RotaryConfig& c, double f) {
  const double rotations = c.original_length * f / kTwoPi;
  const double keep =
      std::clamp((rotations - c.low_frequency_factor) /
                     (c.high_frequency_factor - c.low_frequency_factor),
                 0.0, 1.0);
  return f * keep + f / c.factor * (1.0 - keep);
}

// Turns one row of one head.
void TurnRow(const float* cos, const float* sin, size_t half, bool interleaved,
             float* row) {
  const size_t step = interleaved ? 2 : 1;
  const size_t partner = interleaved ? 1 : half;
  for (size_t i = 0; i < half; ++i) {
    float& a = row[i * step];
    float& b = row[i * step + partner];
    const float turned_a = a * cos[i] - b * sin[i];
    b = a * sin[i] + b * cos[i];
    a = turned_a;
  }
}

int64_t PositionOf(const RotaryPositions& where, const HeadsView<float>& x,
                   size_t axis, size_t b, size_t row) {
  if (where.positions != nullptr) {
    return where.positions[(axis * x.batch + b) * x.rows + row];
  }
  const int64_t offset = where.offsets == nullptr ? 0 : where.offsets[b];
  return offset + static_cast<int64_t>(row);
}

}  // namespace

Status RotaryFrequencies(const RotaryConfig& config, size_t head_dim,
                         double* frequencies, double* magnitude) {
  HEADWISE_RETURN_IF_ERROR(CheckRotary(config, head_dim));
  const RotaryConfig& c = config;
  const double dim = static_cast<double>(RotaryDim(config, head_dim));
  double base = c.base;
  if (c.scaling == RotaryScaling::kNtk) {
    base *= std::pow(c.factor, dim / (dim - 2.0));
  }
  for (size_t i = 0; i < RotaryDim(config, head_dim) / 2; ++i) {
    double f = std::pow(base, -2.0 * static_cast<double>(i) / dim);
    if (c.scaling == RotaryScaling::kLinear) f /= c.factor;
    if (c.scaling == RotaryScaling::kYarn) f = YarnFrequency(c, dim, i, f);
    if (c.scaling == RotaryScaling::kLlama3) f = Llama3Frequency(c, f);
    frequencies[i] = f;
  }
  // YaRN's attention temperature, as a factor of queries and keys.
  *magnitude = c.scaling == RotaryScaling::kYarn && c.factor > 1.0
                   ? 0.1 * std::log(c.factor) + 1.0
                   : 1.0;
  return Status();
}

Status RotaryEmbedding(const RotaryConfig& config,
                       const RotaryPositions& positions,
                       const HeadsView<float>& x) {
  HEADWISE_RETURN_IF_ERROR(CheckRotary(config, x.cols));
  const size_t half = RotaryDim(config, x.cols) / 2;
  double frequencies[kMaxRotaryDim / 2];
  double magnitude = 1.0;
  HEADWISE_RETURN_IF_ERROR(
      RotaryFrequencies(config, x.cols, frequencies, &magnitude));
  float cos[kMaxRotaryDim / 2];
  float sin[kMaxRotaryDim / 2];
  for (size_t b = 0; b < x.batch; ++b) {
    for (size_t row = 0; row < x.rows; ++row) {
      size_t axis = 0;
      size_t section_end = config.axes == 0 ? half : config.sections[0];
      for (size_t i = 0; i < half; ++i) {
        while (i >= section_end) section_end += config.sections[++axis];
        // In double: a float angle of 10^5 is off by thousandths.
        const double angle =
            static_cast<double>(PositionOf(positions, x, axis, b, row)) *
            frequencies[i];
        cos[i] = static_cast<float>(std::cos(angle) * magnitude);
        sin[i] = static_cast<float>(std::sin(angle) * magnitude);
      }
      for (size_t head = 0; head < x.heads; ++head) {
        TurnRow(cos, sin, half, config.interleaved, x.Row(b, head, row));
      }
    }
  }
  return Status();
}

Status RotaryEmbedding(const RotaryTable& table,
                       const RotaryPositions& positions,
                       const HeadsView<float>& x) {
  if (table.half_dim == 0 || 2 * table.half_dim > x.cols) {
    return Status::Error(StatusCode::kShapeMismatch,
                         "rotary: the tables turn %zu elements, a head has "
                         "%zu; their width must be 1 to %zu",
                         2 * table.half_dim, x.cols, x.cols / 2);
  }
  for (size_t b = 0; b < x.batch; ++b) {
    for (size_t row = 0; row < x.rows; ++row) {
      const int64_t position = PositionOf(positions, x, 0, b, row);
      if (position >= 0 && static_cast<uint64_t>(position) < table.rows) {
        continue;
      }
      return Status::Error(StatusCode::kInvalidArgument,
                           "rotary: position %lld of entry %zu, row %zu is "
                           "outside the tables of %zu rows",
                           static_cast<long long>(position), b, row,
                           table.rows);
    }
  }
  for (size_t b = 0; b < x.batch; ++b) {
    for (size_t row = 0; row < x.rows; ++row) {
      const size_t at =
          static_cast<size_t>(PositionOf(positions, x, 0, b, row)) *
          table.half_dim;
      for (size_t head = 0; head < x.heads; ++head) {
        TurnRow(table.cos + at, table.sin + at, table.half_dim,
                table.interleaved, x.Row(b, head, row));
      }
    }
  }
  return Status();
}

}  // namespace headwise
