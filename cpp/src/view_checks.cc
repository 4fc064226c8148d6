#include "view_checks.h"

#include <algorithm>

#include "memory.h"

namespace headwise {

bool RowsAreDisjoint(Axis* axes, size_t axis_count, size_t cols) {
  if (cols == 0) return true;
  for (size_t i = 0; i < axis_count; ++i) {
    if (axes[i].count == 0) return true;
  }
  std::sort(axes, axes + axis_count,
            [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  // What one step of an axis must clear: all that lies within it.
  size_t extent = cols;
  for (size_t i = 0; i < axis_count; ++i) {
    if (axes[i].count == 1) continue;
    if (axes[i].stride < extent) return false;
    extent =
        SaturatingAdd(SaturatingMul(axes[i].count - 1, axes[i].stride), extent);
  }
  return true;
}

Status OverlapError(const char* call, const char* name) {
  return Status::Error(StatusCode::kInvalidArgument,
                       "%s: rows of %s overlap; its strides must keep them "
                       "apart",
                       call, name);
}

}  // namespace headwise
