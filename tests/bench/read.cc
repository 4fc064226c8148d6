// How fast the engine reads memory: vector loads in order, and as little else
// as keeps them from being dropped.
#include <wasm_simd128.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" {

// The place to read from: `bytes` bytes, written once, so that the pages exist.
__attribute__((export_name("Prepare"))) uint8_t* Prepare(size_t bytes) {
  uint8_t* data = static_cast<uint8_t*>(malloc(bytes));
  if (data == nullptr) return nullptr;
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i);
  return data;
}

// Reads `bytes` bytes, a multiple of 128, once.
__attribute__((export_name("Read"))) int32_t Read(const uint8_t* data,
                                                  size_t bytes) {
  v128_t s0 = wasm_i32x4_const_splat(0), s1 = s0, s2 = s0, s3 = s0;
  v128_t s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (size_t at = 0; at + 128 <= bytes; at += 128) {
    s0 = wasm_v128_xor(s0, wasm_v128_load(data + at));
    s1 = wasm_v128_xor(s1, wasm_v128_load(data + at + 16));
    s2 = wasm_v128_xor(s2, wasm_v128_load(data + at + 32));
    s3 = wasm_v128_xor(s3, wasm_v128_load(data + at + 48));
    s4 = wasm_v128_xor(s4, wasm_v128_load(data + at + 64));
    s5 = wasm_v128_xor(s5, wasm_v128_load(data + at + 80));
    s6 = wasm_v128_xor(s6, wasm_v128_load(data + at + 96));
    s7 = wasm_v128_xor(s7, wasm_v128_load(data + at + 112));
  }
  const v128_t sum = wasm_v128_xor(
      wasm_v128_xor(wasm_v128_xor(s0, s1), wasm_v128_xor(s2, s3)),
      wasm_v128_xor(wasm_v128_xor(s4, s5), wasm_v128_xor(s6, s7)));
  return wasm_i32x4_extract_lane(sum, 0) ^ wasm_i32x4_extract_lane(sum, 1) ^
         wasm_i32x4_extract_lane(sum, 2) ^ wasm_i32x4_extract_lane(sum, 3);
}

}  // extern "C"
