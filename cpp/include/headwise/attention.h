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

#include "headwise/block_mask.h"
#include "headwise/kv_cache.h"
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

// Scores before the softmax: scale * q.k at every key, whatever is hidden; the
// same after the softcap; or with bias and masks too, -infinity where hidden.
enum class ScoresKind : int { kNone = 0, kRaw = 1, kCapped = 2, kBiased = 3 };

// Some scores of one head on their way through a kernel: of query i = row + r,
// at position query_position + r, and the key at position key_position + c,
// scores[r * row_stride + c]. Positions count from the start of the sequence.
struct ScoreTile {
  // Of the batch, or the packed sequence.
  size_t entry = 0;
  size_t head = 0;
  size_t row = 0;
  int64_t query_position = 0;
  size_t key_position = 0;
  size_t rows = 0;
  size_t keys = 0;
  float* scores = nullptr;
  size_t row_stride = 0;
};
// Changes a tile of scores in place. It may be called by several threads at
// once, in any order, with tiles of any size, and more than once for the same
// scores. Keys that masks hide and queries beyond query_lengths are among them
// and stay hidden, whatever it writes; -infinity hides.
using ScoreMod = void (*)(void* context, const ScoreTile& tile);

// All masks compose: a key is seen only if every one of them lets it. Query i
// stands at position p = query_offsets[b] + i (0 + i without offsets; with
// Causal::kEnd by its own offset), key j at position j, both counted from the
// start of their sequence.
//
// Order: scale * q.k -> softcap -> score_mod -> + ALiBi and attn_bias -> masks
// -> softmax with sink -> . V.
struct AttentionOptions {
  // Factor of q.k; default 1 / sqrt(D).
  std::optional<float> scale;
  // softcap * tanh(score / softcap); 0: off (Gemma 2).
  float softcap = 0.0f;
  // [H]: head h gets -slope * |p - j| added (ALiBi, Press et al. 2021).
  const float* alibi_slopes = nullptr;
  // [H]: a score without a value that joins every softmax of head h, so that a
  // row can attend to nothing (Miller 2023; gpt-oss). -infinity: none. A query
  // beyond query_lengths has no softmax, so no sink.
  const float* sinks = nullptr;

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
  // Keys p - window_left <= j <= p + window_right are seen: neighbours on each
  // side, the query's own position not counted. -1: unlimited.
  int32_t window_left = -1;
  int32_t window_right = -1;
  // Only keys in the query's own chunk of this many positions (Llama 4); 0:
  // off.
  int32_t attention_chunk = 0;
  // [B]: causality does not hide the keys before this length (prefix-LM);
  // 0..S.
  const int32_t* prefix_lengths = nullptr;
  // [B]: query i stands at position query_offsets[b] + i; may be negative.
  // Null: 0. Contradicts Causal::kEnd, which has its own offset.
  const int32_t* query_offsets = nullptr;

  // By position: [B or 1, H or 1], with all query positions of the call and at
  // least its keys.
  const BlockMask* block_mask = nullptr;
  // Not for extra keys.
  ScoreMod score_mod = nullptr;
  void* score_context = nullptr;

  // Packed sequences of different lengths, one behind the other in one entry,
  // B = 1: sequence n has the queries [cumulative_query_lengths[n], [n + 1])
  // and the keys [cumulative_key_lengths[n], [n + 1]) and sees no others
  // (FlashAttention's cu_seqlens_q and cu_seqlens_k). Both are
  // [packed_sequences + 1], start at 0, never fall and end at L and S. What is
  // [B] above is [packed_sequences] then, with the lengths of each in the place
  // of L and S; masks and results keep the axes of the whole. The bits are
  // those of each sequence on its own. Scores of other sequences' keys are
  // -infinity, raw ones too.
  const int32_t* cumulative_query_lengths = nullptr;
  const int32_t* cumulative_key_lengths = nullptr;
  size_t packed_sequences = 0;

  // Keys and values [B or 1, Hkv, n, D or Dv] behind the others that every
  // query sees, whatever masks and positions say: PyTorch's bias_k, bias_v and
  // zero attention. n at most kMaxExtraKeys; weights get n more columns.
  static constexpr size_t kMaxExtraKeys = 128;
  HeadsView<const float> extra_key;
  HeadsView<const float> extra_value;

  // [H]: factor of each head's output, 0 to switch it off.
  const float* head_gates = nullptr;

  EmptyRows empty_rows = EmptyRows::kZero;
};

struct AttentionOutputs {
  // [B, H, L, Dv].
  HeadsView<float> output;
  // kPerHead: [B, H, L, S]; kAveraged: [B, L, S], the mean over the heads.
  // Contiguous; extra keys come last in S.
  WeightsKind weights_kind = WeightsKind::kNone;
  float* weights = nullptr;
  // [B, H, L] or null: log of the sum of exp(score) over the keys a query
  // sees; -infinity where it sees none.
  float* lse = nullptr;
  // [B, H, L] or null: the largest score a query sees (or its sink);
  // -infinity where it sees none, NaN where the row is NaN.
  float* row_max = nullptr;
  // [B, H, L, S], contiguous; S with the extra keys, as for the weights. With
  // a cache: -infinity beyond the length of an entry.
  ScoresKind scores_kind = ScoresKind::kNone;
  float* scores = nullptr;
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

// The same over the keys and values of a cache, the query's own among them:
// query i of entry b stands at position cache.length(b) - query_lengths[b] + i
// (L without query_lengths). key_lengths, key_padding_mask and query_offsets
// are the cache's to say and must not be given. S is the largest length of all
// entries. With a rolling cache masks, biases, weights and scores have no
// columns to belong to and are kInvalidArgument, window_left must be -1 or the
// cache's window - 1, and L at most kMaxRollingQueries. Its window reaches back
// from each query; without causality a query sees all that follows it, too, as
// far as it is appended and window_right lets it.
inline constexpr size_t kMaxRollingQueries = 64;
Status CachedAttention(const HeadsView<const float>& query,
                       const KvCache& cache, const AttentionOptions& options,
                       const AttentionOutputs& outputs, Workspace* workspace);

// A part of the weights or scores of a call, recomputed: rows [row_begin,
// row_end) of one head against keys [key_begin, key_end). Costs memory for
// what is asked and nothing else, however long the sequences are.
enum class TileKind : int {
  kWeights = 0,  // exp(score - lse); needs the lse of the forward pass
  kRaw = 1,
  kCapped = 2,
  kBiased = 3,
};
struct AttentionTileRequest {
  TileKind kind = TileKind::kWeights;
  size_t batch_entry = 0;
  size_t head = 0;
  size_t row_begin = 0;
  size_t row_end = 0;
  size_t key_begin = 0;
  size_t key_end = 0;
  const float* lse = nullptr;  // [B, H, L]
};
// query, key and options as in the forward pass; extra keys are not part of a
// tile. tile: [rows, keys], contiguous.
Status AttentionTile(const HeadsView<const float>& query,
                     const HeadsView<const float>& key,
                     const AttentionOptions& options,
                     const AttentionTileRequest& request, float* tile,
                     Workspace* workspace);

// Scratch that ScaledDotProductAttention needs for these sizes, whatever the
// options. Saturates at SIZE_MAX when it cannot be had.
size_t AttentionWorkspaceBytes(size_t query_length, size_t key_length,
                               size_t head_dim, size_t v_head_dim,
                               size_t extra_keys = 0);

}  // namespace headwise

#endif  // HEADWISE_ATTENTION_H_
