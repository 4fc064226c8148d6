#include "headwise/multi_head_attention.h"

#include <cmath>
#include <new>

#include "arena.h"
#include "attention_checks.h"
#include "attention_core.h"
#include "init.h"
#include "packed_matrix.h"
#include "product.h"
#include "view_checks.h"

namespace headwise {
namespace {

// ---------------------------------------------------------- Initialisation

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

// PyTorch: Xavier over the packed [3E, E] in-projection where the three have
// one input width, over each projection elsewhere; the output projection
// keeps nn.Linear's U(-1/sqrt(n), 1/sqrt(n)).
Status MakeProjections(const Config& c,
                       ProjectionSet<std::unique_ptr<Linear>>* p) {
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
  return MakeLinear(context_width, c.out_dim, c.out_bias, bound, &source,
                    &p->out);
}

// ----------------------------------------------------------------- Scratch

struct Scratch {
  float* query;    // [B, L, H * D]
  float* key;      // [B, S, Hkv * D]
  float* value;    // [B, S, Hkv * Dv]
  float* context;  // [B, L, H * Dv]
  float* product;
};

Scratch TakeScratch(const Config& c, size_t batch, size_t query_length,
                    size_t key_length, Arena* arena) {
  const size_t query_rows = SaturatingMul(batch, query_length);
  const size_t key_rows = SaturatingMul(batch, key_length);
  const size_t context_width = c.num_heads * c.v_head_dim;
  Scratch s;
  s.query =
      arena->Take<float>(SaturatingMul(query_rows, c.num_heads * c.head_dim));
  s.key =
      arena->Take<float>(SaturatingMul(key_rows, c.num_kv_heads * c.head_dim));
  s.value = arena->Take<float>(
      SaturatingMul(key_rows, c.num_kv_heads * c.v_head_dim));
  s.context = arena->Take<float>(SaturatingMul(query_rows, context_width));
  // Every product uses the same room, so it fits the largest.
  size_t depth = context_width;
  for (size_t width : {c.embed_dim, c.k_dim, c.v_dim}) {
    if (width > depth) depth = width;
  }
  s.product = TakeProductScratch(query_rows > key_rows ? query_rows : key_rows,
                                 depth, arena);
  return s;
}

// ------------------------------------------------------------- Projections

template <typename T>
bool SameView(const TensorView<T>& a, const TensorView<T>& b) {
  return a.data == b.data && a.batch == b.batch && a.rows == b.rows &&
         a.cols == b.cols && a.batch_stride == b.batch_stride &&
         a.row_stride == b.row_stride;
}

// Dense [B, rows, out_features].
ProductTarget Dense(const Linear& linear, size_t rows, float* output) {
  return {&linear.packed(), output, rows * linear.out_features(),
          linear.out_features()};
}

// Inputs that are one and the same (self-attention) are packed once and meet
// all their weights in one product.
void ProjectInputs(const ProjectionSet<std::unique_ptr<Linear>>& p,
                   const TensorView<const float>& query,
                   const TensorView<const float>& key,
                   const TensorView<const float>& value,
                   const Scratch& scratch) {
  const TensorView<const float>* inputs[3] = {&query, &key, &value};
  const ProductTarget targets[3] = {Dense(*p.query, query.rows, scratch.query),
                                    Dense(*p.key, key.rows, scratch.key),
                                    Dense(*p.value, value.rows, scratch.value)};
  bool done[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (done[i]) continue;
    ProductTarget shared[3];
    size_t count = 0;
    for (size_t j = i; j < 3; ++j) {
      if (done[j] || !SameView(*inputs[i], *inputs[j])) continue;
      shared[count++] = targets[j];
      done[j] = true;
    }
    Product(*inputs[i], shared, count, scratch.product);
  }
}

// ------------------------------------------------------------------ Checks

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

Status CheckWidth(const char* name, size_t got, size_t want) {
  if (got == want) return Status();
  return Status::Error(StatusCode::kShapeMismatch,
                       "MultiHeadAttention: %s has %zu columns, this layer "
                       "needs %zu",
                       name, got, want);
}

Status CheckForward(const Config& c, const TensorView<const float>& query,
                    const TensorView<const float>& key,
                    const TensorView<const float>& value,
                    const TensorView<float>& output) {
  HEADWISE_RETURN_IF_ERROR(CheckWidth("query", query.cols, c.embed_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("key", key.cols, c.k_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("value", value.cols, c.v_dim));
  HEADWISE_RETURN_IF_ERROR(CheckWidth("output", output.cols, c.out_dim));
  if (key.batch != query.batch || value.batch != query.batch ||
      output.batch != query.batch || key.rows != value.rows ||
      output.rows != query.rows) {
    return Status::Error(
        StatusCode::kShapeMismatch,
        "MultiHeadAttention: query [%zu, %zu], key [%zu, %zu], value [%zu, "
        "%zu], output [%zu, %zu] (batch, rows); batches must be equal, key and "
        "value rows too, output rows those of the query",
        query.batch, query.rows, key.batch, key.rows, value.batch, value.rows,
        output.batch, output.rows);
  }
  const char* call = "MultiHeadAttention";
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "query", query));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "key", key));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "value", value));
  HEADWISE_RETURN_IF_ERROR(CheckData(call, "output", output));
  return CheckDisjoint(call, "output", output);
}

}  // namespace

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
  HEADWISE_RETURN_IF_ERROR(MakeProjections(c, &made->projections_));
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
  projections_ = std::move(fresh);
  return Status();
}

