// A layer's life: made, given weights, asked for them. What it does is in
// layer_forward.cc.
#include "headwise/multi_head_attention.h"

#include <algorithm>
#include <new>

#include "extra_keys.h"
#include "layer_init.h"
#include "view_checks.h"

namespace headwise {
namespace {

// New weights in the shape of an existing layer.
Status Repack(const char* name, const Linear& old, const LinearWeights& weights,
              std::unique_ptr<Linear>* out) {
  if ((weights.bias != nullptr) != old.has_bias()) {
    return Status::Error(
        StatusCode::kInvalidArgument,
        "MultiHeadAttention: the %s bias [%zu] is %s", name, old.out_features(),
        old.has_bias() ? "missing" : "given, but the layer has none");
  }
  return Linear::FromWeights(weights, old.in_features(), old.out_features(),
                             out);
}

Status CheckExtra(const Config& config, const Weights& weights) {
  const bool given = weights.bias_k != nullptr && weights.bias_v != nullptr;
  const bool none = weights.bias_k == nullptr && weights.bias_v == nullptr;
  if (config.add_bias_kv ? given : none) return Status();
  return Status::Error(StatusCode::kInvalidArgument,
                       "MultiHeadAttention: bias_k and bias_v are %s",
                       config.add_bias_kv
                           ? "missing; the layer was made with add_bias_kv"
                           : "given, but the layer was made without "
                             "add_bias_kv");
}

}  // namespace

MultiHeadAttention::MultiHeadAttention() = default;
MultiHeadAttention::~MultiHeadAttention() = default;

Status MultiHeadAttention::Create(const Config& config,
                                  std::unique_ptr<MultiHeadAttention>* out) {
  HEADWISE_RETURN_IF_ERROR(CheckPointer("MultiHeadAttention", "out", out));
  Config c;
  HEADWISE_RETURN_IF_ERROR(Resolve(config, &c));
  std::unique_ptr<MultiHeadAttention> made(new (std::nothrow)
                                               MultiHeadAttention());
  if (made == nullptr) {
    return Status::Error(StatusCode::kOutOfMemory,
                         "MultiHeadAttention: no memory for the layer");
  }
  made->config_ = c;
  HEADWISE_RETURN_IF_ERROR(
      MakeProjections(c, &made->projections_, &made->extra_));
  *out = std::move(made);
  return Status();
}

Status MultiHeadAttention::SetWeights(const Weights& weights) {
  // All are checked and packed before the first is replaced.
  ProjectionSet<std::unique_ptr<Linear>> fresh;
  HEADWISE_RETURN_IF_ERROR(
      Repack("query", *projections_.query, weights.query, &fresh.query));
  HEADWISE_RETURN_IF_ERROR(
      Repack("key", *projections_.key, weights.key, &fresh.key));
  HEADWISE_RETURN_IF_ERROR(
      Repack("value", *projections_.value, weights.value, &fresh.value));
  HEADWISE_RETURN_IF_ERROR(
      Repack("out", *projections_.out, weights.out, &fresh.out));
  HEADWISE_RETURN_IF_ERROR(CheckExtra(config_, weights));
  if (config_.add_bias_kv) {
    std::copy(weights.bias_k, weights.bias_k + extra_->key_width,
              extra_->key.data());
    std::copy(weights.bias_v, weights.bias_v + extra_->value_width,
              extra_->value.data());
  }
  projections_ = std::move(fresh);
  return Status();
}

Status MultiHeadAttention::GetWeights(const WeightsOut& weights) const {
  HEADWISE_RETURN_IF_ERROR(projections_.query->GetWeights(weights.query));
  HEADWISE_RETURN_IF_ERROR(projections_.key->GetWeights(weights.key));
  HEADWISE_RETURN_IF_ERROR(projections_.value->GetWeights(weights.value));
  if (config_.add_bias_kv && weights.bias_k != nullptr) {
    std::copy(extra_->key.data(), extra_->key.data() + extra_->key_width,
              weights.bias_k);
  }
  if (config_.add_bias_kv && weights.bias_v != nullptr) {
    std::copy(extra_->value.data(), extra_->value.data() + extra_->value_width,
              weights.bias_v);
  }
  return projections_.out->GetWeights(weights.out);
}

}  // namespace headwise
