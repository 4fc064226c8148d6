// What the contrib operators MultiHeadAttention and Attention share.
#ifndef HEADWISE_TESTS_CONFORMANCE_NATIVE_ORT_MASKS_H_
#define HEADWISE_TESTS_CONFORMANCE_NATIVE_ORT_MASKS_H_

#include <vector>

#include "case_file.h"
#include "headwise/headwise.h"
#include "masks.h"

namespace headwise {
namespace conformance {

// attr.mask_filter_value.
FiniteRule OrtRule(Case* c);
// attr.scale; 0 is the default there.
AttentionOptions OrtOptions(Case* c);
// in.attention_bias and attr.unidirectional.
void ReadOrtBias(Case* c, Masks* masks);

// Positive: the key is kept.
Mask<uint8_t> KeepMask(const Tensor& tensor,
                       const std::array<size_t, 4>& shape);
// Lengths clamped to 0 .. keys.
std::vector<int32_t> ClampedLengths(const std::vector<double>& values,
                                    size_t begin, size_t count, size_t keys);

}  // namespace conformance
}  // namespace headwise

#endif  // HEADWISE_TESTS_CONFORMANCE_NATIVE_ORT_MASKS_H_
