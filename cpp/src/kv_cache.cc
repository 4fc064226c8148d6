#include "headwise/kv_cache.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include "cache_rows.h"
#include "kernels/kernels.h"
#include "memory.h"
#include "view_checks.h"

namespace headwise {
namespace {

// A rolling cache takes tokens in, block by block, before it drops any: the
// first query of a block still needs its whole window.
constexpr size_t kRollingSlack = kernels::kQueryBlock;
// Positions and windows are int32 wherever attention counts with them.
constexpr size_t kMostTokens = INT32_MAX;

Status Positive(const char* name, size_t value) {
  if (value >= 1) return Status();
  return Status::Error(StatusCode::kInvalidConfig,
                       "KvCache: %s is 0; it must be at least 1", name);
}

}  // namespace

// Rows by slot: [B][Hkv][slots][D]. Position p of a rolling cache lies in slot
// p among the first tokens, and behind them in a ring.
class KvCache::Storage {
 public:
  KvCacheConfig config;
  size_t slots = 0;
  AlignedBuffer<size_t> lengths;
  // Rolling: behind the sink tokens, the first that is still in the ring.
  // Cropping does not bring back what later tokens have overwritten.
  AlignedBuffer<size_t> oldest;
  AlignedBuffer<unsigned char> keys;
  AlignedBuffer<unsigned char> values;
  AlignedBuffer<float> key_scales;
  AlignedBuffer<float> value_scales;

