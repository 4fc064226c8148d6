// Keys and values of the tokens so far, so that a next token costs one row.
#ifndef HEADWISE_KV_CACHE_H_
#define HEADWISE_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "headwise/status.h"
#include "headwise/tensor_view.h"

namespace headwise {

enum class CacheType : int {
  kFloat32 = 0,
  kFloat16 = 1,
  kBFloat16 = 2,
  kInt8 = 3,  // one scale a row: max |x| / 127
};

struct KvCacheConfig {
  size_t batch = 1;
  size_t num_kv_heads = 0;
  size_t head_dim = 0;
  size_t v_head_dim = 0;  // 0: head_dim
  // Tokens an entry may hold; appending more is an error. Not with a window.
  size_t capacity = 0;
  // Rolling: the last `window` tokens are kept, a query's own included, and
  // the first `sink_tokens` (Xiao et al. 2023); what lies between is dropped.
  // 0: nothing is dropped.
  size_t window = 0;
  size_t sink_tokens = 0;
  CacheType type = CacheType::kFloat32;
};

class KvCache {
 public:
  static Status Create(const KvCacheConfig& config,
                       std::unique_ptr<KvCache>* out);
  ~KvCache();

  // Appends counts[b] rows (null: all) of key [B, Hkv, n, D] and value
  // [B, Hkv, n, Dv] to entry b. kInvalidArgument past the capacity, with
  // nothing appended.
  Status Append(const HeadsView<const float>& key,
                const HeadsView<const float>& value, const int32_t* counts);
  // Room for counts[b] (null: n) more tokens in every entry?
  Status CheckRoom(size_t n, const int32_t* counts) const;

  // Forgets the tokens of entry b from position `length` on. A rolling cache
  // that has dropped what would be its window then is kInvalidArgument.
  Status Crop(size_t b, size_t length);
  // Entry b becomes what entry source[b] is (beam search).
  Status Reorder(const int32_t* source);
  // A copy.
  Status Fork(std::unique_ptr<KvCache>* out) const;
  void Clear();

  // Tokens appended so far: where the next one stands.
  size_t length(size_t b) const;
  // Positions [first, first + count) as rows of the storage type: the f-th
  // element of a row is of 4, 2, 2 or 1 bytes. Scales (kInt8) one a row, or
  // null. Only positions that are held.
  Status Read(size_t b, size_t kv_head, size_t first, size_t count, void* key,
              float* key_scale, void* value, float* value_scale) const;
  // The inverse, for restoring; SetLength afterwards says how much is valid.
  Status Write(size_t b, size_t kv_head, size_t first, size_t count,
               const void* key, const float* key_scale, const void* value,
               const float* value_scale);
  // Of a rolling cache `oldest` is the first token that was written, but for
  // the sink tokens.
  Status SetLength(size_t b, size_t length, size_t oldest = 0);
  // Whether the position is still held.
  bool Holds(size_t b, size_t position) const;

  const KvCacheConfig& config() const;
  size_t bytes() const;

  // Rows [first, first + count) as float32, D and Dv wide; positions that are
  // no longer held give zeros.
  void Unpack(size_t b, size_t kv_head, size_t first, size_t count, float* key,
              float* value) const;
  // The same where they are stored, D and Dv apart: with kFloat32 and without a
  // window. Null otherwise.
  const float* KeyRows(size_t b, size_t kv_head, size_t first) const;
  const float* ValueRows(size_t b, size_t kv_head, size_t first) const;
  // The largest length of all entries.
  size_t max_length() const;

 private:
  class Storage;
  KvCache();
  std::unique_ptr<Storage> storage_;
};

}  // namespace headwise

#endif  // HEADWISE_KV_CACHE_H_
