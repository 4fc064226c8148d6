#include "layer_projection.h"

#include <cmath>

#include "product.h"

namespace headwise {
namespace {

template <typename T>
bool SameView(const TensorView<T>& a, const TensorView<T>& b) {
  return a.data == b.data && a.batch == b.batch && a.rows == b.rows &&
         a.cols == b.cols && a.batch_stride == b.batch_stride &&
         a.row_stride == b.row_stride;
}

// Dense [B, rows, out_features].
ProductTarget Dense(const Linear& linear, size_t rows, float* output) {
  return {&linear.packed(), output, rows * linear.out_features(),
          linear.out_features()};
}

}  // namespace

void ProjectInputs(const ProjectionSet<std::unique_ptr<Linear>>& p,
                   const TensorView<const float>& query,
                   const TensorView<const float>& key,
                   const TensorView<const float>& value,
                   const Projected& projected, float* scratch) {
  const TensorView<const float>* inputs[3] = {&query, &key, &value};
  const ProductTarget targets[3] = {
      Dense(*p.query, query.rows, projected.query),
      Dense(*p.key, key.rows, projected.key),
      Dense(*p.value, value.rows, projected.value)};
  bool done[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (done[i]) continue;
    ProductTarget shared[3];
    size_t count = 0;
    for (size_t j = i; j < 3; ++j) {
      if (done[j] || !SameView(*inputs[i], *inputs[j])) continue;
      shared[count++] = targets[j];
      done[j] = true;
    }
    Product(*inputs[i], shared, count, scratch);
  }
}

void NormaliseRows(const float* weight, float epsilon,
                   const HeadsView<float>& x) {
  for (size_t b = 0; b < x.batch; ++b) {
    for (size_t head = 0; head < x.heads; ++head) {
      for (size_t i = 0; i < x.rows; ++i) {
        float* row = x.Row(b, head, i);
        double squares = 0.0;
        for (size_t d = 0; d < x.cols; ++d) {
          squares += static_cast<double>(row[d]) * static_cast<double>(row[d]);
        }
        const double mean = squares / static_cast<double>(x.cols);
        const float factor = static_cast<float>(
            1.0 / std::sqrt(mean + static_cast<double>(epsilon)));
        for (size_t d = 0; d < x.cols; ++d) {
          row[d] *= factor;
          if (weight != nullptr) row[d] *= weight[d];
        }
      }
    }
  }
}

}  // namespace headwise
