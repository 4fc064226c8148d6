// The one allocator for memory whose size depends on input. It answers null
// when there is no more: without exceptions, operator new and std::vector
// would end the program instead.
#ifndef HEADWISE_SRC_MEMORY_H_
#define HEADWISE_SRC_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <utility>

namespace headwise {

// 64-byte aligned; null when `bytes` cannot be had. FreeAligned(null) is fine.
void* AllocateAligned(size_t bytes);
void FreeAligned(void* pointer);

// How often AllocateAligned was called: what "allocates nothing" is tested by.
size_t AllocationCount();
// Requests of more than `bytes` fail from now on: how "out of memory" is
// tested without using it up. SIZE_MAX lifts the limit.
void SetAllocationLimit(size_t bytes);

// a * b, or SIZE_MAX when that overflows. size_t has 32 bits on WASM, where
// the product of honest sizes does overflow.
inline size_t SaturatingMul(size_t a, size_t b) {
  if (a != 0 && b > SIZE_MAX / a) return SIZE_MAX;
  return a * b;
}
inline size_t SaturatingAdd(size_t a, size_t b) {
  return b > SIZE_MAX - a ? SIZE_MAX : a + b;
}

// To the next multiple, or SIZE_MAX when that overflows.
inline constexpr size_t RoundUp(size_t value, size_t multiple) {
  return value > SIZE_MAX - (multiple - 1)
             ? SIZE_MAX
             : (value + multiple - 1) / multiple * multiple;
}
inline constexpr size_t CeilDiv(size_t value, size_t divisor) {
  return value / divisor + (value % divisor != 0);
}

// An owned array of plain values.
template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer() { FreeAligned(data_); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  // False, with nothing changed, when the memory cannot be had.
  [[nodiscard]] bool Allocate(size_t count) {
    const size_t bytes = SaturatingMul(count, sizeof(T));
    void* fresh = AllocateAligned(bytes);
    if (fresh == nullptr) return false;
    FreeAligned(data_);
    data_ = static_cast<T*>(fresh);
    size_ = count;
    return true;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace headwise

#endif  // HEADWISE_SRC_MEMORY_H_
