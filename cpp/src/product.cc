#include "product.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "parallel.h"

namespace headwise {
namespace {

// Rows packed at a time: 128 x 768 floats are 384 KiB, which leaves room for
// the weight panels in a second-level cache of 1 MiB.
constexpr size_t kRowBlock = 128;

// Whether batch entries follow each other without a gap, in and out. Then the
// batch is one long run of rows, and no tile is cut at its borders.
bool IsDense(const TensorView<const float>& input, const ProductTarget* targets,
             size_t target_count) {
  if (input.batch_stride != input.rows * input.row_stride) return false;
  for (size_t t = 0; t < target_count; ++t) {
    if (targets[t].output_batch_stride !=
        input.rows * targets[t].output_stride) {
      return false;
    }
  }
  return true;
}

}  // namespace

float* TakeProductScratch(size_t rows, size_t depth, Arena* arena) {
  const size_t block = RoundUp(std::min(rows, kRowBlock), kernels::kTileRows);
  return arena->Take<float>(SaturatingMul(block, depth));
}

void Product(const TensorView<const float>& input, const ProductTarget* targets,
             size_t target_count, float* scratch) {
  if (input.batch > 1 && IsDense(input, targets, target_count)) {
    TensorView<const float> flat = input;
    flat.rows = input.batch * input.rows;
    flat.batch = 1;
    return Product(flat, targets, target_count, scratch);
  }
  for (size_t b = 0; b < input.batch; ++b) {
    for (size_t row = 0; row < input.rows; row += kRowBlock) {
      const size_t rows = std::min(kRowBlock, input.rows - row);
      kernels::PackTiles(input.Row(b, row), input.row_stride, rows, input.cols,
                         1.0f, scratch);
      ParallelFor(target_count, [&](size_t t) {
        const ProductTarget& target = targets[t];
        kernels::MatMulArgs args;
        args.tiles = scratch;
        args.rows = rows;
        args.depth = input.cols;
        args.panels = target.matrix->panels.data();
        args.bias = target.matrix->bias.data();
        args.cols = target.matrix->out_features;
        args.c = target.output + b * target.output_batch_stride +
                 row * target.output_stride;
        args.c_stride = target.output_stride;
        kernels::MatMul(args);
      });
    }
  }
}

Status CheckPacking(const PackedMatrix& matrix) {
  if (matrix.panel_width == kernels::PanelWidth()) return Status();
  return Status::Error(StatusCode::kInvalidArgument,
                       "the weights were packed in panels of %zu columns, this "
                       "instruction set (%s) reads %zu; set the weights again",
                       matrix.panel_width, kernels::TargetName(),
                       kernels::PanelWidth());
}

}  // namespace headwise