Status MultiHeadAttention::GetWeights(const WeightsOut& weights) const {
  HEADWISE_RETURN_IF_ERROR(projections_.query->GetWeights(weights.query));
  HEADWISE_RETURN_IF_ERROR(projections_.key->GetWeights(weights.key));
  HEADWISE_RETURN_IF_ERROR(projections_.value->GetWeights(weights.value));
  return projections_.out->GetWeights(weights.out);
}

Status MultiHeadAttention::Reserve(size_t batch, size_t query_length,
                                   size_t key_length,
                                   Workspace* workspace) const {
  HEADWISE_RETURN_IF_ERROR(
      CheckPointer("MultiHeadAttention", "workspace", workspace));
  Arena counter;
  TakeScratch(config_, batch, query_length, key_length, &counter);
  TakeAttentionScratch(query_length, key_length, config_.head_dim,
                       config_.v_head_dim, &counter);
  return workspace->Reserve(counter.used());
}

Status MultiHeadAttention::Forward(const TensorView<const float>& query,
                                   const TensorView<const float>& key,
                                   const TensorView<const float>& value,
                                   const AttentionOptions& options,
                                   const ForwardOutputs& outputs,
                                   Workspace* workspace) const {
  const Config& c = config_;
  const size_t batch = query.batch;
  HEADWISE_RETURN_IF_ERROR(
      CheckPointer("MultiHeadAttention", "workspace", workspace));
  HEADWISE_RETURN_IF_ERROR(CheckForward(c, query, key, value, outputs.output));
  HEADWISE_RETURN_IF_ERROR(CheckPacking(projections_.query->packed()));
  const AttentionSizes sizes = {batch, c.num_heads, c.num_kv_heads, query.rows,
                                key.rows};
  HEADWISE_RETURN_IF_ERROR(CheckOptions(sizes, options));
  HEADWISE_RETURN_IF_ERROR(
      CheckWeights(sizes, outputs.weights_kind, outputs.weights));
  HEADWISE_RETURN_IF_ERROR(Reserve(batch, query.rows, key.rows, workspace));

  Arena arena(workspace->data());
  const Scratch scratch = TakeScratch(c, batch, query.rows, key.rows, &arena);
  ProjectInputs(projections_, query, key, value, scratch);

  AttentionOptions attention_options = options;
  if (!options.scale.has_value()) attention_options.scale = c.scale;
  AttentionOutputs attention_outputs;
  attention_outputs.output = HeadsView<float>::HeadsLast(
      scratch.context, batch, c.num_heads, query.rows, c.v_head_dim);
  attention_outputs.weights_kind = outputs.weights_kind;
  attention_outputs.weights = outputs.weights;
  attention_outputs.lse = outputs.lse;
  using InHeads = HeadsView<const float>;
  Attend(InHeads::HeadsLast(scratch.query, batch, c.num_heads, query.rows,
                            c.head_dim),
         InHeads::HeadsLast(scratch.key, batch, c.num_kv_heads, key.rows,
                            c.head_dim),
         InHeads::HeadsLast(scratch.value, batch, c.num_kv_heads, key.rows,
                            c.v_head_dim),
         attention_options, attention_outputs, &arena);

  const ProductTarget target = {
      &projections_.out->packed(), outputs.output.data,
      outputs.output.batch_stride, outputs.output.row_stride};
  Product(TensorView<const float>(scratch.context, batch, query.rows,
                                  c.num_heads * c.v_head_dim),
          &target, 1, scratch.product);
  return Status();
}

}  // namespace headwise
