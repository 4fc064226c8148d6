// Hands out pieces of one block. Sizes are computed by the same code that
// takes the pieces: an arena without a block only counts.
#ifndef HEADWISE_SRC_ARENA_H_
#define HEADWISE_SRC_ARENA_H_

#include <cstddef>

#include "headwise/workspace.h"
#include "memory.h"

namespace headwise {

class Arena {
 public:
  Arena() = default;
  explicit Arena(unsigned char* block) : block_(block) {}

  // `count` values, aligned to Workspace::kAlignment; null while counting.
  template <typename T>
  T* Take(size_t count) {
    const size_t offset = used_;
    const size_t bytes = SaturatingMul(count, sizeof(T));
    used_ = SaturatingAdd(used_, bytes);
    if (used_ <= SIZE_MAX - Workspace::kAlignment) {
      used_ = RoundUp(used_, Workspace::kAlignment);
    }
    return block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + offset);
  }

  // Saturates at SIZE_MAX, which no allocation grants.
  size_t used() const { return used_; }

 private:
  unsigned char* block_ = nullptr;
  size_t used_ = 0;
};

}  // namespace headwise

#endif  // HEADWISE_SRC_ARENA_H_
