// y = x W^T + b in float64.
#ifndef HEADWISE_REFERENCE_LINEAR_H_
#define HEADWISE_REFERENCE_LINEAR_H_

#include <cstddef>
#include <vector>

#include "headwise/linear.h"
#include "headwise/tensor_view.h"

namespace headwise {
namespace reference {

// input [B, rows, in], weights.weight [out, in], weights.bias [out] or null;
// returns [B, rows, out]. T: float, or double where the input is a result.
template <typename T>
std::vector<double> Linear(const TensorView<const T>& input,
                           const LinearWeights& weights, size_t out_features);

}  // namespace reference
}  // namespace headwise

#endif  // HEADWISE_REFERENCE_LINEAR_H_
