// Linear: y = x W^T + b with the weight packed once for the SIMD kernel.
#ifndef HEADWISE_LINEAR_H_
#define HEADWISE_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "headwise/status.h"
#include "headwise/tensor_view.h"
#include "headwise/workspace.h"

namespace headwise {

struct PackedMatrix;

// Where parameters are read from: weight [out, in] as PyTorch stores it.
struct LinearWeights {
  const float* weight = nullptr;
  const float* bias = nullptr;  // [out]; null where the layer has none
};

// Where parameters are written to, in the same layout.
struct LinearWeightsOut {
  float* weight = nullptr;
  float* bias = nullptr;
};

class Linear {
 public:
  // Weights start as PyTorch's nn.Linear: both from U(-1/sqrt(in), 1/sqrt(in)),
  // from `seed`. Zero widths are refused.
  static Status Create(size_t in_features, size_t out_features, bool bias,
                       uint64_t seed, std::unique_ptr<Linear>* out);
  // A layer with these weights; it has a bias if one is given.
  static Status FromWeights(const LinearWeights& weights, size_t in_features,
                            size_t out_features, std::unique_ptr<Linear>* out);
  ~Linear();

  // Copies and packs; on an error the old weights stay. A bias must be given
  // exactly when the layer has one.
  Status SetWeights(const LinearWeights& weights);
  Status GetWeights(const LinearWeightsOut& weights) const;

  // input [B, rows, in] -> output [B, rows, out]. Must not overlap.
  Status Forward(const TensorView<const float>& input,
                 const TensorView<float>& output, Workspace* workspace) const;
  // Scratch of a call with `rows` rows in all batch entries.
  size_t WorkspaceBytes(size_t rows) const;

  size_t in_features() const;
  size_t out_features() const;
  bool has_bias() const;
  const PackedMatrix& packed() const { return *packed_; }

 private:
  Linear();
  std::unique_ptr<PackedMatrix> packed_;
};

}  // namespace headwise

#endif  // HEADWISE_LINEAR_H_
