#include "rotary_table.h"

#include <string>

namespace headwise {
namespace conformance {
namespace {

std::vector<float> FirstColumns(const Tensor& tensor, size_t cols) {
  const size_t width = tensor.shape.back();
  if (width < cols) {
    throw CaseError(tensor.name + " is " + std::to_string(width) +
                    " wide, want " + std::to_string(cols));
  }
  const std::vector<float> all = tensor.Floats();
  const size_t rows = width == 0 ? 0 : all.size() / width;
  std::vector<float> values;
  for (size_t row = 0; row < rows; ++row) {
    const auto from = all.begin() + row * width;
    values.insert(values.end(), from, from + cols);
  }
  return values;
}

}  // namespace

RotaryTables::RotaryTables(Case* c, size_t half_dim, bool interleaved)
    : half_dim_(half_dim), interleaved_(interleaved) {
  const Case::Rules rules = {{"F32"}, {2, 3}};
  const Tensor& cos = c->RequiredInput("cos_cache", rules);
  const Tensor& sin = c->RequiredInput("sin_cache", rules);
  if (cos.shape != sin.shape) {
    throw CaseError("in.cos_cache and in.sin_cache differ in shape");
  }
  cos_ = FirstColumns(cos, half_dim);
  sin_ = FirstColumns(sin, half_dim);
  rows_ = half_dim == 0 ? 0 : cos_.size() / half_dim;
}

RotaryTable RotaryTables::table() const {
  RotaryTable table;
  table.cos = cos_.data();
  table.sin = sin_.data();
  table.rows = rows_;
  table.half_dim = half_dim_;
  table.interleaved = interleaved_;
  return table;
}

}  // namespace conformance
}  // namespace headwise
