// The key/value cache by its JavaScript names.
#include <emscripten/bind.h>

#include <memory>

#include "conversions.h"
#include "headwise/kv_cache.h"
#include "module_state.h"

namespace headwise {
namespace bindings {
namespace {

std::unique_ptr<KvCache> CreateCache(double block) {
  const CacheBlock& c = *At<const CacheBlock>(block);
  KvCacheConfig config;
  config.batch = Size(c.cacheBatch);
  config.num_kv_heads = Size(c.cacheKvHeads);
  config.head_dim = Size(c.cacheHeadDim);
  config.v_head_dim = Size(c.cacheVHeadDim);
  config.capacity = Size(c.capacity);
  config.window = Size(c.window);
  config.sink_tokens = Size(c.sinkTokens);
  config.type = ToEnum<CacheType>(c.type);
  std::unique_ptr<KvCache> made;
  Keep(KvCache::Create(config, &made));
  return made;
}

std::unique_ptr<KvCache> Fork(const KvCache& self) {
  std::unique_ptr<KvCache> made;
  Keep(self.Fork(&made));
  return made;
}

// Keys and values as an attention block describes them; counts int32 [batch],
// or 0 for all.
int Append(KvCache& self, double block, double counts) {
  const AttentionBlock& c = *At<const AttentionBlock>(block);
  return Keep(self.Append(KeyView(c), ValueView(c), At<const int32_t>(counts)));
}

int Crop(KvCache& self, double b, double length) {
  return Keep(self.Crop(Size(b), Size(length)));
}
int SetLength(KvCache& self, double b, double length, double oldest) {
  return Keep(self.SetLength(Size(b), Size(length), Size(oldest)));
}
int Reorder(KvCache& self, double source) {
  return Keep(self.Reorder(At<const int32_t>(source)));
}
double Length(const KvCache& self, double b) {
  return static_cast<double>(self.length(Size(b)));
}
bool Holds(const KvCache& self, double b, double position) {
  return self.Holds(Size(b), Size(position));
}
double Bytes(const KvCache& self) { return static_cast<double>(self.bytes()); }

int Read(const KvCache& self, double b, double head, double first, double count,
         double key, double key_scale, double value, double value_scale) {
  return Keep(self.Read(Size(b), Size(head), Size(first), Size(count),
                        At<void>(key), At<float>(key_scale), At<void>(value),
                        At<float>(value_scale)));
}
int Write(KvCache& self, double b, double head, double first, double count,
          double key, double key_scale, double value, double value_scale) {
  return Keep(self.Write(Size(b), Size(head), Size(first), Size(count),
                         At<const void>(key), At<const float>(key_scale),
                         At<const void>(value), At<const float>(value_scale)));
}

}  // namespace

EMSCRIPTEN_BINDINGS(headwise_cache) {
  using emscripten::class_;
  class_<KvCache>("KvCache")
      .class_function("create", &CreateCache)
      .function("fork", &Fork)
      .function("append", &Append)
      .function("crop", &Crop)
      .function("setLength", &SetLength)
      .function("reorder", &Reorder)
      .function("clear", &KvCache::Clear)
      .function("length", &Length)
      .function("holds", &Holds)
      .function("bytes", &Bytes)
      .function("read", &Read)
      .function("write", &Write);
}

}  // namespace bindings
}  // namespace headwise
