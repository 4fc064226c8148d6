// Scaled dot-product attention, the functional core:
//
//   weights = softmax(scale * Q K^T + bias, hidden keys left out)
//   output  = weights V
//
// one fused pass with online softmax (Milakov and Gimelshein 2018; Dao et al.
// 2022): memory grows with L, never with L x S.
#ifndef HEADWISE_ATTENTION_H_
#define HEADWISE_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "headwise/status.h"
#include "headwise/tensor_view.h"
#include "headwise/workspace.h"

namespace headwise {

// Where query 0 stands among the keys when future keys are hidden.
enum class Causal : int {
  kNone = 0,
  kStart = 1,  // query i sees keys 0..i (PyTorch, Keras, ONNX)
  kEnd = 2,    // the last query sees the last key (FlashAttention): the offset
               // is key_lengths[b] (or S) - query_lengths[b] (or L); keys
               // hidden by key_padding_mask count
};

// What a query that may see no key gives.
enum class EmptyRows : int {
  kZero = 0,  // output 0, weights 0
  kNan = 1,   // NaN, as PyTorch's softmax over nothing; LSE stays -infinity
};

enum class WeightsKind : int { kNone = 0, kAveraged = 1, kPerHead = 2 };

// All masks compose: a key is seen only if every one of them lets it.
struct AttentionOptions {
  // Factor of q.k; default 1 / sqrt(D).
  std::optional<float> scale;

  // 1 = may attend; broadcasts to [B, H, L, S].
  MaskView<uint8_t> attend_mask;
  // Added to the scaled scores; broadcasts to [B, H, L, S]. -infinity hides.
  MaskView<float> attn_bias;
  // [B, S], 1 = padding, contiguous. (PyTorch's name and polarity.)
  const uint8_t* key_padding_mask = nullptr;
  // [B]: keys at and after the length are hidden; 0..S.
  const int32_t* key_lengths = nullptr;
  // [B]: queries at and after the length see nothing; 0..L.
  const int32_t* query_lengths = nullptr;

  Causal causal = Causal::kNone;
  // [B]: query i stands at position query_offsets[b] + i; may be negative.
  // Null: 0. Contradicts Causal::kEnd, which has its own offset.
  const int32_t* query_offsets = nullptr;

  EmptyRows empty_rows = EmptyRows::kZero;
};

struct AttentionOutputs {
  // [B, H, L, Dv].
  HeadsView<float> output;
  // kPerHead: [B, H, L, S]; kAveraged: [B, L, S], the mean over the heads.
  // Contiguous.
  WeightsKind weights_kind = WeightsKind::kNone;
  float* weights = nullptr;
  // [B, H, L] or null: log of the sum of exp(score) over the keys a query
  // sees; -infinity where it sees none.
  float* lse = nullptr;
};

// query [B, H, L, D], key [B, Hkv, S, D], value [B, Hkv, S, Dv]. Query head h
// reads key/value head h / (H / Hkv), so H must be a multiple of Hkv. Zero
// sizes are legal. The output must not overlap an input. NaN or +infinity
// among the scores a query sees makes that row NaN, and no other; what is
// hidden has no effect, whatever it holds. A score of -infinity counts as
// hidden, wherever it comes from. The weighted sum is divided by the softmax's
// sum at its end, so values above 3.4e38 / S may overflow on the way, to
// infinity or NaN.
//
// Errors: kShapeMismatch, kInvalidArgument (a null pointer, a length out of
// range, output rows that overlap, options that contradict), kOutOfMemory. Then
// no output was written.
Status ScaledDotProductAttention(const HeadsView<const float>& query,
                                 const HeadsView<const float>& key,
                                 const HeadsView<const float>& value,
                                 const AttentionOptions& options,
                                 const AttentionOutputs& outputs,
                                 Workspace* workspace);

// Scratch that ScaledDotProductAttention needs for these sizes, whatever the
// options. Saturates at SIZE_MAX when it cannot be had.
size_t AttentionWorkspaceBytes(size_t query_length, size_t key_length,
                               size_t head_dim, size_t v_head_dim);

}  // namespace headwise

#endif  // HEADWISE_ATTENTION_H_
