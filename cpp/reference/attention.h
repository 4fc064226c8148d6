// Attention in float64 with plain loops: what every kernel is compared with.
// It reads like the formulas and knows nothing of tiles, chunks or vectors.
#ifndef HEADWISE_REFERENCE_ATTENTION_H_
#define HEADWISE_REFERENCE_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "headwise/attention.h"
#include "headwise/tensor_view.h"

namespace headwise {
namespace reference {

struct AttentionResult {
  size_t batch = 0;
  size_t heads = 0;
  size_t rows = 0;    // L
  size_t keys = 0;    // S, the extra keys at its end included
  size_t v_cols = 0;  // Dv

  // [B, H, L, S]: scale * q.k, whatever is hidden; -infinity at the keys of
  // another packed sequence.
  std::vector<double> raw;
  // The same after the softcap.
  std::vector<double> capped;
  // With ALiBi and bias; -infinity where the query may not look.
  std::vector<double> scores;
  std::vector<double> weights;           // [B, H, L, S]
  std::vector<double> averaged_weights;  // [B, L, S]
  std::vector<double> output;            // [B, H, L, Dv]
  std::vector<double> lse;               // [B, H, L]
  // [B, H, L]: the largest score that is seen, the sink among them.
  std::vector<double> row_max;
};

// The sequence that row i of entry b belongs to: one of the packed ones, or the
// entry itself.
struct SequenceOfRow {
  size_t index = 0;  // into arrays with one value a sequence
  size_t query_begin = 0;
  size_t queries = 0;
  size_t key_begin = 0;
  size_t keys = 0;

  bool HasKey(size_t j) const { return j >= key_begin && j - key_begin < keys; }
};
SequenceOfRow FindSequence(const AttentionOptions& options, size_t b, size_t i,
                           size_t rows, size_t keys);

// Where query i of sequence b, which has `rows` queries, stands among its
// `keys` keys.
int64_t PositionOf(const AttentionOptions& options, size_t b, size_t i,
                   size_t rows, size_t keys);

// What ALiBi adds at key j.
double Alibi(const AttentionOptions& options, size_t h, int64_t position,
             size_t j);

// T: float, or double for sizes that are themselves results. The arguments
// must be valid: nothing is checked here. A score_mod is the caller's code and
// none of the formula: it is left out.
template <typename T>
AttentionResult ScaledDotProductAttention(const HeadsView<const T>& query,
                                          const HeadsView<const T>& key,
                                          const HeadsView<const T>& value,
                                          const AttentionOptions& options);

}  // namespace reference
}  // namespace headwise

#endif  // HEADWISE_REFERENCE_ATTENTION_H_
