#include "attend.h"

#include <algorithm>
#include <string>
#include <utility>

namespace headwise {
namespace conformance {
namespace {

// `past` and behind it, entry by entry, the new rows; `rows` in all.
Heads Joined(const Heads& past, const std::vector<int32_t>& lengths,
             const Heads& x, const std::vector<int32_t>& new_lengths,
             size_t rows) {
  Heads all = {false, x.batch, x.heads, rows, x.cols, {}};
  all.data.resize(all.size());
  const HeadsView<float> to = all.MutableView();
  for (size_t b = 0; b < x.batch; ++b) {
    const size_t before = static_cast<size_t>(lengths[b]);
    const size_t count =
        new_lengths.empty() ? x.rows : static_cast<size_t>(new_lengths[b]);
    for (size_t h = 0; h < x.heads; ++h) {
      for (size_t i = 0; i < before + count; ++i) {
        const float* row = i < before ? past.View().Row(b, h, i)
                                      : x.View().Row(b, h, i - before);
        std::copy(row, row + x.cols, to.Row(b, h, i));
      }
    }
  }
  return all;
}

Result ReadBack(const KvCache& cache, size_t rows, bool keys) {
  const KvCacheConfig& config = cache.config();
  const size_t v_cols =
      config.v_head_dim == 0 ? config.head_dim : config.v_head_dim;
  const size_t cols = keys ? config.head_dim : v_cols;
  Result result = {{config.batch, config.num_kv_heads, rows, cols}, {}, {}};
  result.values.resize(SizeOf(result.shape));
  for (size_t b = 0; b < config.batch; ++b) {
    const size_t count = std::min(rows, cache.length(b));
    std::vector<float> key(count * config.head_dim), value(count * v_cols);
    for (size_t h = 0; h < config.num_kv_heads; ++h) {
      cache.Unpack(b, h, 0, count, key.data(), value.data());
      const std::vector<float>& from = keys ? key : value;
      std::copy(
          from.begin(), from.end(),
          result.values.begin() + (b * config.num_kv_heads + h) * rows * cols);
    }
  }
  return result;
}

}  // namespace

std::optional<Past> ReadPast(Case* c, size_t heads) {
  const Case::Rules rules = {{"F32"}, {4}};
  const Tensor* key = c->Input("past_key", rules);
  const Tensor* value = c->Input("past_value", rules);
  if (key == nullptr && value == nullptr) return std::nullopt;
  if (key == nullptr || value == nullptr) {
    throw CaseError("of in.past_key and in.past_value one is missing");
  }
  Past past = {ReadHeads(*key, heads), ReadHeads(*value, heads), {}};
  past.lengths.assign(past.key.batch, static_cast<int32_t>(past.key.rows));
  return past;
}

void CheckPast(const Past& past, const Heads& key, const Heads& value) {
  const auto fits = [](const Heads& a, const Heads& b) {
    return a.batch == b.batch && a.heads == b.heads && a.cols == b.cols;
  };
  if (!fits(past.key, key) || !fits(past.value, value) ||
      past.key.rows != past.value.rows) {
    throw CaseError("the past does not fit the new keys and values");
  }
}

std::unique_ptr<KvCache> FillCache(const Past* past, const Heads& key,
                                   const Heads& value, size_t rows) {
  KvCacheConfig config;
  config.batch = key.batch;
  config.num_kv_heads = key.heads;
  config.head_dim = key.cols;
  config.v_head_dim = value.cols;
  config.capacity =
      std::max<size_t>(1, (past == nullptr ? 0 : past->key.rows) + rows);
  std::unique_ptr<KvCache> cache;
  Check(KvCache::Create(config, &cache));
  if (past != nullptr) {
    Check(cache->Append(past->key.View(), past->value.View(),
                        past->lengths.data()));
  }
  return cache;
}

Result CachedKeys(const KvCache& cache, size_t rows) {
  return ReadBack(cache, rows, /*keys=*/true);
}

Result CachedValues(const KvCache& cache, size_t rows) {
  return ReadBack(cache, rows, /*keys=*/false);
}

size_t Attention::past_rows() const {
  if (!past) return 0;
  if (past->lengths.empty()) return past->key.rows;
  return static_cast<size_t>(
      *std::max_element(past->lengths.begin(), past->lengths.end()));
}

size_t Attention::key_rows() const {
  return std::max(past_rows() + key.rows, columns);
}

Attended Attend(const Attention& call, const AttentionOptions& options,
                const FiniteRule& rule, Case* c, Masks* masks) {
  if (call.past) CheckPast(*call.past, call.key, call.value);
  if (call.past && masks->offsets.empty()) {
    masks->offsets = call.past->lengths;
  }
  const size_t rows = call.key_rows();
  const Sizes sizes = {call.query.batch, call.query.heads, call.query.rows,
                       rows};
  // The cache's queries are its last tokens, and it says itself what it holds;
  // it has a column for each token of its longest entry.
  const bool cached =
      call.past && call.query.batch > 0 && call.query.batch == call.key.batch &&
      call.query.rows == call.key.rows && call.new_lengths.empty() &&
      masks->lengths.empty() && rows == call.past_rows() + call.key.rows;
  if (cached) FoldPadding(sizes, masks);
  AttentionOptions all = MaskOptions(options, sizes, rule, c, masks);

  Attended result;
  result.output = {call.query.split, sizes.batch,     sizes.heads,
                   sizes.queries,    call.value.cols, {}};
  result.output.data.resize(result.output.size());
  AttentionOutputs outputs;
  outputs.output = result.output.MutableView();
  result.scores.shape = {sizes.batch, sizes.heads, sizes.queries, rows};
  if (call.need_weights || call.scores_kind != ScoresKind::kNone) {
    result.scores.values.resize(SizeOf(result.scores.shape));
  }
  if (call.need_weights) {
    outputs.weights_kind = WeightsKind::kPerHead;
    outputs.weights = result.scores.values.data();
  } else if (call.scores_kind != ScoresKind::kNone) {
    outputs.scores_kind = call.scores_kind;
    outputs.scores = result.scores.values.data();
  }

  Workspace workspace;
  if (cached) {
    const std::unique_ptr<KvCache> cache =
        FillCache(&*call.past, call.key, call.value, call.key.rows);
    Check(cache->Append(call.key.View(), call.value.View(), nullptr));
    all.query_offsets = nullptr;
    Check(CachedAttention(call.query.View(), *cache, all, outputs, &workspace));
    result.present_key = CachedKeys(*cache, rows);
    result.present_value = CachedValues(*cache, rows);
    return result;
  }
  Heads key = call.key, value = call.value;
  if (call.past) {
    key =
        Joined(call.past->key, call.past->lengths, key, call.new_lengths, rows);
    value = Joined(call.past->value, call.past->lengths, value,
                   call.new_lengths, rows);
  }
  Check(ScaledDotProductAttention(call.query.View(), key.View(), value.View(),
                                  all, outputs, &workspace));
  result.present_key = HeadsFirst(key);
  result.present_value = HeadsFirst(value);
  return result;
}

}  // namespace conformance
}  // namespace headwise
