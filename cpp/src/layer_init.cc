#include "layer_init.h"

#include <cmath>
#include <new>

#include "init.h"
#include "memory.h"

namespace headwise {
namespace {

float XavierBound(size_t fan_in, size_t fan_out) {
  return std::sqrt(6.0f / static_cast<float>(fan_in + fan_out));
}

// A layer with weights from U(-bound, bound) and a bias of zeros.
Status MakeLinear(size_t in_features, size_t out_features, bool bias,
                  float bound, UniformSource* source,
                  std::unique_ptr<Linear>* out) {
  const size_t count = SaturatingMul(in_features, out_features);
  AlignedBuffer<float> dense;
  if (!dense.Allocate(SaturatingAdd(count, out_features))) {
    return Status::Error(StatusCode::kOutOfMemory,
                         "MultiHeadAttention: weights [%zu, %zu] could not be "
                         "had; use a smaller layer or release others",
                         out_features, in_features);
  }
  source->Fill(bound, count, dense.data());
  float* zeros = dense.data() + count;
  for (size_t i = 0; i < out_features; ++i) zeros[i] = 0.0f;
  return Linear::FromWeights({dense.data(), bias ? zeros : nullptr},
                             in_features, out_features, out);
}

// bias_k and bias_v from N(0, 2 / (1 + width)), PyTorch's xavier_normal_ of a
// [1, 1, width] tensor.
Status MakeExtraKeys(const Config& c, UniformSource* source,
                     std::unique_ptr<ExtraKeys>* out) {
  const size_t rows = size_t{c.add_bias_kv} + size_t{c.add_zero_attn};
  if (rows == 0) return Status();
  std::unique_ptr<ExtraKeys> made(new (std::nothrow) ExtraKeys());
  if (made != nullptr) {
    made->rows = rows;
    made->key_width = c.num_kv_heads * c.head_dim;
    made->value_width = c.num_kv_heads * c.v_head_dim;
  }
  if (made == nullptr || !made->Allocate()) {
    return Status::Error(StatusCode::kOutOfMemory,
                         "MultiHeadAttention: no memory for bias_k and bias_v");
  }
  if (c.add_bias_kv) {
    const auto fill = [source](size_t width, float* to) {
      const float spread = std::sqrt(2.0f / static_cast<float>(1 + width));
      for (size_t i = 0; i < width; ++i) to[i] = source->NextNormal() * spread;
    };
    fill(made->key_width, made->key.data());
    fill(made->value_width, made->value.data());
  }
  *out = std::move(made);
  return Status();
}

}  // namespace

Status MakeProjections(const Config& c,
                       ProjectionSet<std::unique_ptr<Linear>>* p,
                       std::unique_ptr<ExtraKeys>* extra) {
  UniformSource source(c.seed);
  const size_t query_rows = c.num_heads * c.head_dim;
  const size_t key_rows = c.num_kv_heads * c.head_dim;
  const size_t value_rows = c.num_kv_heads * c.v_head_dim;
  const bool packed = c.k_dim == c.embed_dim && c.v_dim == c.embed_dim;
  const auto make = [&](size_t in, size_t rows, bool bias,
                        std::unique_ptr<Linear>* out) {
    const size_t fan_out = packed ? query_rows + key_rows + value_rows : rows;
    return MakeLinear(in, rows, bias, XavierBound(in, fan_out), &source, out);
  };
  HEADWISE_RETURN_IF_ERROR(
      make(c.embed_dim, query_rows, c.query_bias, &p->query));
  HEADWISE_RETURN_IF_ERROR(make(c.k_dim, key_rows, c.key_bias, &p->key));
  HEADWISE_RETURN_IF_ERROR(make(c.v_dim, value_rows, c.value_bias, &p->value));
  const size_t context_width = c.num_heads * c.v_head_dim;
  const float bound = 1.0f / std::sqrt(static_cast<float>(context_width));
  HEADWISE_RETURN_IF_ERROR(MakeLinear(context_width, c.out_dim, c.out_bias,
                                      bound, &source, &p->out));
  return MakeExtraKeys(c, &source, extra);
}

}  // namespace headwise