  // Rows are float32, one behind the other in order of their positions.
  bool plain() const {
    return config.type == CacheType::kFloat32 && config.window == 0;
  }
  size_t ring() const { return config.window + kRollingSlack; }
  size_t Slot(size_t position) const {
    if (config.window == 0 || position < config.sink_tokens) return position;
    return config.sink_tokens + (position - config.sink_tokens) % ring();
  }
  size_t Row(size_t b, size_t kv_head, size_t position) const {
    return (b * config.num_kv_heads + kv_head) * slots + Slot(position);
  }
  unsigned char* Key(size_t row) {
    return keys.data() + row * config.head_dim * BytesOf(config.type);
  }
  unsigned char* Value(size_t row) {
    return values.data() + row * config.v_head_dim * BytesOf(config.type);
  }
  const unsigned char* Key(size_t row) const {
    return const_cast<Storage*>(this)->Key(row);
  }
  const unsigned char* Value(size_t row) const {
    return const_cast<Storage*>(this)->Value(row);
  }
  bool Holds(size_t b, size_t position) const {
    if (position >= lengths.data()[b]) return false;
    return config.window == 0 || position < config.sink_tokens ||
           position >= oldest.data()[b];
  }
  void SetLength(size_t b, size_t length, size_t least) {
    lengths.data()[b] = length;
    if (config.window == 0) return;
    oldest.data()[b] = std::max(least, length - std::min(length, ring()));
  }
  void Clear() {
    std::fill(lengths.data(), lengths.data() + config.batch, size_t{0});
    std::fill(oldest.data(), oldest.data() + config.batch, size_t{0});
  }
  // One entry of another cache of the same configuration.
  void CopyEntry(const Storage& from, size_t source, size_t b) {
    const size_t rows = config.num_kv_heads * slots;
    const auto copy = [&](auto* to, const auto* data, size_t width) {
      std::memcpy(to + b * rows * width, data + source * rows * width,
                  rows * width * sizeof(*to));
    };
    const size_t size = BytesOf(config.type);
    copy(keys.data(), from.keys.data(), config.head_dim * size);
    copy(values.data(), from.values.data(), config.v_head_dim * size);
    if (config.type == CacheType::kInt8) {
      copy(key_scales.data(), from.key_scales.data(), 1);
      copy(value_scales.data(), from.value_scales.data(), 1);
    }
    lengths.data()[b] = from.lengths.data()[source];
    oldest.data()[b] = from.oldest.data()[source];
  }
  bool Allocate() {
    const KvCacheConfig& c = config;
    if (std::max({c.capacity, c.window, c.sink_tokens}) > kMostTokens) {
      return false;
    }
    slots = c.window == 0 ? c.capacity : SaturatingAdd(c.sink_tokens, ring());
    const size_t rows =
        SaturatingMul(SaturatingMul(c.batch, c.num_kv_heads), slots);
    const size_t size = BytesOf(c.type);
    const size_t scales = c.type == CacheType::kInt8 ? rows : 0;
    if (!lengths.Allocate(c.batch) || !oldest.Allocate(c.batch) ||
        !key_scales.Allocate(scales) || !value_scales.Allocate(scales) ||
        !keys.Allocate(SaturatingMul(rows, SaturatingMul(c.head_dim, size))) ||
        !values.Allocate(
            SaturatingMul(rows, SaturatingMul(c.v_head_dim, size)))) {
      return false;
    }
    Clear();
    return true;
  }
};

KvCache::KvCache() = default;
KvCache::~KvCache() = default;

Status KvCache::Create(const KvCacheConfig& config,
                       std::unique_ptr<KvCache>* out) {
  HEADWISE_RETURN_IF_ERROR(CheckPointer("KvCache", "out", out));
  KvCacheConfig c = config;
  if (c.v_head_dim == 0) c.v_head_dim = c.head_dim;
  HEADWISE_RETURN_IF_ERROR(Positive("batch", c.batch));
  HEADWISE_RETURN_IF_ERROR(Positive("num_kv_heads", c.num_kv_heads));
  HEADWISE_RETURN_IF_ERROR(Positive("head_dim", c.head_dim));
  if (static_cast<int>(c.type) < 0 ||
      static_cast<int>(c.type) > static_cast<int>(CacheType::kInt8)) {
    return Status::Error(StatusCode::kInvalidConfig,
                         "KvCache: type %d is no value of its enum",
                         static_cast<int>(c.type));
  }
  if (c.window == 0) {
    HEADWISE_RETURN_IF_ERROR(Positive("capacity", c.capacity));
    if (c.sink_tokens != 0) {
      return Status::Error(StatusCode::kInvalidConfig,
                           "KvCache: sink_tokens is %zu without a window; only "
                           "a rolling cache drops what sink_tokens would keep",
                           c.sink_tokens);
    }
  } else if (c.capacity != 0) {
    return Status::Error(StatusCode::kInvalidConfig,
                         "KvCache: capacity %zu and window %zu contradict: a "
                         "rolling cache takes any number of tokens; give one",
                         c.capacity, c.window);
  }
  std::unique_ptr<KvCache> made(new (std::nothrow) KvCache());
  if (made != nullptr) made->storage_.reset(new (std::nothrow) Storage());
  if (made != nullptr && made->storage_ != nullptr) {
    made->storage_->config = c;
    if (made->storage_->Allocate()) {
      *out = std::move(made);
      return Status();
    }
  }
  return Status::Error(StatusCode::kOutOfMemory,
                       "KvCache: %zu entries, %zu heads, %zu tokens of %zu and "
                       "%zu values could not be had; use a smaller capacity, a "
                       "window, or a smaller type",
                       c.batch, c.num_kv_heads, c.window + c.capacity,
                       c.head_dim, c.v_head_dim);
}

Status KvCache::CheckRoom(size_t n, const int32_t* counts) const {
  const KvCacheConfig& c = config();
  for (size_t b = 0; b < c.batch; ++b) {
    if (counts != nullptr &&
        (counts[b] < 0 || static_cast<size_t>(counts[b]) > n)) {
      return Status::Error(StatusCode::kInvalidArgument,
                           "KvCache: counts[%zu] is %d; it must be 0 to %zu", b,
                           static_cast<int>(counts[b]), n);
    }
    const size_t count = counts == nullptr ? n : static_cast<size_t>(counts[b]);
    const size_t most = c.window == 0 ? c.capacity : kMostTokens;
    if (count <= most - length(b)) continue;
    return Status::Error(StatusCode::kInvalidArgument,
                         "KvCache: entry %zu holds %zu tokens of %zu, %zu more "
                         "do not fit; use a larger capacity, crop, or a window",
                         b, length(b), most, count);
  }
  return Status();
}

Status KvCache::Append(const HeadsView<const float>& key,
                       const HeadsView<const float>& value,
                       const int32_t* counts) {
  Storage& s = *storage_;
  const KvCacheConfig& c = s.config;
  if (key.batch != c.batch || value.batch != c.batch ||
      key.heads != c.num_kv_heads || value.heads != c.num_kv_heads ||
      key.rows != value.rows || key.cols != c.head_dim ||
      value.cols != c.v_head_dim) {
    return Status::Error(
        StatusCode::kShapeMismatch,
        "KvCache: key [%zu, %zu, %zu, %zu] and value [%zu, %zu, %zu, %zu] must "
        "be [%zu, %zu, n, %zu] and [.., %zu]",
        key.batch, key.heads, key.rows, key.cols, value.batch, value.heads,
        value.rows, value.cols, c.batch, c.num_kv_heads, c.head_dim,
        c.v_head_dim);
  }
  HEADWISE_RETURN_IF_ERROR(CheckData("KvCache", "key", key));
  HEADWISE_RETURN_IF_ERROR(CheckData("KvCache", "value", value));
  HEADWISE_RETURN_IF_ERROR(CheckRoom(key.rows, counts));
  for (size_t b = 0; b < c.batch; ++b) {
    const size_t count =
        counts == nullptr ? key.rows : static_cast<size_t>(counts[b]);
    for (size_t i = 0; i < count; ++i) {
      for (size_t head = 0; head < c.num_kv_heads; ++head) {
        const size_t row = s.Row(b, head, length(b) + i);
        StoreRow(c.type, key.Row(b, head, i), c.head_dim, s.Key(row),
                 s.key_scales.data() + row);
        StoreRow(c.type, value.Row(b, head, i), c.v_head_dim, s.Value(row),
                 s.value_scales.data() + row);
      }
    }
    s.SetLength(b, length(b) + count, s.oldest.data()[b]);
  }
  return Status();
}

Status KvCache::Crop(size_t b, size_t new_length) {
  const KvCacheConfig& c = config();
  if (b >= c.batch || new_length > length(b)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "KvCache: entry %zu cannot be cropped to %zu tokens; "
                         "entries are 0 to %zu, this one holds %zu",
                         b, new_length, c.batch - 1,
                         b < c.batch ? length(b) : 0);
  }
  // The oldest token that a query at the new end would see.
  const size_t oldest = std::max(
      c.sink_tokens, new_length > c.window ? new_length - c.window : 0);
  if (c.window != 0 && oldest < new_length && !Holds(b, oldest)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "KvCache: entry %zu of a rolling cache has dropped "
                         "token %zu, which a query at %zu would see; crop by "
                         "less, or keep a fork",
                         b, oldest, new_length);
  }
  Storage& s = *storage_;
  // Of a sequence cropped into its sink tokens the ring holds nothing.
  const size_t still = new_length <= c.sink_tokens ? 0 : s.oldest.data()[b];
  s.SetLength(b, new_length, still);
  return Status();
}

