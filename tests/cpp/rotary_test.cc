// Rotary embedding against the formulas, worked out here in float64.
#include "headwise/rotary.h"

#include <cmath>
#include <vector>

#include "reference/rotary.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Positions = std::vector<int32_t>;

// x [L, D] of one entry and head, row i at position positions[i].
Floats Turn(const RotaryConfig& config, Floats x, const Positions& positions) {
  const size_t rows = positions.size();
  const auto view =
      HeadsView<float>::HeadsFirst(x.data(), 1, 1, rows, x.size() / rows);
  RotaryPositions where;
  where.positions = positions.data();
  const Status status = RotaryEmbedding(config, where, view);
  EXPECT_TRUE(status.ok()) << status.message();
  return x;
}

void ExpectNear(const Floats& got, const Doubles& want, double relative) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t n = 0; n < got.size(); ++n) {
    EXPECT_NEAR(got[n], want[n], relative * std::abs(want[n])) << n;
  }
}

TEST(RotaryTest, N33TheNumbersOfEachLayout) {
  RotaryConfig config;
  ExpectNear(Turn(config, {1, 2, 3, 4}, {1}),
             {-1.984111, 1.959901, 2.462378, 4.019800}, 5e-7);
  config.interleaved = true;
  ExpectNear(Turn(config, {1, 2, 3, 4}, {1}),
             {-1.142640, 1.922076, 2.959851, 4.029800}, 5e-7);
  for (const bool interleaved : {false, true}) {
    config.interleaved = interleaved;
    config.dim = 2;
    const Floats got = Turn(config, {1, 2, 3, 4}, {1});
    ExpectNear(got, {-1.142640, 1.922076, 3, 4}, 5e-7);
    EXPECT_EQ(got[2], 3.0f);
    EXPECT_EQ(got[3], 4.0f);
  }
}

TEST(RotaryTest, PositionZeroChangesNothing) {
  Random random(1);
  const Floats x = random.Floats(12);
  EXPECT_TRUE(SameBits(Turn({}, x, {0}), x));
}

Doubles Frequencies(const RotaryConfig& config, size_t head_dim,
                    double* magnitude) {
  Doubles frequencies(head_dim / 2, -1.0);
  const Status status =
      RotaryFrequencies(config, head_dim, frequencies.data(), magnitude);
  EXPECT_TRUE(status.ok()) << status.message();
  return frequencies;
}

void ExpectFrequencies(const RotaryConfig& config, const Doubles& want,
                       double want_magnitude) {
  double magnitude = 0.0;
  const Doubles got = Frequencies(config, 2 * want.size(), &magnitude);
  for (size_t n = 0; n < want.size(); ++n) {
    EXPECT_NEAR(got[n], want[n], 1e-13 * want[n]) << n;
  }
  EXPECT_NEAR(magnitude, want_magnitude, 1e-15);
}

TEST(RotaryTest, PlainFrequencies) {
  RotaryConfig config;
  config.base = 500000.0;
  Doubles want;
  for (size_t i = 0; i < 8; ++i) {
    want.push_back(std::pow(500000.0, -static_cast<double>(i) / 8.0));
  }
  ExpectFrequencies(config, want, 1.0);
}

TEST(RotaryTest, LinearScalingDividesPositions) {
  RotaryConfig config;
  config.scaling = RotaryScaling::kLinear;
  config.factor = 4.0;
  Random random(2);
  const Floats x = random.Floats(16);
  EXPECT_TRUE(SameBits(Turn(config, x, {12}), Turn({}, x, {3})));
  EXPECT_FALSE(SameBits(Turn(config, x, {12}), Turn({}, x, {12})));
}

