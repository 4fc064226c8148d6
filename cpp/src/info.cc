#include "headwise/info.h"

#include "kernels/kernels.h"

#ifndef HEADWISE_VERSION
#error "HEADWISE_VERSION comes from package.json by way of CMakeLists.txt"
#endif

namespace headwise {

const char* Version() { return HEADWISE_VERSION; }
const char* SimdTarget() { return kernels::TargetName(); }

}  // namespace headwise
