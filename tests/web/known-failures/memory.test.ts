// What others ran out of: memory of a call beside its inputs and outputs.
import { type Tensor, load, scaledDotProductAttention } from 'headwise';
import { expect, test } from 'vitest';
import { zeros } from '../helpers.js';

const MB = 2 ** 20;

test.each([
  ['M-07', 16],
  ['the sentence of issue 3', 12],
])('L = 4096, D = 64 without weights takes under 16 MB beside inputs and outputs: %s, H = %d', async (_name, H) => {
  // Many short calls first: one long call would run in the engine's first, slow translation of the kernels.
  const warm = await load({ variant: 'simd' });
  const small = zeros(1, 2, 256, 64);
  for (let n = 0; n < 100; ++n) scaledDotProductAttention(small, small, small, { runtime: warm });

  // A module of its own: its memory grows for this call alone.
  const wasmUrl = new URL('../../../web/dist/wasm/headwise.simd.wasm', import.meta.url);
  const own = await load({ variant: 'simd', wasmUrl });
  const shape = [1, H, 4096, 64];
  const data = Float32Array.from({ length: H * 4096 * 64 }, (_, i) => Math.sin(i));
  const [q, k, v] = [data, data.slice(), data.slice()].map((copy): Tensor => ({ data: copy, shape }));
  const operands = 4 * data.byteLength;
  const before = own.heapBytes;
  const { output } = scaledDotProductAttention(q!, k!, v!, { runtime: own, causal: true });
  // The first query sees the first key alone.
  expect(output.data.slice(0, 64)).toEqual(data.slice(0, 64));
  const grown = own.heapBytes - before;
  // The heap holds the operands, so growth of it is what a call takes; what was free before hides at most itself.
  expect(grown).toBeGreaterThan(operands - before);
  // The scores of all heads would be 1024 and 768 MB.
  expect(grown + before - operands).toBeLessThan(16 * MB);
  own.dispose();
});
