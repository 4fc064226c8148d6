// Views and pointers that a call can work on.
#ifndef HEADWISE_SRC_VIEW_CHECKS_H_
#define HEADWISE_SRC_VIEW_CHECKS_H_

#include <cstddef>

#include "headwise/status.h"
#include "headwise/tensor_view.h"

namespace headwise {

inline Status CheckPointer(const char* call, const char* name,
                           const void* pointer) {
  if (pointer != nullptr) return Status();
  return Status::Error(StatusCode::kInvalidArgument,
                       "%s: %s is null; give the address of one", call, name);
}

// Null is fine for a view without elements only.
template <typename T>
Status CheckData(const char* call, const char* name, const TensorView<T>& v) {
  const bool none = v.batch == 0 || v.rows == 0 || v.cols == 0;
  return none ? Status() : CheckPointer(call, name, v.data);
}
template <typename T>
Status CheckData(const char* call, const char* name, const HeadsView<T>& v) {
  const bool none = v.batch == 0 || v.heads == 0 || v.rows == 0 || v.cols == 0;
  return none ? Status() : CheckPointer(call, name, v.data);
}

// One axis of a view: how often, and how far apart.
struct Axis {
  size_t count;
  size_t stride;
};
// Whether no two rows of `cols` values overlap, in whatever order the axes lie
// in memory. Sorts the axes.
bool RowsAreDisjoint(Axis* axes, size_t axis_count, size_t cols);
Status OverlapError(const char* call, const char* name);

// A result whose rows overlap would overwrite itself.
template <typename T>
Status CheckDisjoint(const char* call, const char* name,
                     const TensorView<T>& v) {
  Axis axes[] = {{v.batch, v.batch_stride}, {v.rows, v.row_stride}};
  if (RowsAreDisjoint(axes, 2, v.cols)) return Status();
  return OverlapError(call, name);
}
template <typename T>
Status CheckDisjoint(const char* call, const char* name,
                     const HeadsView<T>& v) {
  Axis axes[] = {{v.batch, v.batch_stride},
                 {v.heads, v.head_stride},
                 {v.rows, v.row_stride}};
  if (RowsAreDisjoint(axes, 3, v.cols)) return Status();
  return OverlapError(call, name);
}

}  // namespace headwise

#endif  // HEADWISE_SRC_VIEW_CHECKS_H_
