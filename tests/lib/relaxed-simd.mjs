// How this Node runs relaxed SIMD: Node 22 and later without ado, Node 20 behind a flag.

// (module (func (result v128) … f32x4.relaxed_madd)): engines without relaxed SIMD reject it.
const PROBE = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 19, 1, 17, 0, 65, 0, 253, 17, 65, 0, 253, 17,
  65, 0, 253, 17, 253, 133, 2, 11,
]);

/** Arguments for node that switch relaxed SIMD on where it is off. */
export const relaxedSimdFlags = WebAssembly.validate(PROBE) ? [] : ['--experimental-wasm-relaxed-simd'];