// NTK-aware: the fastest pair keeps its frequency, the slowest is divided by
// the factor.
TEST(RotaryTest, NtkScalingReachesTheFactorAtTheSlowestPair) {
  RotaryConfig config;
  config.scaling = RotaryScaling::kNtk;
  config.factor = 8.0;
  const double base = 10000.0 * std::pow(8.0, 16.0 / 14.0);
  Doubles want;
  for (size_t i = 0; i < 8; ++i) {
    want.push_back(std::pow(base, -static_cast<double>(i) / 8.0));
  }
  ExpectFrequencies(config, want, 1.0);
  EXPECT_NEAR(want[7], std::pow(10000.0, -7.0 / 8.0) / 8.0, 1e-15);
}

// Llama 3.1: base 500000, factor 8, 1 to 4, length 8192.
TEST(RotaryTest, Llama3Scaling) {
  RotaryConfig config;
  config.base = 500000.0;
  config.scaling = RotaryScaling::kLlama3;
  config.factor = 8.0;
  config.original_length = 8192.0;
  Doubles want;
  size_t kept = 0;
  size_t divided = 0;
  for (size_t i = 0; i < 64; ++i) {
    const double f = std::pow(500000.0, -static_cast<double>(i) / 64.0);
    const double wavelength = 2.0 * M_PI / f;
    if (wavelength < 8192.0 / 4.0) {
      want.push_back(f);
      ++kept;
    } else if (wavelength > 8192.0) {
      want.push_back(f / 8.0);
      ++divided;
    } else {
      const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
      want.push_back((1.0 - smooth) * f / 8.0 + smooth * f);
    }
  }
  EXPECT_GT(kept, 0u);
  EXPECT_GT(divided, 0u);
  EXPECT_LT(kept + divided, 64u);
  ExpectFrequencies(config, want, 1.0);
}

TEST(RotaryTest, YarnScaling) {
  RotaryConfig config;
  config.scaling = RotaryScaling::kYarn;
  config.factor = 16.0;
  config.original_length = 4096.0;
  // Rotations over 4096 tokens: pair p of 64 makes
  // 4096 / (2 pi) * 10000^(-p / 64); 32 of them at pair 20.9, 1 at 45.03.
  const double low = 20.0;
  const double high = 46.0;
  Doubles want;
  for (size_t i = 0; i < 64; ++i) {
    const double f = std::pow(10000.0, -static_cast<double>(i) / 64.0);
    const double ramp = std::min(
        1.0, std::max(0.0, (static_cast<double>(i) - low) / (high - low)));
    want.push_back(f * (1.0 - ramp) + f / 16.0 * ramp);
  }
  ExpectFrequencies(config, want, 0.1 * std::log(16.0) + 1.0);
}

TEST(RotaryTest, YarnMagnitudeIsInTheResult) {
  RotaryConfig config;
  config.scaling = RotaryScaling::kYarn;
  config.factor = 16.0;
  config.original_length = 4096.0;
  const Floats got = Turn(config, {1, 2, 3, 4}, {0});
  const double m = 0.1 * std::log(16.0) + 1.0;
  ExpectNear(got, {m, 2 * m, 3 * m, 4 * m}, 2e-7);
}

