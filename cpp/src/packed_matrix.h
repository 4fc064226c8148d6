// A weight matrix in the order in which the matrix kernel reads it.
#ifndef HEADWISE_SRC_PACKED_MATRIX_H_
#define HEADWISE_SRC_PACKED_MATRIX_H_

#include <cstddef>

#include "memory.h"

namespace headwise {

// The weight [out, in] in panels of `panel_width` outputs: panel p holds, for
// each input k, the weights of outputs p * panel_width .. + panel_width - 1
// side by side; outputs beyond `out` are zeros. The bias is padded likewise
// (zeros where the layer has none).
struct PackedMatrix {
  AlignedBuffer<float> panels;
  AlignedBuffer<float> bias;
  size_t in_features = 0;
  size_t out_features = 0;
  size_t panel_width = 0;
  bool has_bias = false;
};

}  // namespace headwise

#endif  // HEADWISE_SRC_PACKED_MATRIX_H_
