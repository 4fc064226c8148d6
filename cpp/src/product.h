// x W^T + b for one or several weights at once: packs x block by block and
// hands the blocks to the matrix kernel.
#ifndef HEADWISE_SRC_PRODUCT_H_
#define HEADWISE_SRC_PRODUCT_H_

#include <cstddef>

#include "arena.h"
#include "headwise/status.h"
#include "headwise/tensor_view.h"
#include "packed_matrix.h"

namespace headwise {

// One weight and where its product goes: input row `row` of batch entry b to
// output + b * output_batch_stride + row * output_stride.
struct ProductTarget {
  const PackedMatrix* matrix = nullptr;
  float* output = nullptr;
  size_t output_batch_stride = 0;
  size_t output_stride = 0;
};

// Scratch of a product over inputs of `rows` rows in all batch entries and
// `depth` columns.
float* TakeProductScratch(size_t rows, size_t depth, Arena* arena);

// All targets read the same input, which is packed once. Every matrix must
// have in_features == input.cols.
void Product(const TensorView<const float>& input, const ProductTarget* targets,
             size_t target_count, float* scratch);

// kInvalidArgument when the matrix was packed for another instruction set than
// the one in use: its panels would be read at the wrong places.
Status CheckPacking(const PackedMatrix& matrix);

}  // namespace headwise

#endif  // HEADWISE_SRC_PRODUCT_H_
