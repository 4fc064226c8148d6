// Rotary position embedding (Su et al. 2021): the pairs (a, b) of a head turn
// by an angle that grows with the position,
//
//   a' = a cos t - b sin t      b' = a sin t + b cos t      t = position * f_i
//
// so that q.k depends on the distance of the two positions.
#ifndef HEADWISE_ROTARY_H_
#define HEADWISE_ROTARY_H_

#include <cstddef>
#include <cstdint>

#include "headwise/status.h"
#include "headwise/tensor_view.h"

namespace headwise {

// How frequencies are changed for sequences longer than the trained ones.
enum class RotaryScaling : int {
  kNone = 0,
  kLinear = 1,  // positions / factor (Chen et al. 2023)
  kNtk = 2,     // base * factor^(R / (R - 2)) ("NTK-aware")
  kYarn = 3,    // by wavelength between the two, and a magnitude (Peng 2023)
  kLlama3 = 4,  // by wavelength, as Llama 3.1
};

struct RotaryConfig {
  // R: the first R elements of a head turn, the rest passes through; even.
  // 0: the whole head.
  size_t dim = 0;
  // Pairs are (x[2i], x[2i + 1]), as GPT-J and llama2.c; otherwise
  // (x[i], x[i + R/2]), as GPT-NeoX and Hugging Face.
  bool interleaved = false;
  double base = 10000.0;

  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1.0;
  // kYarn, kLlama3: length the model was trained on.
  double original_length = 0.0;
  // kYarn: rotations over the original length above which a frequency stays,
  // and below which it is divided by the factor.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  // kLlama3: the same as factors of the original length.
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;

  // Several position axes (height and width, say): pair i belongs to the axis
  // whose section it falls into; sections add up to R / 2. 0: one axis.
  static constexpr size_t kMaxAxes = 4;
  size_t axes = 0;
  size_t sections[kMaxAxes] = {};
};

// Frequencies f_i [R / 2] and the factor of cos and sin (1 but for kYarn).
// kInvalidConfig names the field.
Status RotaryFrequencies(const RotaryConfig& config, size_t head_dim,
                         double* frequencies, double* magnitude);

// Where the rows of a tensor stand: positions[axis * B * L + b * L + i], or,
// where that is null, offsets[b] + i (null: i) on every axis.
struct RotaryPositions {
  const int32_t* positions = nullptr;
  const int32_t* offsets = nullptr;
};

// Turns x [B, H, L, D] in place.
Status RotaryEmbedding(const RotaryConfig& config,
                       const RotaryPositions& positions,
                       const HeadsView<float>& x);

// The same from tables cos and sin [rows, R / 2], row = position. A position
// outside the table is kInvalidArgument, and nothing has been turned.
struct RotaryTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
  size_t rows = 0;
  size_t half_dim = 0;  // R / 2
  bool interleaved = false;
};
Status RotaryEmbedding(const RotaryTable& table,
                       const RotaryPositions& positions,
                       const HeadsView<float>& x);

}  // namespace headwise

#endif  // HEADWISE_ROTARY_H_
