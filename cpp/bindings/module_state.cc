// Memory, errors and facts of a module.
#include "module_state.h"

#include <emscripten/bind.h>

#include <string>

#include "call_blocks.h"
#include "headwise/info.h"
#include "memory.h"

namespace headwise {
namespace bindings {
namespace {

Status& LastStatus() {
  static Status status;
  return status;
}

// Offset of `bytes` bytes aligned to 64, or 0 when there are no more.
double Allocate(double bytes) {
  return static_cast<double>(
      reinterpret_cast<uintptr_t>(AllocateAligned(Size(bytes))));
}
void Release(double offset) { FreeAligned(At<void>(offset)); }

std::string LastError() { return LastStatus().message(); }
std::string SlotNames() { return kSlotNames; }
std::string VersionName() { return Version(); }
std::string TargetName() { return SimdTarget(); }
void ReleaseWorkspace() { SharedWorkspace().Release(); }

}  // namespace

Workspace& SharedWorkspace() {
  static Workspace workspace;
  return workspace;
}

int Keep(const Status& status) {
  LastStatus() = status;
  return static_cast<int>(status.code());
}

EMSCRIPTEN_BINDINGS(headwise_module) {
  using emscripten::function;
  function("allocate", &Allocate);
  function("release", &Release);
  function("releaseWorkspace", &ReleaseWorkspace);
  function("lastError", &LastError);
  function("slotNames", &SlotNames);
  function("version", &VersionName);
  function("simdTarget", &TargetName);
}

}  // namespace bindings
}  // namespace headwise