// Every option at random against the oracle, strided, all sizes different.
TEST(RotaryTest, RandomConfigurations) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(3000 + seed);
    const size_t batch = random.Between(2, 3);
    const size_t rows = random.Between(1, 9);
    const size_t heads = random.Between(4, 6);
    const size_t head_dim = random.Between(4, 40);
    RotaryConfig config;
    const size_t pairs = random.Between(2, head_dim / 2);
    config.dim = random.Chance(0.3) && head_dim % 2 == 0 ? 0 : 2 * pairs;
    const size_t turned = config.dim == 0 ? head_dim / 2 : pairs;
    config.interleaved = random.Chance(0.5);
    config.base = random.Pick<double>({100.0, 10000.0, 500000.0});
    config.scaling = static_cast<RotaryScaling>(random.Between(0, 4));
    config.factor = random.Pick<double>({0.5, 1.0, 4.0, 32.0});
    config.original_length = random.Pick<double>({64.0, 4096.0});
    if (random.Chance(0.4)) {
      config.axes = random.Between(1, 4);
      size_t left = turned;
      for (size_t axis = 0; axis + 1 < config.axes; ++axis) {
        config.sections[axis] = random.Between(0, left);
        left -= config.sections[axis];
      }
      config.sections[config.axes - 1] = left;
    }
    HeadsTensor x(random.Chance(0.5) ? Layout::kHeadsLast : Layout::kRowsFirst,
                  batch, heads, rows, head_dim, random.Between(0, 3));
    x.FillUniform(&random, -2, 2);
    Positions positions;
    Positions offsets;
    const size_t axes = config.axes == 0 ? 1 : config.axes;
    for (size_t n = 0; n < axes * batch * rows; ++n) {
      positions.push_back(random.BetweenSigned(-50, 5000));
    }
    for (size_t b = 0; b < batch; ++b) {
      offsets.push_back(random.BetweenSigned(-3, 100));
    }
    RotaryPositions where;
    if (random.Chance(0.5)) where.positions = positions.data();
    if (random.Chance(0.5)) where.offsets = offsets.data();

    // [B, L, H, D]
    Doubles want;
    for (size_t b = 0; b < batch; ++b) {
      for (size_t i = 0; i < rows; ++i) {
        for (size_t h = 0; h < heads; ++h) {
          for (size_t d = 0; d < head_dim; ++d) {
            want.push_back(x.At(b, h, i, d));
          }
        }
      }
    }
    reference::RotaryEmbedding(config, where, batch, rows, heads, head_dim,
                               &want);
    ASSERT_OK(RotaryEmbedding(config, where, x.out()));
    EXPECT_TRUE(x.GuardsIntact());
    size_t n = 0;
    for (size_t b = 0; b < batch; ++b) {
      for (size_t i = 0; i < rows; ++i) {
        for (size_t h = 0; h < heads; ++h) {
          for (size_t d = 0; d < head_dim; ++d, ++n) {
            ASSERT_NEAR(x.At(b, h, i, d), want[n], 2e-6) << n;
          }
        }
      }
    }
  }
}

// q.k depends on the distance alone.
TEST(RotaryTest, ScoresDependOnTheDistance) {
  Random random(4);
  const Floats q = random.Floats(16);
  const Floats k = random.Floats(16);
  const auto score = [&](int32_t at_q, int32_t at_k) {
    const Floats a = Turn({}, q, {at_q});
    const Floats b = Turn({}, k, {at_k});
    double sum = 0.0;
    for (size_t d = 0; d < 16; ++d) {
      sum += static_cast<double>(a[d]) * static_cast<double>(b[d]);
    }
    return sum;
  };
  EXPECT_NEAR(score(7, 3), score(1007, 1003), 1e-5);
  EXPECT_GT(std::abs(score(7, 3) - score(7, 4)), 1e-3);
}

