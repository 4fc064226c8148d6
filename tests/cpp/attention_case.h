// One call of ScaledDotProductAttention with everything it needs: made by
// hand or at random, run, and compared with the float64 oracle.
#ifndef HEADWISE_TESTS_CPP_ATTENTION_CASE_H_
#define HEADWISE_TESTS_CPP_ATTENTION_CASE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headwise/attention.h"
#include "headwise/status.h"
#include "reference/attention.h"
#include "test_util.h"

namespace headwise {

// A mask or bias of its own shape, each size 1 or the full one.
template <typename T>
struct MaskData {
  std::vector<T> data;  // empty: no mask
  size_t batch = 1;
  size_t heads = 1;
  size_t rows = 1;
  size_t keys = 1;

  size_t size() const { return batch * heads * rows * keys; }
  MaskView<T> view() const {
    MaskView<T> view;
    view.data = data.empty() ? nullptr : data.data();
    view.batch = batch;
    view.heads = heads;
    view.rows = rows;
    view.keys = keys;
    return view;
  }
};

// Results in logical order, whatever layout they were written in.
struct AttentionRun {
  Status status;
  std::vector<float> output;            // [B, H, L, Dv]
  std::vector<float> weights;           // [B, H, L, S]
  std::vector<float> averaged_weights;  // [B, L, S]
  std::vector<float> lse;               // [B, H, L]
  std::vector<float> row_max;           // [B, H, L]
  std::vector<float> raw;               // scores, [B, H, L, S]
  std::vector<float> capped;
  std::vector<float> biased;
};

struct AttentionCase {
  AttentionCase() = default;
  AttentionCase(size_t batch, size_t heads, size_t kv_heads, size_t rows,
                size_t keys, size_t head_dim, size_t v_head_dim,
                Layout layout = Layout::kHeadsFirst, size_t pad = 0);
  // Uniform numbers everywhere.
  void Fill(Random* random, float spread = 1.0f);

  // Views into this object, which must outlive them.
  AttentionOptions Options() const;
  // What a failing test prints.
  std::string Describe() const;

  size_t batch = 1;
  size_t heads = 1;
  size_t kv_heads = 1;
  size_t rows = 1;
  size_t keys = 1;
  size_t head_dim = 1;
  size_t v_head_dim = 1;
  Layout out_layout = Layout::kHeadsFirst;
  size_t out_pad = 0;

  HeadsTensor query;
  HeadsTensor key;
  HeadsTensor value;

  std::optional<float> scale;
  MaskData<uint8_t> attend;
  MaskData<float> bias;
  std::vector<uint8_t> padding;
  std::vector<int32_t> key_lengths;
  std::vector<int32_t> query_lengths;
  std::vector<int32_t> query_offsets;
  Causal causal = Causal::kNone;
  EmptyRows empty_rows = EmptyRows::kZero;
  float softcap = 0.0f;
  std::vector<float> alibi_slopes;
  std::vector<float> sinks;
  int32_t window_left = -1;
  int32_t window_right = -1;
  int32_t attention_chunk = 0;
  std::vector<int32_t> prefix_lengths;
  // Of packed sequences.
  std::vector<int32_t> cumulative_query_lengths;
  std::vector<int32_t> cumulative_key_lengths;
  const BlockMask* block_mask = nullptr;
  // The oracle does not know it.
  ScoreMod score_mod = nullptr;
  void* score_context = nullptr;
  // [B or 1, Hkv, n, D or Dv]
  HeadsTensor extra_key;
  HeadsTensor extra_value;
  std::vector<float> head_gates;

  size_t extra_keys() const { return extra_key.in().rows; }
  // Of a row of weights or scores.
  size_t columns() const { return keys + extra_keys(); }
};

// batch 1, one head, head width 1, scale 1: plain lists, as the rows of
// numbers in public bug reports are written.
AttentionCase ListCase(const std::vector<float>& query,
                       const std::vector<float>& key,
                       const std::vector<float>& value);

// Runs the core four times: without weights and scores, and with every kind
// of each. Checks that the output does not depend on which, that nothing is
// written outside the results, and that scratch memory full of NaN does not
// matter.
AttentionRun RunCore(const AttentionCase& test);

reference::AttentionResult RunOracle(const AttentionCase& test);

// Output, both kinds of weights, all kinds of scores, LSE and row maximum
// within tolerance.h.
void ExpectMatchesOracle(const AttentionCase& test);
void ExpectMatchesOracle(const AttentionCase& test, const AttentionRun& run);

// Runs, compares with the oracle and hands the results on.
AttentionRun RunAndCompare(const AttentionCase& test);

// NaN, +infinity and -infinity into every key and value that no query sees.
void PoisonHidden(AttentionCase* test, Random* random);

// Masks of one shape for [batch, heads, rows, keys]; `bits` 0..15 says which
// sizes are full.
template <typename T>
MaskData<T> BroadcastMask(const AttentionCase& test, unsigned bits) {
  MaskData<T> mask;
  mask.batch = (bits & 8) != 0 ? test.batch : 1;
  mask.heads = (bits & 4) != 0 ? test.heads : 1;
  mask.rows = (bits & 2) != 0 ? test.rows : 1;
  mask.keys = (bits & 1) != 0 ? test.keys : 1;
  return mask;
}

// A mask of shape [rows, keys].
template <typename T>
MaskData<T> MatrixMask(size_t rows, size_t keys, const std::vector<T>& data) {
  MaskData<T> mask;
  mask.rows = rows;
  mask.keys = keys;
  mask.data = data;
  return mask;
}

void AddRandomAttendMask(AttentionCase* test, Random* random, unsigned bits,
                         double keep);
// Numbers, and -infinity with probability `hide`.
void AddRandomBias(AttentionCase* test, Random* random, unsigned bits,
                   double hide);
// Masks, lengths and offsets of every kind, each with its own probability.
void AddRandomMasks(AttentionCase* test, Random* random);
// Windows, chunks, prefixes, and offsets without causality.
void AddRandomPositions(AttentionCase* test, Random* random);
// Softcap, ALiBi, sinks and gates.
void AddRandomScoreOptions(AttentionCase* test, Random* random);
void AddRandomExtraKeys(AttentionCase* test, Random* random);

}  // namespace headwise

#endif  // HEADWISE_TESTS_CPP_ATTENTION_CASE_H_
