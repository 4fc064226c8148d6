// Rows of a key/value cache in its storage type.
#ifndef HEADWISE_SRC_CACHE_ROWS_H_
#define HEADWISE_SRC_CACHE_ROWS_H_

#include <cstddef>

#include "headwise/kv_cache.h"

namespace headwise {

size_t BytesOf(CacheType type);

// `*scale` is written for kInt8 only: max |x| / 127, 0 for a row of zeros. A
// row with NaN or infinity has the scale NaN and reads back as NaN: a byte
// cannot hold it, and losing it silently would be worse.
void StoreRow(CacheType type, const float* from, size_t count, void* to,
              float* scale);
void LoadRow(CacheType type, const void* from, float scale, size_t count,
             float* to);

}  // namespace headwise

#endif  // HEADWISE_SRC_CACHE_ROWS_H_
