// Which of Highway's instruction sets the kernels are compiled for. Included
// before any header of Highway.
//
// SSE2 (the x86-64 baseline), AVX2 and AVX3 differ in vector width and in
// having fused multiply-add. The sets between and above them change nothing
// for float32 products but compile time and size.
#ifndef HEADWISE_SRC_KERNELS_TARGET_POLICY_H_
#define HEADWISE_SRC_KERNELS_TARGET_POLICY_H_

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR)
#endif

#endif  // HEADWISE_SRC_KERNELS_TARGET_POLICY_H_
