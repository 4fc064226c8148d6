// What others ran out of: memory of a call beside its inputs and outputs, and of generations that have ended.
import { KvCache, type Runtime, type Tensor, load, scaledDotProductAttention } from 'headwise';
import { expect, test } from 'vitest';
import { zeros } from '../helpers.js';

const MB = 2 ** 20;

/** A module of its own, so that its memory grows for what the test does. */
const loadOwn = (): Promise<Runtime> =>
  load({ variant: 'simd', wasmUrl: new URL('../../../web/dist/wasm/headwise.simd.wasm', import.meta.url) });

test.each([
  ['M-07', 16],
  ['the sentence of issue 3', 12],
])('L = 4096, D = 64 without weights takes under 16 MB beside inputs and outputs: %s, H = %d', async (_name, H) => {
  // Many short calls first: one long call would run in the engine's first, slow translation of the kernels.
  const warm = await load({ variant: 'simd' });
  const small = zeros(1, 2, 256, 64);
  for (let n = 0; n < 100; ++n) scaledDotProductAttention(small, small, small, { runtime: warm });

  const own = await loadOwn();
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

test('twenty generations, each with a cache of its own: flat after the first (M-15)', async () => {
  const own = await loadOwn();
  const generate = (): number => {
    const cache = KvCache.create({ numKvHeads: 8, headDim: 64, capacity: 2048, runtime: own });
    const token = zeros(1, 8, 64, 64);
    for (let n = 0; n < 2048; n += 512) cache.append(token, token);
    scaledDotProductAttention(zeros(1, 8, 1, 64), { cache, runtime: own });
    expect(cache.bytes).toBeGreaterThanOrEqual(8 * MB);
    cache.dispose();
    return own.heapBytes;
  };
  const first = generate();
  const later = Array.from({ length: 19 }, generate);
  expect(new Set(later)).toEqual(new Set([first]));
  own.dispose();
});
