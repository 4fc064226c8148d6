// What a case hides, as options of the library. A case whose rows without any
// allowed key are `zero` or `nan` hands its masks over as masks. One that says
// `uniform` or `finite` hides nothing at all: it adds a finite number, which
// the library gets as a bias.
#ifndef HEADWISE_TESTS_CONFORMANCE_NATIVE_MASKS_H_
#define HEADWISE_TESTS_CONFORMANCE_NATIVE_MASKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "case_file.h"
#include "headwise/headwise.h"

namespace headwise {
namespace conformance {

inline constexpr float kLowest = std::numeric_limits<float>::lowest();
// What Keras adds where it hides.
inline constexpr float kKerasHidden = -1e9f;

struct Sizes {
  size_t batch = 0;
  size_t heads = 0;
  size_t queries = 0;
  size_t keys = 0;
};

// A mask of rank 4 whose sizes are 1 or the full ones; absent: no values.
template <typename T>
struct Mask {
  bool present = false;
  std::array<size_t, 4> shape = {1, 1, 1, 1};
  std::vector<T> values;
};

struct Masks {
  Mask<uint8_t> attend;
  Mask<float> bias;
  std::vector<uint8_t> padding;  // [B, S] or empty; 1 = padding
  std::vector<int32_t> lengths;  // [B] or empty
  // [B] or empty: query i stands at position offsets[b] + i.
  std::vector<int32_t> offsets;
  bool causal = false;
  int64_t window_left = -1;  // as in AttentionOptions
  int64_t window_right = -1;
};

// The numbers that sources add where they hide.
struct FiniteRule {
  // `uniform`: for every hidden key.
  float uniform = kLowest;
  // `finite`: for a key hidden by a mask; the lowest float32 where causality
  // or a window hides it.
  float finite = -10000.0f;
  // The finite number is so small that it is added, whatever the case says.
  bool always = false;
};

// A bool tensor as an attend mask; `invert`: true hides.
Mask<uint8_t> BoolMask(const Tensor& tensor, const std::array<size_t, 4>& shape,
                       bool invert);
Mask<float> FloatMask(const Tensor& tensor, const std::array<size_t, 4>& shape);
// Sizes 1 in front until the rank is 4.
std::array<size_t, 4> ToRank4(const Shape& shape);
// The sum of two float masks; sizes of 1 repeat.
Mask<float> AddMasks(const Mask<float>& a, const Mask<float>& b);

// Brings the paddings into the attend mask.
void FoldPadding(const Sizes& sizes, Masks* masks);

// `base` with what hides; it points into `masks`, which is rewritten where the
// case adds finite numbers.
AttentionOptions MaskOptions(const AttentionOptions& base, const Sizes& sizes,
                             const FiniteRule& rule, Case* c, Masks* masks);

}  // namespace conformance
}  // namespace headwise

#endif  // HEADWISE_TESTS_CONFORMANCE_NATIVE_MASKS_H_
