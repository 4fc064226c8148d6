// Kind `ort_gqa`: onnxruntime's contrib operator GroupQueryAttention. Entries
// of a batch have pasts of different lengths, in buffers that may be longer.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "adapters.h"
#include "attend.h"
#include "heads.h"
#include "masks.h"
#include "rotary_table.h"

namespace headwise {
namespace conformance {
namespace {

void ReadQueryKeyValue(Case* c, Attention* call) {
  const size_t heads = c->Size("num_heads", std::nullopt);
  const size_t kv_heads = c->Size("kv_num_heads", std::nullopt);
  const Case::Rules rules = {{"F32"}, {3}};
  const Tensor& query = c->RequiredInput("query", rules);
  const Tensor* key = c->Input("key", rules);
  const Tensor* value = c->Input("value", rules);
  if ((key == nullptr) != (value == nullptr)) {
    throw CaseError("of in.key and in.value one is missing");
  }
  if (key != nullptr) {
    call->query = ReadHeads(query, heads);
    call->key = ReadHeads(*key, kv_heads);
    call->value = ReadHeads(*value, kv_heads);
    if (call->key.rows != call->query.rows) {
      throw CaseError("in.key and in.query differ in length");
    }
    return;
  }
  const Heads packed = ReadHeads(query, heads + 2 * kv_heads);
  call->query = SelectHeads(packed, 0, heads);
  call->key = SelectHeads(packed, heads, kv_heads);
  call->value = SelectHeads(packed, heads + kv_heads, kv_heads);
}

// [B], the valid keys of each entry.
std::vector<int32_t> ReadTotals(Case* c, size_t batch) {
  const Tensor& last = c->RequiredInput("seqlens_k", {{"I32", "I64"}, {1, 2}});
  if (last.values.size() != batch) {
    throw CaseError("in.seqlens_k has " + std::to_string(last.values.size()) +
                    " entries, want " + std::to_string(batch));
  }
  std::vector<int32_t> totals;
  for (const double value : last.values) {
    totals.push_back(static_cast<int32_t>(value) + 1);
  }
  return totals;
}

// in.total_sequence_length, the longest entry of the batch.
size_t ReadLongest(Case* c, const std::vector<int32_t>& totals) {
  const Tensor* given =
      c->Input("total_sequence_length", {{"I32", "I64"}, {0, 1}});
  size_t longest = 0;
  for (const int32_t total : totals) {
    if (total < 0) throw CaseError("in.seqlens_k is below -1");
    longest = std::max(longest, static_cast<size_t>(total));
  }
  if (given == nullptr) return longest;
  if (given->values.size() != 1 ||
      given->values[0] < static_cast<double>(longest)) {
    throw CaseError("in.total_sequence_length is below in.seqlens_k + 1");
  }
  return static_cast<size_t>(given->values[0]);
}

// The past of `call`, and how many new rows count.
void SetPast(Case* c, const std::vector<int32_t>& totals, size_t longest,
             Attention* call, Masks* masks) {
  const Heads& key = call->key;
  call->past = ReadPast(c, key.heads);
  if (!call->past) {
    call->past = Past{{false, key.batch, key.heads, 0, key.cols, {}},
                      {false, key.batch, key.heads, 0, call->value.cols, {}},
                      {}};
  }
  Past& past = *call->past;
  past.lengths.clear();
  const int32_t rows = static_cast<int32_t>(key.rows);
  bool short_entry = false;
  for (const int32_t total : totals) {
    // The first call of all: shorter entries are padded behind their end.
    const bool first = longest == key.rows;
    const int32_t before = first ? 0 : total - rows;
    if (before < 0 || before > static_cast<int32_t>(past.key.rows)) {
      throw CaseError("in.seqlens_k leaves a past of " +
                      std::to_string(before) + " rows, of " +
                      std::to_string(past.key.rows));
    }
    past.lengths.push_back(before);
    call->new_lengths.push_back(total - before);
    short_entry |= total - before < rows;
  }
  if (short_entry) {
    masks->lengths = totals;
  } else {
    call->new_lengths.clear();
  }
}

void Rotate(Case* c, Attention* call) {
  const bool interleaved = c->Flag("rotary_interleaved", false);
  const Tensor* cos = c->Input("cos_cache", {{"F32"}, {2}});
  c->Input("sin_cache", {{"F32"}, {2}});
  if (!c->Flag("do_rotary", false)) return;
  if (cos == nullptr) throw CaseError("in.cos_cache is missing");
  const RotaryTables tables(c, cos->shape[1], interleaved);
  RotaryPositions where;
  where.offsets = call->past->lengths.data();
  Check(RotaryEmbedding(tables.table(), where, call->query.MutableView()));
  Check(RotaryEmbedding(tables.table(), where, call->key.MutableView()));
}

// [H], what joins the softmax of each head; empty: nothing.
std::vector<float> ReadSinks(Case* c, size_t heads) {
  const int64_t smooth = c->Integer("smooth_softmax").value_or(0);
  if (smooth < -1 || smooth > 1) {
    throw CaseError("attr.smooth_softmax is neither -1, 0 nor 1");
  }
  const Tensor* sink = c->Input("head_sink", {{"F32"}, {1}});
  if (sink == nullptr) return std::vector<float>(smooth == 1 ? heads : 0);
  if (smooth == 1) {
    throw CaseError("attr.smooth_softmax=1 together with in.head_sink");
  }
  if (sink->values.size() != heads) {
    throw CaseError("in.head_sink has " + std::to_string(sink->values.size()) +
                    " entries, want " + std::to_string(heads));
  }
  return sink->Floats();
}

void ReadPositions(Case* c, Masks* masks) {
  masks->causal = true;
  const int64_t window = c->Integer("local_window_size").value_or(-1);
  if (window > 0) masks->window_left = window - 1;
  const Tensor* bias = c->Input("attention_bias", {{"F32"}, {1, 2, 3, 4}});
  if (bias != nullptr) masks->bias = FloatMask(*bias, ToRank4(bias->shape));
}

// The buffer wanted, `rows` long; what lies behind an entry's end is open.
Result Buffer(const Result& present, size_t rows,
              const std::vector<int32_t>& totals) {
  const Shape& shape = present.shape;
  Result buffer = {{shape[0], shape[1], rows, shape[3]}, {}, {}};
  for (size_t b = 0; b < shape[0]; ++b) {
    for (size_t h = 0; h < shape[1]; ++h) {
      for (size_t i = 0; i < rows; ++i) {
        const bool open = static_cast<int64_t>(i) >= totals[b];
        for (size_t k = 0; k < shape[3]; ++k) {
          const size_t from =
              ((b * shape[1] + h) * shape[2] + i) * shape[3] + k;
          buffer.values.push_back(open ? 0.0f : present.values[from]);
          buffer.unspecified.push_back(open ? 1 : 0);
        }
      }
    }
  }
  return buffer;
}

}  // namespace

Results RunOrtGqa(Case* c) {
  Attention call;
  Masks masks;
  ReadQueryKeyValue(c, &call);
  const std::vector<int32_t> totals = ReadTotals(c, call.key.batch);
  const size_t longest = ReadLongest(c, totals);
  SetPast(c, totals, longest, &call, &masks);
  CheckPast(*call.past, call.key, call.value);
  Rotate(c, &call);
  ReadPositions(c, &masks);
  if (masks.bias.present) call.columns = masks.bias.shape[3];

  AttentionOptions options;
  const double scale = c->Number("scale").value_or(0.0);
  if (scale != 0.0) options.scale = static_cast<float>(scale);
  const double softcap = c->Number("softcap").value_or(0.0);
  if (softcap > 0.0) options.softcap = static_cast<float>(softcap);
  const std::vector<float> sinks = ReadSinks(c, call.query.heads);
  if (!sinks.empty()) options.sinks = sinks.data();

  const size_t rows = std::max(longest, call.past->key.rows);
  Attended attended = Attend(call, options, FiniteRule(), c, &masks);
  Results results;
  results["output"] = {
      attended.output.shape(), std::move(attended.output.data), {}};
  results["present_key"] = Buffer(attended.present_key, rows, totals);
  results["present_value"] = Buffer(attended.present_value, rows, totals);
  return results;
}

}  // namespace conformance
}  // namespace headwise
