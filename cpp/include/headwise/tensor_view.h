// Views: pointers with sizes and strides. They own nothing. Strides are in
// elements, columns are always contiguous, memory is row-major.
#ifndef HEADWISE_TENSOR_VIEW_H_
#define HEADWISE_TENSOR_VIEW_H_

#include <cstddef>

namespace headwise {

// [batch, rows, cols]: activations such as queries [B, L, E].
template <typename T>
struct TensorView {
  T* data = nullptr;
  size_t batch = 0;
  size_t rows = 0;
  size_t cols = 0;
  size_t batch_stride = 0;
  size_t row_stride = 0;

  TensorView() = default;
  // Contiguous.
  TensorView(T* data_in, size_t batch_in, size_t rows_in, size_t cols_in)
      : data(data_in),
        batch(batch_in),
        rows(rows_in),
        cols(cols_in),
        batch_stride(rows_in * cols_in),
        row_stride(cols_in) {}
  // Unbatched, contiguous.
  TensorView(T* data_in, size_t rows_in, size_t cols_in)
      : TensorView(data_in, 1, rows_in, cols_in) {}

  T* Row(size_t b, size_t row) const {
    return data + b * batch_stride + row * row_stride;
  }
};

// [batch, heads, rows, cols], in any order of the first three in memory.
template <typename T>
struct HeadsView {
  T* data = nullptr;
  size_t batch = 0;
  size_t heads = 0;
  size_t rows = 0;
  size_t cols = 0;
  size_t batch_stride = 0;
  size_t head_stride = 0;
  size_t row_stride = 0;

  // Memory order [B, H, L, D], as PyTorch's and ONNX's functional attention.
  static HeadsView HeadsFirst(T* data, size_t batch, size_t heads, size_t rows,
                              size_t cols) {
    return {data,        batch, heads, rows, cols, heads * rows * cols,
            rows * cols, cols};
  }
  // Memory order [B, L, H, D]: heads side by side, as a projection makes them.
  static HeadsView HeadsLast(T* data, size_t batch, size_t heads, size_t rows,
                             size_t cols) {
    return {data, batch,       heads, rows, cols, heads * rows * cols,
            cols, heads * cols};
  }

  T* Row(size_t b, size_t head, size_t row) const {
    return data + b * batch_stride + head * head_stride + row * row_stride;
  }
};

// A mask or bias that broadcasts to [batch, heads, rows, keys]: every size is
// either 1 or the full one. Null data: no mask.
template <typename T>
struct MaskView {
  const T* data = nullptr;
  size_t batch = 1;
  size_t heads = 1;
  size_t rows = 1;
  size_t keys = 1;

  bool present() const { return data != nullptr; }
  // Strides of the contiguous mask, 0 where a size of 1 is repeated.
  size_t key_stride() const { return keys == 1 ? 0 : 1; }
  size_t row_stride() const { return rows == 1 ? 0 : keys; }
  size_t head_stride() const { return heads == 1 ? 0 : rows * keys; }
  size_t batch_stride() const { return batch == 1 ? 0 : heads * rows * keys; }
  const T* Row(size_t b, size_t head, size_t row) const {
    return data + b * batch_stride() + head * head_stride() +
           row * row_stride();
  }
};

}  // namespace headwise

#endif  // HEADWISE_TENSOR_VIEW_H_
