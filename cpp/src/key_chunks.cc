#include "key_chunks.h"

#include <algorithm>

#include "memory.h"

namespace headwise {

using kernels::kChunk;

PackedKeys TakePackedKeys(size_t key_length, size_t head_dim, size_t v_head_dim,
                          size_t extra_keys, Arena* arena) {
  const size_t width = kernels::PanelWidth();
  const size_t padded_v = RoundUp(v_head_dim, width);
  PackedKeys p;
  p.key_panels =
      arena->Take<float>(SaturatingMul(RoundUp(key_length, width), head_dim));
  p.value_panels = arena->Take<float>(SaturatingMul(key_length, padded_v));
  p.extra_key_panels =
      arena->Take<float>(SaturatingMul(RoundUp(extra_keys, width), head_dim));
  p.extra_value_panels =
      arena->Take<float>(SaturatingMul(extra_keys, padded_v));
  const size_t chunk_rows = std::min(key_length, kChunk);
  p.key_rows = arena->Take<float>(SaturatingMul(chunk_rows, head_dim));
  p.value_rows = arena->Take<float>(SaturatingMul(chunk_rows, v_head_dim));
  p.chunks = arena->Take<kernels::KeyChunk>(CeilDiv(key_length, kChunk) + 1);
  p.chunk_count = 0;
  return p;
}

void PackKeys(const HeadsView<const float>& key,
              const HeadsView<const float>* value, size_t b, size_t kv_head,
              size_t anchor, size_t count, PackedKeys* packed) {
  packed->chunk_count = 0;
  if (count == 0) return;
  kernels::PackPanels(key.Row(b, kv_head, anchor), key.row_stride, count,
                      key.cols, packed->key_panels);
  const size_t padded_v =
      value == nullptr ? 0 : RoundUp(value->cols, kernels::PanelWidth());
  for (size_t first = 0; first < count; first += kChunk) {
    kernels::KeyChunk chunk;
    chunk.first = first;
    chunk.count = std::min(kChunk, count - first);
    chunk.column = anchor + first;
    chunk.keys = packed->key_panels + first * key.cols;
    if (value != nullptr) {
      float* panels = packed->value_panels + first * padded_v;
      chunk.nonfinite = kernels::PackValues(
          value->Row(b, kv_head, anchor + first), value->row_stride,
          chunk.count, value->cols, panels);
      chunk.values = panels;
      chunk.value_rows = chunk.count;
    }
    packed->chunks[packed->chunk_count++] = chunk;
  }
}

size_t CachedRows(const KvCache& cache) {
  const KvCacheConfig& c = cache.config();
  if (c.window == 0) return cache.max_length();
  return RoundUp(c.sink_tokens, kChunk) +
         RoundUp(c.window + kernels::kQueryBlock, kChunk) + kChunk;
}

void PackCachedKeys(const KvCache& cache, size_t b, size_t kv_head,
                    PackedKeys* packed) {
  const KvCacheConfig& c = cache.config();
  const size_t padded_v = RoundUp(c.v_head_dim, kernels::PanelWidth());
  const size_t length = cache.length(b);
  packed->chunk_count = 0;
  for (size_t first = 0; first < length; first += kChunk) {
    const size_t count = std::min(kChunk, length - first);
    // Of what a rolling cache has dropped, whole chunks are left out, and a
    // chunk that is held in part has zeros where no query looks.
    const bool held = first < c.sink_tokens ||
                      cache.Holds(b, first + count - 1) || c.window == 0;
    if (!held) continue;
    const float* keys = cache.KeyRows(b, kv_head, first);
    const float* values = cache.ValueRows(b, kv_head, first);
    if (keys == nullptr) {
      cache.Unpack(b, kv_head, first, count, packed->key_rows,
                   packed->value_rows);
      keys = packed->key_rows;
      values = packed->value_rows;
    }
    const size_t at = packed->chunk_count * kChunk;
    kernels::KeyChunk chunk;
    chunk.first = first;
    chunk.count = count;
    chunk.column = first;
    float* key_panels = packed->key_panels + at * c.head_dim;
    kernels::PackPanels(keys, c.head_dim, count, c.head_dim, key_panels);
    float* value_panels = packed->value_panels + at * padded_v;
    chunk.nonfinite = kernels::PackValues(values, c.v_head_dim, count,
                                          c.v_head_dim, value_panels);
    chunk.keys = key_panels;
    chunk.values = value_panels;
    chunk.value_rows = count;
    packed->chunks[packed->chunk_count++] = chunk;
  }
}

void PackExtraKeys(const HeadsView<const float>& key,
                   const HeadsView<const float>& value, size_t b,
                   size_t kv_head, size_t column, PackedKeys* packed) {
  if (key.rows == 0) return;
  const size_t entry = key.batch == 1 ? 0 : b;
  kernels::PackPanels(key.Row(entry, kv_head, 0), key.row_stride, key.rows,
                      key.cols, packed->extra_key_panels);
  kernels::KeyChunk chunk;
  chunk.count = key.rows;
  chunk.column = column;
  chunk.always = true;
  chunk.keys = packed->extra_key_panels;
  chunk.nonfinite = kernels::PackValues(
      value.Row(value.batch == 1 ? 0 : b, kv_head, 0), value.row_stride,
      value.rows, value.cols, packed->extra_value_panels);
  chunk.values = packed->extra_value_panels;
  chunk.value_rows = value.rows;
  packed->chunks[packed->chunk_count++] = chunk;
}

}  // namespace headwise
