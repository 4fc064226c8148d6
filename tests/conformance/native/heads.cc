#include "heads.h"

#include <algorithm>
#include <utility>

namespace headwise {
namespace conformance {

Heads SideBySide(std::vector<float> data, size_t batch, size_t rows,
                 size_t heads, size_t cols, const std::string& what) {
  Heads result = {true, batch, heads, rows, cols, std::move(data)};
  if (result.data.size() != result.size()) {
    throw CaseError(what + " has " + std::to_string(result.data.size()) +
                    " values, want " + ShapeText(result.shape()));
  }
  return result;
}

Heads ReadHeads(const Tensor& tensor, size_t heads) {
  const Shape& shape = tensor.shape;
  if (shape.size() == 4) {
    if (heads != shape[1]) {
      throw CaseError(tensor.name + " has " + std::to_string(shape[1]) +
                      " heads, want " + std::to_string(heads));
    }
    return {false, shape[0], shape[1], shape[2], shape[3], tensor.Floats()};
  }
  if (shape.size() != 3 || heads == 0 || shape[2] % heads != 0) {
    throw CaseError(tensor.name + " " + ShapeText(shape) +
                    " does not divide into " + std::to_string(heads) +
                    " heads");
  }
  return {true, shape[0], heads, shape[1], shape[2] / heads, tensor.Floats()};
}

Heads PackedPart(const Tensor& tensor, size_t part) {
  const Shape& shape = tensor.shape;
  const size_t parts = shape[3], cols = shape[4];
  Heads result = {true, shape[0], shape[2], shape[1], cols, {}};
  const size_t rows = shape[0] * shape[1] * shape[2];
  const std::vector<float> all = tensor.Floats();
  for (size_t row = 0; row < rows; ++row) {
    const auto from = all.begin() + (row * parts + part) * cols;
    result.data.insert(result.data.end(), from, from + cols);
  }
  return result;
}

Heads SelectHeads(const Heads& all, size_t first, size_t count) {
  Heads result = {true, all.batch, count, all.rows, all.cols, {}};
  const HeadsView<const float> view = all.View();
  for (size_t b = 0; b < all.batch; ++b) {
    for (size_t i = 0; i < all.rows; ++i) {
      for (size_t h = first; h < first + count; ++h) {
        const float* row = view.Row(b, h, i);
        result.data.insert(result.data.end(), row, row + all.cols);
      }
    }
  }
  return result;
}

Result HeadsFirst(const Heads& x) {
  Result result = {{x.batch, x.heads, x.rows, x.cols}, {}, {}};
  const HeadsView<const float> view = x.View();
  for (size_t b = 0; b < x.batch; ++b) {
    for (size_t h = 0; h < x.heads; ++h) {
      for (size_t i = 0; i < x.rows; ++i) {
        const float* row = view.Row(b, h, i);
        result.values.insert(result.values.end(), row, row + x.cols);
      }
    }
  }
  return result;
}

}  // namespace conformance
}  // namespace headwise
