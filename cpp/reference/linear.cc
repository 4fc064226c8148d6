#include "reference/linear.h"

namespace headwise {
namespace reference {

template <typename T>
std::vector<double> Linear(const TensorView<const T>& input,
                           const LinearWeights& weights, size_t out_features) {
  const size_t in_features = input.cols;
  std::vector<double> output(input.batch * input.rows * out_features);
  for (size_t b = 0; b < input.batch; ++b) {
    for (size_t row = 0; row < input.rows; ++row) {
      const T* x = input.Row(b, row);
      for (size_t o = 0; o < out_features; ++o) {
        double sum = weights.bias == nullptr ? 0.0 : weights.bias[o];
        for (size_t k = 0; k < in_features; ++k) {
          sum += static_cast<double>(x[k]) *
                 static_cast<double>(weights.weight[o * in_features + k]);
        }
        output[(b * input.rows + row) * out_features + o] = sum;
      }
    }
  }
  return output;
}

template std::vector<double> Linear(const TensorView<const float>&,
                                    const LinearWeights&, size_t);
template std::vector<double> Linear(const TensorView<const double>&,
                                    const LinearWeights&, size_t);

}  // namespace reference
}  // namespace headwise
