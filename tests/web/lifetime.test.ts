// Who frees what, what is left after that, and that calls in steady state allocate nothing in WASM memory.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { readFileSync } from 'node:fs';
import {
  Linear,
  MultiHeadAttention,
  type Runtime,
  UseAfterDisposeError,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { describe, expect, test, vi } from 'vitest';
import { type ExpectedError, Random, expectError, zeros } from './helpers.js';

const bytes = readFileSync(new URL('../../web/dist/wasm/headwise.simd.wasm', import.meta.url));
/** A runtime of its own, so that its memory tells of this test only. */
const fresh = (): Promise<Runtime> => load({ wasmBinary: new Uint8Array(bytes) });
const x = zeros(3, 8);
setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;

const gone = (call: string, what: string): ExpectedError => ({
  type: UseAfterDisposeError,
  code: 'disposed',
  call,
  argument: what,
  got: 'disposed',
  wanted: 'must be alive',
});

describe('dispose() (known failure A-12)', () => {
  test('twice is once; every later call throws; the runtime works on', async () => {
    const runtime = await fresh();
    const mha = new MultiHeadAttention({ embedDim: 8, numHeads: 4, runtime });
    const linear = new Linear({ inFeatures: 8, outFeatures: 4, runtime });
    const dict = mha.stateDict();
    expect([mha.disposed, linear.disposed]).toEqual([false, false]);
    for (let i = 0; i < 2; ++i) {
      mha.dispose();
      linear.dispose();
    }
    expect([mha.disposed, linear.disposed]).toEqual([true, true]);
    expectError(() => mha.forward(x), gone('MultiHeadAttention.forward()', 'this MultiHeadAttention'));
    expectError(
      () => mha.forward('anything' as never),
      gone('MultiHeadAttention.forward()', 'this MultiHeadAttention'),
    );
    expectError(() => mha.loadStateDict(dict), gone('MultiHeadAttention.loadStateDict()', 'this MultiHeadAttention'));
    expectError(() => mha.stateDict(), gone('MultiHeadAttention.stateDict()', 'this MultiHeadAttention'));
    expectError(
      () => mha.withBuffers({ queryLength: 1 }, () => 0),
      gone('MultiHeadAttention.withBuffers()', 'this MultiHeadAttention'),
    );
    expectError(() => linear.forward(x), gone('Linear.forward()', 'this Linear'));
    expectError(() => linear.loadStateDict({}), gone('Linear.loadStateDict()', 'this Linear'));
    expectError(() => linear.stateDict(), gone('Linear.stateDict()', 'this Linear'));
    expect(new MultiHeadAttention({ embedDim: 8, numHeads: 4, runtime }).forward(x).output.shape).toEqual([3, 8]);
  });

  test('of the runtime ends everything in it', async () => {
    const runtime = await fresh();
    const mha = new MultiHeadAttention({ embedDim: 8, numHeads: 4, runtime });
    const linear = new Linear({ inFeatures: 8, outFeatures: 4, runtime });
    runtime.dispose();
    runtime.dispose();
    expect([runtime.disposed, mha.disposed, linear.disposed, runtime.heapBytes]).toEqual([true, true, true, 0]);
    expectError(() => mha.forward(x), gone('MultiHeadAttention.forward()', 'the runtime'));
    expectError(() => linear.forward(x), gone('Linear.forward()', 'the runtime'));
    expectError(
      () => new MultiHeadAttention({ embedDim: 8, numHeads: 4, runtime }),
      gone('new MultiHeadAttention()', 'the runtime'),
    );
    expectError(
      () => scaledDotProductAttention(x, x, x, { runtime }),
      gone('scaledDotProductAttention()', 'the runtime'),
    );
    mha.dispose();
    linear.dispose();
  });

  test('of the runtime gives its memory back, even while layers are still referred to', async () => {
    const runtime = await fresh();
    const mha = new MultiHeadAttention({ embedDim: 8, numHeads: 4, runtime });
    const memory = mha.withBuffers({ queryLength: 1 }, ({ query }) => new WeakRef(query.buffer));
    expect(memory.deref()?.byteLength).toBe(runtime.heapBytes);
    runtime.dispose();
    await vi.waitFor(() => {
      gc();
      // Not toBeUndefined(): its error would hold the buffer.
      expect(memory.deref() === undefined).toBe(true);
    });
    expect(mha.disposed).toBe(true);
  });

  test('Symbol.dispose does the same', async () => {
    const runtime = await fresh();
    const mha = new MultiHeadAttention({ embedDim: 8, numHeads: 4, runtime });
    {
      using linear = new Linear({ inFeatures: 8, outFeatures: 4, runtime });
      expect(linear.forward(x).shape).toEqual([3, 4]);
    }
    mha[Symbol.dispose]();
    expect(mha.disposed).toBe(true);
    runtime[Symbol.dispose]();
    expect(runtime.disposed).toBe(true);
  });

  test('gives the memory back: layers made and freed in turn do not grow it', async () => {
    const runtime = await fresh();
    const once = (): void => {
      const mha = new MultiHeadAttention({ embedDim: 256, numHeads: 4, runtime });
      mha.loadStateDict(mha.stateDict());
      mha.dispose();
    };
    for (let i = 0; i < 3; ++i) once();
    const heap = runtime.heapBytes;
    for (let i = 0; i < 50; ++i) once();
    expect(runtime.heapBytes).toBe(heap);
  });
});

test('a forgotten layer is freed by the finalizer', async () => {
  const runtime = await fresh();
  // 4 MB of weights each: forgotten ones must be reused, or the memory would grow to more than 200 MB.
  const forget = (): void => void new Linear({ inFeatures: 1024, outFeatures: 1024, runtime });
  forget();
  for (let i = 0; i < 50; ++i) {
    forget();
    gc();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await vi.waitFor(() => {
    gc();
    expect(runtime.heapBytes).toBeLessThan(100e6);
  });
});

test('in steady state nothing is allocated in WASM memory, whatever was called before', async () => {
  const runtime = await fresh();
  const random = new Random(1);
  const mha = new MultiHeadAttention({ embedDim: 64, numHeads: 4, runtime });
  const linear = new Linear({ inFeatures: 64, outFeatures: 200, runtime });
  const [long, short] = [random.tensor(4, 100, 64), random.tensor(2, 7, 64)];
  const calls = (): void => {
    mha.forward(long, { needWeights: 'perHead', returnLse: true, attendMask: random.mask(0.5, 100, 100) });
    mha.forward(short, long.shape[0] === 2 ? long : short, { causal: 'end', keyLengths: 3 });
    linear.forward(long);
    mha.withBuffers({ batch: 2, queryLength: 50 }, ({ run }) => run());
    const heads = { data: long.data, shape: [4, 4, 100, 16] };
    scaledDotProductAttention(heads, heads, heads, { runtime });
  };
  calls();
  const heap = runtime.heapBytes;
  for (let i = 0; i < 30; ++i) calls();
  expect(runtime.heapBytes).toBe(heap);
});

test('inputs are left as they were, and memory growth in between does no harm', async () => {
  const runtime = await fresh();
  const random = new Random(2);
  const mha = new MultiHeadAttention({ embedDim: 16, numHeads: 4, runtime });
  const input = random.tensor(3, 16);
  const copy = input.data.slice();
  const want = mha.forward(input).output.data;
  const before = runtime.heapBytes;
  mha.forward(random.tensor(2, 2000, 16), { needWeights: 'averaged' });
  expect(runtime.heapBytes).toBeGreaterThan(before);
  expect(Array.from(mha.forward(input).output.data)).toEqual(Array.from(want));
  expect(Array.from(input.data)).toEqual(Array.from(copy));
});
