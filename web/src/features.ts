// What this engine can run, by validating the smallest modules that need each feature.

export interface Features {
  /** 128-bit SIMD: needed. */
  readonly simd: boolean;
  /** Relaxed SIMD: fused multiply-add. */
  readonly relaxedSimd: boolean;
  /** Shared memory and atomics; on the web they need cross-origin isolation. */
  readonly threads: boolean;
}

// Module layout: magic and version, then sections of (id, size, content).
const HEADER = [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00];
// One type, () -> v128, and one function of it.
const V128_FUNCTION = [0x01, 0x05, 0x01, 0x60, 0x00, 0x01, 0x7b, 0x03, 0x02, 0x01, 0x00];
// One type, () -> (), and one function of it.
const VOID_FUNCTION = [0x01, 0x04, 0x01, 0x60, 0x00, 0x00, 0x03, 0x02, 0x01, 0x00];
// i32.const 0; i32x4.splat
const ZEROS = [0x41, 0x00, 0xfd, 0x11];

/** A code section of one function without locals. */
const code = (instructions: readonly number[]): number[] => {
  const body = [0x00, ...instructions, 0x0b];
  return [0x0a, body.length + 2, 0x01, body.length, ...body];
};

const SIMD = [...HEADER, ...V128_FUNCTION, ...code(ZEROS)];
// f32x4.relaxed_madd is 0xfd, then 0x105 in LEB128.
const RELAXED = [...HEADER, ...V128_FUNCTION, ...code([...ZEROS, ...ZEROS, ...ZEROS, 0xfd, 0x85, 0x02])];
// A shared memory of one page, and i32.const 0; i32.atomic.load align=2 offset=0; drop.
const SHARED_MEMORY = [0x05, 0x04, 0x01, 0x03, 0x01, 0x01];
const THREADS = [...HEADER, ...VOID_FUNCTION, ...SHARED_MEMORY, ...code([0x41, 0x00, 0xfe, 0x10, 0x02, 0x00, 0x1a])];

function valid(bytes: readonly number[]): boolean {
  try {
    return WebAssembly.validate(new Uint8Array(bytes));
  } catch {
    return false;
  }
}

/** Engines validate shared memory before a page may have one: posting a shared buffer is the test. */
function sharedMemoryAllowed(): boolean {
  try {
    if (typeof SharedArrayBuffer === 'undefined') return false;
    return (globalThis as { crossOriginIsolated?: boolean }).crossOriginIsolated !== false;
  } catch {
    return false;
  }
}

/** Whether the engine has SIMD128, relaxed SIMD and threads. */
export function detectFeatures(): Features {
  if (typeof WebAssembly !== 'object') return { simd: false, relaxedSimd: false, threads: false };
  const simd = valid(SIMD);
  return { simd, relaxedSimd: simd && valid(RELAXED), threads: sharedMemoryAllowed() && valid(THREADS) };
}
