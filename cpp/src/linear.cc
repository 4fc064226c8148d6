#include "headwise/linear.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "arena.h"
#include "init.h"
#include "kernels/kernels.h"
#include "packed_matrix.h"
#include "product.h"
#include "view_checks.h"

namespace headwise {
namespace {

Status OutOfMemory(size_t in_features, size_t out_features) {
  return Status::Error(StatusCode::kOutOfMemory,
                       "Linear: the weight [%zu, %zu] could not be had; use a "
                       "smaller layer or release others",
                       out_features, in_features);
}

// Packs dense weights into fresh buffers, so that a failure changes nothing.
Status Pack(const LinearWeights& weights, size_t in_features,
            size_t out_features, PackedMatrix* packed) {
  const size_t width = kernels::PanelWidth();
  const size_t padded = RoundUp(out_features, width);
  PackedMatrix fresh;
  if (!fresh.panels.Allocate(SaturatingMul(padded, in_features)) ||
      !fresh.bias.Allocate(padded)) {
    return OutOfMemory(in_features, out_features);
  }
  kernels::PackPanels(weights.weight, in_features, out_features, in_features,
                      fresh.panels.data());
  std::fill(fresh.bias.data(), fresh.bias.data() + padded, 0.0f);
  if (weights.bias != nullptr) {
    std::copy(weights.bias, weights.bias + out_features, fresh.bias.data());
  }
  fresh.in_features = in_features;
  fresh.out_features = out_features;
  fresh.panel_width = width;
  fresh.has_bias = weights.bias != nullptr;
  *packed = std::move(fresh);
  return Status();
}

Status CheckWidths(size_t in_features, size_t out_features) {
  if (in_features == 0 || out_features == 0) {
    return Status::Error(StatusCode::kInvalidConfig,
                         "Linear: %s is 0; it must be at least 1",
                         in_features == 0 ? "in_features" : "out_features");
  }
  // Bytes of whole panels must be countable as well.
  if (SaturatingMul(in_features, out_features) > SIZE_MAX / 2 / sizeof(float)) {
    return OutOfMemory(in_features, out_features);
  }
  return Status();
}

Status CheckWeight(const LinearWeights& weights, size_t in_features,
                   size_t out_features) {
  if (weights.weight != nullptr) return Status();
  return Status::Error(StatusCode::kInvalidArgument,
                       "Linear: the weight is missing; give [%zu, %zu]",
                       out_features, in_features);
}

}  // namespace

Linear::Linear() = default;
Linear::~Linear() = default;

Status Linear::Create(size_t in_features, size_t out_features, bool bias,
                      uint64_t seed, std::unique_ptr<Linear>* out) {
  HEADWISE_RETURN_IF_ERROR(CheckPointer("Linear", "out", out));
  HEADWISE_RETURN_IF_ERROR(CheckWidths(in_features, out_features));
  const size_t count = in_features * out_features;
  AlignedBuffer<float> dense;
  if (!dense.Allocate(SaturatingAdd(count, out_features))) {
    return OutOfMemory(in_features, out_features);
  }
  const float bound = 1.0f / std::sqrt(static_cast<float>(in_features));
  UniformSource(seed).Fill(bound, count + out_features, dense.data());
  return FromWeights({dense.data(), bias ? dense.data() + count : nullptr},
                     in_features, out_features, out);
}

Status Linear::FromWeights(const LinearWeights& weights, size_t in_features,
                           size_t out_features, std::unique_ptr<Linear>* out) {
  HEADWISE_RETURN_IF_ERROR(CheckPointer("Linear", "out", out));
  HEADWISE_RETURN_IF_ERROR(CheckWidths(in_features, out_features));
  HEADWISE_RETURN_IF_ERROR(CheckWeight(weights, in_features, out_features));
  std::unique_ptr<Linear> made(new (std::nothrow) Linear());
  if (made == nullptr) return OutOfMemory(in_features, out_features);
  made->packed_.reset(new (std::nothrow) PackedMatrix());
  if (made->packed_ == nullptr) return OutOfMemory(in_features, out_features);
  HEADWISE_RETURN_IF_ERROR(
      Pack(weights, in_features, out_features, made->packed_.get()));
  *out = std::move(made);
  return Status();
}

Status Linear::SetWeights(const LinearWeights& weights) {
  HEADWISE_RETURN_IF_ERROR(CheckWeight(weights, in_features(), out_features()));
  if ((weights.bias != nullptr) != has_bias()) {
    return Status::Error(StatusCode::kInvalidArgument,
                         has_bias() ? "Linear: the bias is missing; give [%zu]"
                                    : "Linear: a bias of [%zu] was given to a "
                                      "layer made without one",
                         out_features());
  }
  return Pack(weights, in_features(), out_features(), packed_.get());
}

Status Linear::GetWeights(const LinearWeightsOut& weights) const {
  HEADWISE_RETURN_IF_ERROR(CheckPacking(*packed_));
  if (weights.weight != nullptr) {
    kernels::UnpackPanels(packed_->panels.data(), out_features(), in_features(),
                          weights.weight);
  }
  if (weights.bias != nullptr && has_bias()) {
    std::copy(packed_->bias.data(), packed_->bias.data() + out_features(),
              weights.bias);
  }
  return Status();
}

Status Linear::Forward(const TensorView<const float>& input,
                       const TensorView<float>& output,
                       Workspace* workspace) const {
  HEADWISE_RETURN_IF_ERROR(CheckPointer("Linear", "workspace", workspace));
  if (input.cols != in_features() || output.cols != out_features() ||
      input.batch != output.batch || input.rows != output.rows) {
    return Status::Error(
        StatusCode::kShapeMismatch,
        "Linear: input [%zu, %zu, %zu] and output [%zu, %zu, %zu] do not fit a "
        "layer of %zu inputs and %zu outputs",
        input.batch, input.rows, input.cols, output.batch, output.rows,
        output.cols, in_features(), out_features());
  }
  HEADWISE_RETURN_IF_ERROR(CheckData("Linear", "input", input));
  HEADWISE_RETURN_IF_ERROR(CheckData("Linear", "output", output));
  HEADWISE_RETURN_IF_ERROR(CheckDisjoint("Linear", "output", output));
  const size_t rows = SaturatingMul(input.batch, input.rows);
  HEADWISE_RETURN_IF_ERROR(CheckPacking(*packed_));
  HEADWISE_RETURN_IF_ERROR(workspace->Reserve(WorkspaceBytes(rows)));
  Arena arena(workspace->data());
  float* scratch = TakeProductScratch(rows, in_features(), &arena);
  const ProductTarget target = {packed_.get(), output.data, output.batch_stride,
                                output.row_stride};
  Product(input, &target, 1, scratch);
  return Status();
}

size_t Linear::WorkspaceBytes(size_t rows) const {
  Arena counter;
  TakeProductScratch(rows, in_features(), &counter);
  return counter.used();
}

size_t Linear::in_features() const { return packed_->in_features; }
size_t Linear::out_features() const { return packed_->out_features; }
bool Linear::has_bias() const { return packed_->has_bias; }

}  // namespace headwise
