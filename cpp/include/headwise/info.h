// What this build is.
#ifndef HEADWISE_INFO_H_
#define HEADWISE_INFO_H_

namespace headwise {

// The version of package.json.
const char* Version();
// Highway's name of the instruction set in use, such as "AVX2" or "WASM";
// "WASM+relaxed" where relaxed SIMD is compiled in.
const char* SimdTarget();

}  // namespace headwise

#endif  // HEADWISE_INFO_H_
