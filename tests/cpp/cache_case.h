// A sequence of queries, keys and values fed to a key/value cache in steps.
#ifndef HEADWISE_TESTS_CPP_CACHE_CASE_H_
#define HEADWISE_TESTS_CPP_CACHE_CASE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention_case.h"
#include "headwise/attention.h"
#include "headwise/kv_cache.h"
#include "headwise/tensor_view.h"
#include "test_util.h"

namespace headwise {

// Rows [begin, end) of a view.
HeadsView<const float> RowsOf(const HeadsView<const float>& all, size_t begin,
                              size_t end);
TensorView<const float> RowsOf(const TensorView<const float>& all, size_t begin,
                               size_t end);

// Sizes of a case; with a window the capacity is 0.
KvCacheConfig CacheConfig(const AttentionCase& test, size_t capacity,
                          size_t window = 0, size_t sink_tokens = 0,
                          CacheType type = CacheType::kFloat32);

// A cache whose every slot holds NaN, and no token. Null, with a failure, when
// it is refused.
std::unique_ptr<KvCache> PoisonedCache(const KvCacheConfig& config);

struct CachedRun {
  Status status;
  std::vector<float> output;  // [B, H, L, Dv]
  std::vector<float> lse;     // [B, H, L]
};

// Appends the rows of test.key and test.value step by step, and attends with
// the same rows of test.query, with the case's options. The steps add up to
// test.rows == test.keys.
CachedRun RunSteps(const AttentionCase& test, const std::vector<size_t>& steps,
                   KvCache* cache);

// `total` in equal steps, the last one smaller.
std::vector<size_t> EqualSteps(size_t total, size_t step);
// `total` in random steps of at most `most`.
std::vector<size_t> RandomSteps(size_t total, size_t most, Random* random);

// What a rolling cache lets query i of `length` see: causal, a window that
// counts the query's own token, and the first tokens.
MaskData<uint8_t> RollingMask(size_t length, size_t window, size_t sink_tokens);

// Every token that is held, unpacked, with its position.
bool SameHeldTokens(const KvCache& a, const KvCache& b);

}  // namespace headwise

#endif  // HEADWISE_TESTS_CPP_CACHE_CASE_H_