TEST(RotaryTest, TablesEqualTheFormula) {
  Random random(5);
  for (const bool interleaved : {false, true}) {
    RotaryConfig config;
    config.dim = 6;
    config.interleaved = interleaved;
    RotaryTable table;
    Floats cos, sin;
    for (size_t row = 0; row < 11; ++row) {
      for (size_t i = 0; i < 3; ++i) {
        const double angle = static_cast<double>(row) *
                             std::pow(10000.0, -static_cast<double>(i) / 3.0);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    table.cos = cos.data();
    table.sin = sin.data();
    table.rows = 11;
    table.half_dim = 3;
    table.interleaved = interleaved;
    HeadsTensor x(Layout::kHeadsLast, 2, 4, 5, 9, 1);
    x.FillUniform(&random, -1, 1);
    HeadsTensor y = x;
    const Positions offsets = {6, 2};
    RotaryPositions where;
    where.offsets = offsets.data();
    ASSERT_OK(RotaryEmbedding(table, where, x.out()));
    ASSERT_OK(RotaryEmbedding(config, where, y.out()));
    const Floats got = x.Dense();
    const Floats want = y.Dense();
    for (size_t n = 0; n < got.size(); ++n) {
      EXPECT_NEAR(got[n], want[n], 1e-6);
    }
  }
}

TEST(RotaryTest, PositionOutsideTheTablesTurnsNothing) {
  Random random(6);
  const Floats ones(22, 1.0f);
  RotaryTable table;
  table.cos = ones.data();
  table.sin = ones.data();
  table.rows = 11;
  table.half_dim = 2;
  HeadsTensor x(Layout::kHeadsFirst, 2, 4, 5, 6, 0);
  x.FillUniform(&random, -1, 1);
  const Floats before = x.Dense();
  for (const Positions& offsets : {Positions{0, 7}, Positions{0, -1}}) {
    RotaryPositions where;
    where.offsets = offsets.data();
    ExpectError(RotaryEmbedding(table, where, x.out()),
                StatusCode::kInvalidArgument,
                {"position", offsets[1] < 0 ? "-1" : "11", "entry 1", "11"});
    EXPECT_TRUE(SameBits(x.Dense(), before));
  }
  table.half_dim = 4;
  ExpectError(RotaryEmbedding(table, {}, x.out()), StatusCode::kShapeMismatch,
              {"8", "6"});
  EXPECT_TRUE(SameBits(x.Dense(), before));
}

TEST(RotaryTest, RefusesWhatDescribesNoRotation) {
  HeadsTensor x(Layout::kHeadsFirst, 1, 4, 3, 6, 0);
  const auto refused = [&](auto change, const std::vector<std::string>& parts) {
    RotaryConfig config;
    change(&config);
    x.SetDense(Floats(4 * 3 * 6, 2.0f));
    ExpectError(RotaryEmbedding(config, {}, x.out()),
                StatusCode::kInvalidConfig, parts);
    EXPECT_EQ(x.Dense(), Floats(4 * 3 * 6, 2.0f));
  };
  refused([](RotaryConfig* c) { c->dim = 3; }, {"dim", "3", "even"});
  refused([](RotaryConfig* c) { c->dim = 8; }, {"dim", "8", "6"});
  refused([](RotaryConfig* c) { c->base = 0; }, {"base", "0"});
  refused([](RotaryConfig* c) { c->base = std::nan(""); }, {"base", "nan"});
  refused(
      [](RotaryConfig* c) {
        c->scaling = RotaryScaling::kLinear;
        c->factor = -1;
      },
      {"factor", "-1"});
  refused(
      [](RotaryConfig* c) {
        c->scaling = RotaryScaling::kNtk;
        c->dim = 2;
      },
      {"kNtk", "kLinear"});
  refused([](RotaryConfig* c) { c->scaling = RotaryScaling::kYarn; },
          {"original_length", "0"});
  refused([](RotaryConfig* c) { c->scaling = RotaryScaling::kLlama3; },
          {"original_length", "0"});
  refused(
      [](RotaryConfig* c) {
        c->scaling = RotaryScaling::kLlama3;
        c->original_length = 8192;
        c->high_frequency_factor = 1;
      },
      {"high_frequency_factor", "low_frequency_factor"});
  refused([](RotaryConfig* c) { c->scaling = static_cast<RotaryScaling>(9); },
          {"scaling", "9"});
  refused([](RotaryConfig* c) { c->axes = 5; }, {"axes", "5", "4"});
  refused(
      [](RotaryConfig* c) {
        c->axes = 2;
        c->sections[0] = 1;
        c->sections[1] = 1;
      },
      {"sections", "2", "3"});
  // Sums must not wrap round to what is wanted.
  refused(
      [](RotaryConfig* c) {
        c->axes = 3;
        c->sections[0] = SIZE_MAX;
        c->sections[1] = 2;
        c->sections[2] = 2;
      },
      {"sections", "3"});
}

}  // namespace
}  // namespace headwise