Status KvCache::SetLength(size_t b, size_t new_length, size_t oldest) {
  const KvCacheConfig& c = config();
  const size_t most = c.window == 0 ? c.capacity : kMostTokens;
  if (b >= c.batch || new_length > most) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "KvCache: length %zu of entry %zu; entries are 0 to "
                         "%zu, the capacity is %zu",
                         new_length, b, c.batch - 1, most);
  }
  storage_->SetLength(b, new_length, oldest);
  return Status();
}

Status KvCache::Fork(std::unique_ptr<KvCache>* out) const {
  HEADWISE_RETURN_IF_ERROR(CheckPointer("KvCache", "out", out));
  std::unique_ptr<KvCache> copy;
  HEADWISE_RETURN_IF_ERROR(Create(config(), &copy));
  for (size_t b = 0; b < config().batch; ++b) {
    copy->storage_->CopyEntry(*storage_, b, b);
  }
  *out = std::move(copy);
  return Status();
}

Status KvCache::Reorder(const int32_t* source) {
  HEADWISE_RETURN_IF_ERROR(CheckPointer("KvCache", "source", source));
  const size_t batch = config().batch;
  for (size_t b = 0; b < batch; ++b) {
    if (source[b] >= 0 && static_cast<size_t>(source[b]) < batch) continue;
    return Status::Error(StatusCode::kInvalidArgument,
                         "KvCache: source[%zu] is %d; it must be 0 to %zu", b,
                         static_cast<int>(source[b]), batch - 1);
  }
  // An entry may be the source of several, and be replaced itself.
  std::unique_ptr<KvCache> old;
  HEADWISE_RETURN_IF_ERROR(Fork(&old));
  for (size_t b = 0; b < batch; ++b) {
    storage_->CopyEntry(*old->storage_, static_cast<size_t>(source[b]), b);
  }
  return Status();
}

void KvCache::Clear() { storage_->Clear(); }

