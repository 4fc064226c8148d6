// Which instruction sets there are, and which one runs.
#include "kernels/target_policy.h"
// After target_policy.h.
#include "hwy/highway.h"
#include "hwy/targets.h"
#include "kernels/kernels.h"

namespace headwise {
namespace kernels {
namespace {

// The index-th set bit of the targets this library was compiled for.
int64_t TestTarget(size_t index) {
  int64_t targets = HWY_TARGETS;
  for (; index != 0; --index) targets &= targets - 1;
  return targets & -targets;
}

}  // namespace

const char* TargetName() {
  // The best of what is compiled in and what the machine has: the lowest bit.
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  const int64_t target = targets & -targets;
#if defined(__wasm_relaxed_simd__)
  if (target == HWY_WASM) return "WASM+relaxed";
#endif
  return hwy::TargetName(target);
}

size_t TestTargetCount() {
  size_t count = 0;
  for (int64_t left = HWY_TARGETS; left != 0; left &= left - 1) ++count;
  return count;
}

const char* TestTargetName(size_t index) {
  return hwy::TargetName(TestTarget(index));
}

bool UseTestTarget(size_t index) {
  UseBestTarget();
  const int64_t target = TestTarget(index);
  if ((hwy::SupportedTargets() & target) == 0) return false;
  hwy::SetSupportedTargetsForTest(target);
  return true;
}

void UseBestTarget() { hwy::SetSupportedTargetsForTest(0); }

}  // namespace kernels
}  // namespace headwise
