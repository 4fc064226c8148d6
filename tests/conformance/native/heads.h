// Tensors with heads, as cases bring them: of rank 4 [B, H, L, D], or of rank 3
// [B, L, H*D] with the heads side by side.
#ifndef HEADWISE_TESTS_CONFORMANCE_NATIVE_HEADS_H_
#define HEADWISE_TESTS_CONFORMANCE_NATIVE_HEADS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "case_file.h"
#include "compare.h"
#include "headwise/headwise.h"

namespace headwise {
namespace conformance {

struct Heads {
  bool split = false;  // rank 3
  size_t batch = 0;
  size_t heads = 0;
  size_t rows = 0;
  size_t cols = 0;
  std::vector<float> data;

  HeadsView<const float> View() const { return ViewOf(data.data()); }
  HeadsView<float> MutableView() { return ViewOf(data.data()); }
  size_t size() const { return batch * heads * rows * cols; }
  Shape shape() const {
    if (split) return {batch, rows, heads * cols};
    return {batch, heads, rows, cols};
  }

 private:
  template <typename T>
  HeadsView<T> ViewOf(T* values) const {
    return split ? HeadsView<T>::HeadsLast(values, batch, heads, rows, cols)
                 : HeadsView<T>::HeadsFirst(values, batch, heads, rows, cols);
  }
};

// The values of [B, L, H*D].
Heads SideBySide(std::vector<float> data, size_t batch, size_t rows,
                 size_t heads, size_t cols, const std::string& what);
// A tensor of rank 3, whose width must divide into `heads`, or of rank 4, which
// must have so many.
Heads ReadHeads(const Tensor& tensor, size_t heads);
// Part `part` of `parts` of [..., parts, D]: packed projections. The tensor is
// [B, L, H, parts, D].
Heads PackedPart(const Tensor& tensor, size_t part);
// Heads [first, first + count) of those there are.
Heads SelectHeads(const Heads& all, size_t first, size_t count);

// What `x` holds, with heads first.
Result HeadsFirst(const Heads& x);

}  // namespace conformance
}  // namespace headwise

#endif  // HEADWISE_TESTS_CONFORMANCE_NATIVE_HEADS_H_
