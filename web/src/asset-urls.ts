// Where the .wasm files are. The two expressions stand here word for word, because that is what bundlers look for:
// they copy the files and put the new addresses in. They are only evaluated when a build is chosen.
import type { Variant } from './runtime.js';

export function packagedWasmUrl(variant: Variant): URL {
  return variant === 'relaxed'
    ? new URL('./wasm/headwise.relaxed.wasm', import.meta.url)
    : new URL('./wasm/headwise.simd.wasm', import.meta.url);
}
