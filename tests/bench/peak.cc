// The ceiling of one thread in a WASM engine: multiply-adds on registers only.
//
// Twelve independent sums hide the latency of a multiplication followed by an
// addition (6 cycles, two of each a cycle, on Zen 4) and, with two operands,
// just fit the 15 vector registers V8 can use.
#include <wasm_simd128.h>

#include <cstdint>

namespace {

inline v128_t Step(v128_t sum, v128_t factor, v128_t term) {
#if defined(__wasm_relaxed_simd__)
  return wasm_f32x4_relaxed_madd(sum, factor, term);
#else
  return wasm_f32x4_add(wasm_f32x4_mul(sum, factor), term);
#endif
}

// Volatile: the compiler must not see that the sums are alike.
volatile float starts[12] = {0.0f, 0.05f, 0.1f, 0.15f, 0.2f, 0.25f,
                             0.3f, 0.35f, 0.4f, 0.45f, 0.5f, 0.55f};

volatile float half = 0.5f;

inline v128_t Start(int index) { return wasm_f32x4_splat(starts[index]); }

}  // namespace

extern "C" {

// Runs `rounds` rounds of 12 vectors of 4 multiply-adds: 96 operations each.
// The sums stay near 1, so no subnormal or infinite number slows them down;
// returning them keeps the work from being dropped.
__attribute__((export_name("Peak"))) float Peak(int32_t rounds) {
  // Loaded, not written as constants: V8 makes a vector constant anew at every
  // use, which would be measured instead (11 of 50 GFLOP/s in Node 24).
  const v128_t factor = wasm_f32x4_splat(half);
  const v128_t term = wasm_f32x4_splat(half);
  v128_t s0 = Start(0), s1 = Start(1), s2 = Start(2), s3 = Start(3);
  v128_t s4 = Start(4), s5 = Start(5), s6 = Start(6), s7 = Start(7);
  v128_t s8 = Start(8), s9 = Start(9), s10 = Start(10), s11 = Start(11);
  for (int32_t i = 0; i < rounds; ++i) {
    s0 = Step(s0, factor, term);
    s1 = Step(s1, factor, term);
    s2 = Step(s2, factor, term);
    s3 = Step(s3, factor, term);
    s4 = Step(s4, factor, term);
    s5 = Step(s5, factor, term);
    s6 = Step(s6, factor, term);
    s7 = Step(s7, factor, term);
    s8 = Step(s8, factor, term);
    s9 = Step(s9, factor, term);
    s10 = Step(s10, factor, term);
    s11 = Step(s11, factor, term);
  }
  const v128_t sum = wasm_f32x4_add(
      wasm_f32x4_add(wasm_f32x4_add(s0, s1), wasm_f32x4_add(s2, s3)),
      wasm_f32x4_add(
          wasm_f32x4_add(wasm_f32x4_add(s4, s5), wasm_f32x4_add(s6, s7)),
          wasm_f32x4_add(wasm_f32x4_add(s8, s9), wasm_f32x4_add(s10, s11))));
  return wasm_f32x4_extract_lane(sum, 0) + wasm_f32x4_extract_lane(sum, 1) +
         wasm_f32x4_extract_lane(sum, 2) + wasm_f32x4_extract_lane(sum, 3);
}

}  // extern "C"
