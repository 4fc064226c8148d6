// Scratch memory of a forward call, owned by the caller and reused.
#ifndef HEADWISE_WORKSPACE_H_
#define HEADWISE_WORKSPACE_H_

#include <cstddef>

#include "headwise/status.h"

namespace headwise {

// One aligned block that only grows. A call that needs more than it holds
// grows it; after a Reserve of the largest call nothing is allocated any more.
// One workspace serves one call at a time; give each thread its own.
class Workspace {
 public:
  static constexpr size_t kAlignment = 64;

  Workspace() = default;
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Makes at least `bytes` available. The old content is lost, except on
  // kOutOfMemory, where nothing changes.
  Status Reserve(size_t bytes);
  // Gives the memory back.
  void Release();

  size_t bytes() const { return bytes_; }
  unsigned char* data() { return data_; }

 private:
  unsigned char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace headwise

#endif  // HEADWISE_WORKSPACE_H_
