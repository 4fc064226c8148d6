// Functions and getters of the caller run before a call with a cache begins. When they change the cache, what the call
// was laid out for no longer holds: it is refused, and nothing is written out of place.
import {
  HeadwiseRangeError,
  HeadwiseTypeError,
  KvCache,
  MultiHeadAttention,
  type Runtime,
  type Tensor,
  UseAfterDisposeError,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { beforeEach, describe, expect, test } from 'vitest';
import { Random, expectError, expectSameBits } from './helpers.js';

const [HELD, L] = [3, 5];
const sizes = { numKvHeads: 2, headDim: 4, capacity: 4000 };
let runtime: Runtime;
let mha: MultiHeadAttention;
let random: Random;
let x: Tensor;
let query: Tensor;
beforeEach(async () => {
  runtime = await load();
  random = new Random(31);
  mha = new MultiHeadAttention({ embedDim: 8, numHeads: 2, runtime });
  x = random.tensor(1, L, 8);
  query = random.tensor(1, 2, L, 4);
});

const appendTo = (cache: KvCache, n: number): void =>
  cache.append(random.tensor(1, 2, n, 4), random.tensor(1, 2, n, 4));
function makeCache(held: number): KvCache {
  const cache = KvCache.create({ ...sizes, runtime });
  appendTo(cache, held);
  return cache;
}
/** A bias for every column, whose data are asked for after the columns were counted; the first time `act` runs. */
function actingBias(act: () => void): { data: Float32Array; shape: number[] } {
  let acted = false;
  return {
    get data() {
      if (!acted) {
        acted = true;
        act();
      }
      return new Float32Array(L);
    },
    shape: [L, 1],
  };
}

const CALLS = [
  {
    name: 'MultiHeadAttention.forward()',
    held: HELD,
    run: (cache: KvCache, options: object) => mha.forward(x, { cache, ...options }),
  },
  {
    name: 'scaledDotProductAttention()',
    held: HELD + L,
    run: (cache: KvCache, options: object) => scaledDotProductAttention(query, { cache, runtime, ...options }),
  },
];

describe.each(CALLS)('$name', ({ name, held, run }) => {
  const results = { needWeights: 'perHead', needScores: 'biased', returnLse: true } as const;
  const actions = {
    append: (cache: KvCache) => appendTo(cache, 3000),
    crop: (cache: KvCache) => cache.crop(1),
    clear: (cache: KvCache) => cache.clear(),
  };
  const ways = {
    'a getter': (act: () => void) => ({ attnBias: actingBias(act) }),
    maskMod: (act: () => void) => {
      let asked = false;
      return {
        maskMod: () => {
          if (!asked) act();
          asked = true;
          return true;
        },
      };
    },
  };
  for (const [way, options] of Object.entries(ways)) {
    for (const [what, act] of Object.entries(actions)) {
      test(`${way} with ${what}()`, () => {
        const want = run(makeCache(held), results);
        const cache = makeCache(held);
        expectError(() => run(cache, { ...results, ...options(() => act(cache)) }), {
          type: HeadwiseTypeError,
          code: 'conflict',
          call: name,
          argument: 'cache',
          got: 'now',
          wanted: `with ${held}, as when the call began`,
        });
        // The next call has the shapes of what is held now.
        const now = cache.length;
        if (now >= L || name !== 'scaledDotProductAttention()') {
          const columns = run(cache, results).weights?.shape.at(-1);
          expect(columns).toBe(cache.length);
        }
        expect(want.weights?.shape).toEqual([1, 2, L, HELD + L]);
      });
    }
    test(`${way} with dispose()`, () => {
      const cache = makeCache(held);
      expect(() =>
        run(
          cache,
          options(() => cache.dispose()),
        ),
      ).toThrow(UseAfterDisposeError);
    });
  }
});

describe.each([
  { capacity: 40 },
  { capacity: 40, dtype: 'int8' },
  { window: 4 },
  { window: 4, sinkTokens: 2, dtype: 'f16' },
] as const)('a scoreMod that fails leaves a cache of %o as it was', (options) => {
  const fails = {
    throws: () => {
      throw new Error('mine');
    },
    'returns a promise': () => Promise.resolve(),
  };
  for (const [what, scoreMod] of Object.entries(fails)) {
    test(what, () => {
      const cache = mha.createCache({ batch: 2, ...options });
      const [first, next] = [random.tensor(2, 9, 8), random.tensor(2, 3, 8)];
      mha.forward(first, { cache, causal: true, queryLengths: [9, 7] });
      const [saved, twin, out] = [cache.save(), cache.fork(), new Float32Array(48).fill(7)];
      const call = { cache, causal: true, out, scoreMod: scoreMod as never };
      expect(() => mha.forward(next, call)).toThrow(/mine|a Promise/u);
      const heap = runtime.heapBytes;
      for (let n = 0; n < 1000; ++n) expect(() => mha.forward(next, call)).toThrow();
      expect(runtime.heapBytes).toBe(heap);
      expect(out.every((value) => value === 7)).toBe(true);
      expect(cache.lengths).toEqual([9, 7]);
      expect(cache.save()).toEqual(saved);
      const [got, want] = [cache, twin].map((of) => mha.forward(next, { cache: of, causal: true }).output.data);
      expectSameBits(got!, want!);
    });
  }
  test('and one that does not fail lets it grow', () => {
    const cache = mha.createCache(options);
    for (let n = 0; n < 3; ++n) mha.forward(x, { cache, causal: true, scoreMod: () => undefined });
    const twin = mha.createCache(options);
    for (let n = 0; n < 3; ++n) mha.forward(x, { cache: twin, causal: true });
    expect(cache.save()).toEqual(twin.save());
  });
  test('one that disposes of the cache, and fails', () => {
    const cache = mha.createCache(options);
    const scoreMod = (): void => {
      cache.dispose();
      throw new Error('mine');
    };
    const before = mha.forward(x).output.data;
    expect(() => mha.forward(x, { cache, scoreMod })).toThrow('mine');
    expect(cache.disposed).toBe(true);
    expectSameBits(mha.forward(x).output.data, before);
  });
});

test('projectHeads(): a getter that disposes of the cache', () => {
  const layer = new MultiHeadAttention({ embedDim: 8, numHeads: 2, rope: true, runtime });
  const cache = makeCache(HELD);
  const queryLengths = [0];
  Object.defineProperty(queryLengths, 0, {
    get() {
      cache.dispose();
      return L;
    },
  });
  expect(() => layer.projectHeads(x, { cache, queryLengths })).toThrow(UseAfterDisposeError);
});

test('numbers of tokens that change between two looks are looked at once', () => {
  const counts = [1];
  let reads = 0;
  Object.defineProperty(counts, 0, { get: () => (reads++ === 0 ? 1 : L) });
  const cache = makeCache(HELD);
  const got = mha.forward(x, { cache, needWeights: 'perHead', queryLengths: counts });
  expect(reads).toBe(1);
  expect(cache.length).toBe(HELD + 1);
  expect(got.weights.shape).toEqual([1, 2, L, HELD + 1]);
});

test('a full cache still refuses before anything is asked', () => {
  const cache = KvCache.create({ ...sizes, capacity: HELD, runtime });
  let asked = 0;
  const maskMod = (): boolean => asked++ >= 0;
  expectError(() => mha.forward(x, { cache, maskMod }), {
    type: HeadwiseRangeError,
    code: 'out-of-range',
    call: 'MultiHeadAttention.forward()',
    argument: 'cache entry 0',
    got: `0 and ${L} more`,
    wanted: `at most ${HELD}`,
  });
  expect(asked).toBe(0);
  const before = mha.forward(x).output.data;
  expectSameBits(mha.forward(x).output.data, before);
});
