#include "memory.h"

#include <atomic>
#include <cstdlib>
#if defined(_WIN32)
#include <malloc.h>
#endif

#include "headwise/workspace.h"

namespace headwise {
namespace {

std::atomic<size_t> allocation_count{0};
std::atomic<size_t> allocation_limit{SIZE_MAX};

}  // namespace

void* AllocateAligned(size_t bytes) {
  constexpr size_t kAlignment = Workspace::kAlignment;
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  if (bytes > allocation_limit.load(std::memory_order_relaxed)) return nullptr;
  // Rounding up must not wrap.
  if (bytes > SIZE_MAX - kAlignment) return nullptr;
  const size_t rounded = RoundUp(bytes == 0 ? 1 : bytes, kAlignment);
#if defined(_WIN32)
  return _aligned_malloc(rounded, kAlignment);
#else
  return std::aligned_alloc(kAlignment, rounded);
#endif
}

void FreeAligned(void* pointer) {
#if defined(_WIN32)
  _aligned_free(pointer);
#else
  std::free(pointer);
#endif
}

size_t AllocationCount() {
  return allocation_count.load(std::memory_order_relaxed);
}

void SetAllocationLimit(size_t bytes) {
  allocation_limit.store(bytes, std::memory_order_relaxed);
}

// ------------------------------------------------------------- Workspace

Workspace::~Workspace() { Release(); }

Status Workspace::Reserve(size_t bytes) {
  if (bytes <= bytes_) return Status();
  void* fresh = AllocateAligned(bytes);
  if (fresh == nullptr) {
    return Status::Error(StatusCode::kOutOfMemory,
                         "scratch memory: %zu bytes could not be had; use "
                         "smaller batches or shorter sequences",
                         bytes);
  }
  FreeAligned(data_);
  data_ = static_cast<unsigned char*>(fresh);
  bytes_ = bytes;
  return Status();
}

void Workspace::Release() {
  FreeAligned(data_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace headwise