Status KvCache::Read(size_t b, size_t kv_head, size_t first, size_t count,
                     void* key, float* key_scale, void* value,
                     float* value_scale) const {
  const Storage& s = *storage_;
  const size_t key_bytes = s.config.head_dim * BytesOf(s.config.type);
  const size_t value_bytes = s.config.v_head_dim * BytesOf(s.config.type);
  for (size_t i = 0; i < count; ++i) {
    if (b >= s.config.batch || kv_head >= s.config.num_kv_heads ||
        !Holds(b, first + i)) {
      return Status::Error(StatusCode::kInvalidArgument,
                           "KvCache: entry %zu, head %zu, token %zu is not "
                           "held",
                           b, kv_head, first + i);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t row = s.Row(b, kv_head, first + i);
    std::memcpy(static_cast<unsigned char*>(key) + i * key_bytes, s.Key(row),
                key_bytes);
    std::memcpy(static_cast<unsigned char*>(value) + i * value_bytes,
                s.Value(row), value_bytes);
    if (s.config.type == CacheType::kInt8) {
      key_scale[i] = s.key_scales.data()[row];
      value_scale[i] = s.value_scales.data()[row];
    }
  }
  return Status();
}

Status KvCache::Write(size_t b, size_t kv_head, size_t first, size_t count,
                      const void* key, const float* key_scale,
                      const void* value, const float* value_scale) {
  Storage& s = *storage_;
  const KvCacheConfig& c = s.config;
  if (b >= c.batch || kv_head >= c.num_kv_heads || count > s.slots ||
      (c.window == 0 && first > c.capacity - count)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "KvCache: entry %zu, head %zu, tokens %zu to %zu are "
                         "outside the cache",
                         b, kv_head, first, first + count);
  }
  const size_t key_bytes = c.head_dim * BytesOf(c.type);
  const size_t value_bytes = c.v_head_dim * BytesOf(c.type);
  for (size_t i = 0; i < count; ++i) {
    const size_t row = s.Row(b, kv_head, first + i);
    std::memcpy(s.Key(row),
                static_cast<const unsigned char*>(key) + i * key_bytes,
                key_bytes);
    std::memcpy(s.Value(row),
                static_cast<const unsigned char*>(value) + i * value_bytes,
                value_bytes);
    if (c.type == CacheType::kInt8) {
      s.key_scales.data()[row] = key_scale[i];
      s.value_scales.data()[row] = value_scale[i];
    }
  }
  return Status();
}

void KvCache::Unpack(size_t b, size_t kv_head, size_t first, size_t count,
                     float* key, float* value) const {
  const Storage& s = *storage_;
  const KvCacheConfig& c = s.config;
  for (size_t i = 0; i < count; ++i) {
    float* key_row = key + i * c.head_dim;
    float* value_row = value + i * c.v_head_dim;
    if (!Holds(b, first + i)) {
      std::fill(key_row, key_row + c.head_dim, 0.0f);
      std::fill(value_row, value_row + c.v_head_dim, 0.0f);
      continue;
    }
    const size_t row = s.Row(b, kv_head, first + i);
    const bool scaled = c.type == CacheType::kInt8;
    LoadRow(c.type, s.Key(row), scaled ? s.key_scales.data()[row] : 1.0f,
            c.head_dim, key_row);
    LoadRow(c.type, s.Value(row), scaled ? s.value_scales.data()[row] : 1.0f,
            c.v_head_dim, value_row);
  }
}

size_t KvCache::length(size_t b) const { return storage_->lengths.data()[b]; }
const float* KvCache::KeyRows(size_t b, size_t kv_head, size_t first) const {
  if (!storage_->plain()) return nullptr;
  return reinterpret_cast<const float*>(
      storage_->Key(storage_->Row(b, kv_head, first)));
}

const float* KvCache::ValueRows(size_t b, size_t kv_head, size_t first) const {
  if (!storage_->plain()) return nullptr;
  return reinterpret_cast<const float*>(
      storage_->Value(storage_->Row(b, kv_head, first)));
}

size_t KvCache::max_length() const {
  const size_t* lengths = storage_->lengths.data();
  return *std::max_element(lengths, lengths + config().batch);
}
bool KvCache::Holds(size_t b, size_t position) const {
  return storage_->Holds(b, position);
}
const KvCacheConfig& KvCache::config() const { return storage_->config; }
size_t KvCache::bytes() const {
  const Storage& s = *storage_;
  return s.keys.size() + s.values.size() +
         (s.key_scales.size() + s.value_scales.size()) * sizeof(float);
}

}  // namespace headwise
