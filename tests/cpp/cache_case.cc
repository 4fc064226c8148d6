#include "cache_case.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "headwise/workspace.h"

namespace headwise {

HeadsView<const float> RowsOf(const HeadsView<const float>& all, size_t begin,
                              size_t end) {
  HeadsView<const float> part = all;
  part.data += begin * all.row_stride;
  part.rows = end - begin;
  return part;
}

TensorView<const float> RowsOf(const TensorView<const float>& all, size_t begin,
                               size_t end) {
  TensorView<const float> part = all;
  part.data += begin * all.row_stride;
  part.rows = end - begin;
  return part;
}

KvCacheConfig CacheConfig(const AttentionCase& test, size_t capacity,
                          size_t window, size_t sink_tokens, CacheType type) {
  KvCacheConfig config;
  config.batch = test.batch;
  config.num_kv_heads = test.kv_heads;
  config.head_dim = test.head_dim;
  config.v_head_dim = test.v_head_dim;
  config.capacity = window == 0 ? capacity : 0;
  config.window = window;
  config.sink_tokens = sink_tokens;
  config.type = type;
  return config;
}

std::unique_ptr<KvCache> PoisonedCache(const KvCacheConfig& config) {
  std::unique_ptr<KvCache> cache;
  const Status status = KvCache::Create(config, &cache);
  EXPECT_TRUE(status.ok()) << status.message();
  if (!status.ok()) return nullptr;
  const KvCacheConfig& c = cache->config();
  const size_t rows =
      c.window == 0 ? c.capacity : 2 * (c.window + c.sink_tokens) + 200;
  HeadsTensor key(Layout::kHeadsFirst, c.batch, c.num_kv_heads, rows,
                  c.head_dim, 0);
  HeadsTensor value(Layout::kHeadsFirst, c.batch, c.num_kv_heads, rows,
                    c.v_head_dim, 0);
  key.SetDense(
      std::vector<float>(c.batch * c.num_kv_heads * rows * c.head_dim, kNan));
  value.SetDense(
      std::vector<float>(c.batch * c.num_kv_heads * rows * c.v_head_dim, kNan));
  const Status appended = cache->Append(key.in(), value.in(), nullptr);
  EXPECT_TRUE(appended.ok()) << appended.message();
  for (size_t b = 0; b < c.batch; ++b) {
    const Status cropped = cache->Crop(b, 0);
    EXPECT_TRUE(cropped.ok()) << cropped.message();
  }
  return cache;
}

CachedRun RunSteps(const AttentionCase& test, const std::vector<size_t>& steps,
                   KvCache* cache) {
  CachedRun run;
  HeadsTensor output(Layout::kHeadsLast, test.batch, test.heads, test.rows,
                     test.v_head_dim, 3);
  HeadsTensor lse(Layout::kHeadsFirst, test.batch, test.heads, test.rows, 1, 0);
  Workspace workspace;
  size_t row = 0;
  for (const size_t step : steps) {
    run.status =
        cache->Append(RowsOf(test.key.in(), row, row + step),
                      RowsOf(test.value.in(), row, row + step), nullptr);
    if (!run.status.ok()) return run;
    if (workspace.bytes() != 0) {
      std::memset(workspace.data(), 0xFF, workspace.bytes());  // NaN
    }
    HeadsView<float> out = output.out();
    out.data += row * out.row_stride;
    out.rows = step;
    std::vector<float> step_lse(test.batch * test.heads * step);
    AttentionOutputs outputs;
    outputs.output = out;
    outputs.lse = step_lse.data();
    run.status = CachedAttention(RowsOf(test.query.in(), row, row + step),
                                 *cache, test.Options(), outputs, &workspace);
    if (!run.status.ok()) return run;
    for (size_t n = 0; n < step_lse.size(); ++n) {
      const size_t head = n / step;
      lse.At(head / test.heads, head % test.heads, row + n % step, 0) =
          step_lse[n];
    }
    row += step;
  }
  EXPECT_TRUE(output.GuardsIntact()) << "written outside the output";
  run.output = output.Dense();
  run.lse = lse.Dense();
  return run;
}

std::vector<size_t> EqualSteps(size_t total, size_t step) {
  std::vector<size_t> steps;
  for (size_t row = 0; row < total; row += step) {
    steps.push_back(std::min(step, total - row));
  }
  return steps;
}

std::vector<size_t> RandomSteps(size_t total, size_t most, Random* random) {
  std::vector<size_t> steps;
  for (size_t row = 0; row < total; row += steps.back()) {
    steps.push_back(random->Between(1, std::min(most, total - row)));
  }
  return steps;
}

MaskData<uint8_t> RollingMask(size_t length, size_t window,
                              size_t sink_tokens) {
  MaskData<uint8_t> mask;
  mask.rows = length;
  mask.keys = length;
  for (size_t i = 0; i < length; ++i) {
    for (size_t j = 0; j < length; ++j) {
      mask.data.push_back(j <= i && (j < sink_tokens || i - j < window));
    }
  }
  return mask;
}

bool SameHeldTokens(const KvCache& a, const KvCache& b) {
  const KvCacheConfig& c = a.config();
  for (size_t entry = 0; entry < c.batch; ++entry) {
    if (a.length(entry) != b.length(entry)) return false;
    for (size_t position = 0; position < a.length(entry); ++position) {
      if (a.Holds(entry, position) != b.Holds(entry, position)) return false;
      for (size_t head = 0; head < c.num_kv_heads; ++head) {
        std::vector<float> rows[2];
        for (size_t n = 0; n < 2; ++n) {
          rows[n].resize(c.head_dim + c.v_head_dim);
          (n == 0 ? a : b)
              .Unpack(entry, head, position, 1, rows[n].data(),
                      rows[n].data() + c.head_dim);
        }
        if (!SameBits(rows[0], rows[1])) return false;
      }
    }
  }
  return true;
}

}  // namespace headwise
