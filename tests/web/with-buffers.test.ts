// withBuffers(): zero-copy, and no way to be left with dead views without a word.
import {
  HeadwiseError,
  HeadwiseRangeError,
  HeadwiseTypeError,
  KvCache,
  Linear,
  MultiHeadAttention,
  type Runtime,
  UseAfterDisposeError,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { type ExpectedError, Random, expectError, expectSameBits, zeros } from './helpers.js';

const CALL = 'MultiHeadAttention.withBuffers()';
let runtime: Runtime;
let mha: MultiHeadAttention;
beforeAll(async () => {
  runtime = await load();
  mha = new MultiHeadAttention({ embedDim: 12, numHeads: 4 });
});
const random = new Random(1);

test('self-attention: one array for all three, the bits of forward()', () => {
  const x = random.tensor(2, 5, 12);
  const want = mha.forward(x, { causal: true, needWeights: 'perHead', returnLse: true });
  const options = { causal: true, needWeights: 'perHead', returnLse: true } as const;
  const returned = mha.withBuffers({ batch: 2, queryLength: 5, options }, (views) => {
    expect(views.key).toBe(views.query);
    expect(views.value).toBe(views.query);
    views.query.set(x.data);
    views.run();
    expectSameBits(views.output, want.output.data);
    expectSameBits(views.weights!, want.weights!.data);
    expectSameBits(views.lse!, want.lse!.data);
    // Again, with other input in the same place.
    views.query.fill(0.5);
    views.run();
    return views.output.slice();
  });
  const half = { data: new Float32Array(120).fill(0.5), shape: [2, 5, 12] };
  expectSameBits(returned, mha.forward(half, { causal: true }).output.data);
});

test('cross-attention, unbatched, with masks', () => {
  const [x, k, v] = [random.tensor(5, 12), random.tensor(7, 12), random.tensor(7, 12)];
  const keyPaddingMask = random.mask(0.3, 7);
  const want = mha.forward(x, k, v, { keyPaddingMask }).output.data;
  mha.withBuffers({ queryLength: 5, keyLength: 7, options: { keyPaddingMask } }, (views) => {
    views.query.set(x.data);
    views.key.set(k.data);
    views.value.set(v.data);
    views.run();
    expectSameBits(views.output, want);
    expect(views.weights).toBeUndefined();
  });
});

describe('a view of every result: the bits of forward()', () => {
  // Every option that brings a result; all of one call together.
  const asked = {
    averaged: { needWeights: 'averaged' },
    perHead: { needWeights: 'perHead' },
    raw: { needScores: 'raw' },
    capped: { needScores: 'capped', softcap: 2 },
    biased: { needScores: 'biased', softcap: 2 },
    lse: { returnLse: true },
    max: { returnMax: true },
    heads: { returnHeads: true },
    all: { needWeights: 'perHead', needScores: 'raw', returnLse: true, returnMax: true, returnHeads: true },
  } as const;
  const RESULTS = ['output', 'weights', 'scores', 'lse', 'rowMax', 'heads'] as const;
  test.each(Object.entries(asked))('%s', (_name, wanted) => {
    // All sizes differ; extra keys bring columns.
    const layer = new MultiHeadAttention({
      embedDim: 12,
      numHeads: 6,
      numKvHeads: 2,
      headDim: 5,
      vHeadDim: 7,
      kDim: 8,
      vDim: 9,
      outDim: 10,
      addZeroAttn: true,
    });
    const options = { ...wanted, causal: true, keyPaddingMask: random.mask(0.3, 2, 4) } as const;
    // Twice: a second run() writes all of them anew.
    const runs = layer.withBuffers({ batch: 2, queryLength: 3, keyLength: 4, options }, (views) =>
      [0, 1].map(() => {
        const inputs = [random.tensor(2, 3, 12), random.tensor(2, 4, 8), random.tensor(2, 4, 9)] as const;
        views.query.set(inputs[0].data);
        views.key.set(inputs[1].data);
        views.value.set(inputs[2].data);
        views.run();
        return { inputs, got: Object.fromEntries(RESULTS.map((name) => [name, views[name]?.slice()])) };
      }),
    );
    for (const { inputs, got } of runs) {
      const want = layer.forward(...inputs, options);
      for (const name of RESULTS) {
        expect(got[name] === undefined, name).toBe(want[name] === undefined);
        if (want[name] !== undefined) expectSameBits(got[name]!, want[name].data);
      }
    }
  });
});

test('views that are kept: empty once the memory has grown, and copies are not', async () => {
  const alone = await load({
    variant: 'simd',
    wasmUrl: new URL('../../web/dist/wasm/headwise.simd.wasm', import.meta.url),
  });
  const layer = new MultiHeadAttention({ embedDim: 12, numHeads: 4, runtime: alone });
  const options = {
    needWeights: 'perHead',
    needScores: 'raw',
    returnLse: true,
    returnMax: true,
    returnHeads: true,
  } as const;
  const x = random.tensor(3, 12);
  const { kept, copy } = layer.withBuffers({ queryLength: 3, options }, ({ run, ...views }) => {
    views.query.set(x.data);
    run();
    return { kept: views, copy: views.output.slice() };
  });
  expect(Object.keys(kept).sort()).toEqual(
    ['heads', 'key', 'lse', 'output', 'query', 'rowMax', 'scores', 'value', 'weights'].sort(),
  );
  const before = alone.heapBytes;
  const large = KvCache.create({ numKvHeads: 1, headDim: 64, capacity: 2 ** 18, runtime: alone });
  expect(alone.heapBytes).toBeGreaterThan(before);
  for (const view of Object.values(kept)) expect(view.length).toBe(0);
  expectSameBits(copy, layer.forward(x).output.data);
  // The next ones lie in the memory as it is now.
  layer.withBuffers({ queryLength: 3, options }, (views) => {
    views.query.set(x.data);
    views.run();
    expectSameBits(views.output, copy);
  });
  large.dispose();
  layer.dispose();
});

// A layer in a second runtime, which works while the first is lent.
let other: MultiHeadAttention;
beforeAll(async () => {
  const second = await load({
    variant: 'simd',
    wasmUrl: new URL('../../web/dist/wasm/headwise.simd.wasm', import.meta.url),
  });
  other = new MultiHeadAttention({ embedDim: 12, numHeads: 4, runtime: second });
});

test('another runtime works on while this one is lent', () => {
  mha.withBuffers({ queryLength: 1 }, () => {
    expect(other.forward(zeros(1, 12)).output.shape).toEqual([1, 12]);
  });
});

test('zero lengths', () => {
  mha.withBuffers({ batch: 0, queryLength: 5 }, ({ output, run }) => {
    run();
    expect(output.length).toBe(0);
  });
});

describe('inside the callback, what could move the memory is refused, and the views live on', () => {
  const x = zeros(1, 12);
  const busy = (call: string): ExpectedError => ({
    type: HeadwiseError,
    code: 'busy',
    call,
    argument: 'the runtime',
    got: `lent to ${CALL}`,
    wanted: 'must be free',
  });
  test.each<[string, string, () => unknown]>([
    ['forward()', 'MultiHeadAttention.forward()', () => mha.forward(x)],
    ['a nested withBuffers()', CALL, () => mha.withBuffers({ queryLength: 1 }, () => 0)],
    ['loadStateDict()', 'MultiHeadAttention.loadStateDict()', () => mha.loadStateDict(other.stateDict())],
    ['stateDict()', 'MultiHeadAttention.stateDict()', () => mha.stateDict()],
    ['a new layer', 'new MultiHeadAttention()', () => new MultiHeadAttention({ embedDim: 4, numHeads: 4, runtime })],
    ['a new Linear', 'new Linear()', () => new Linear({ inFeatures: 1, outFeatures: 1, runtime })],
    [
      'scaledDotProductAttention()',
      'scaledDotProductAttention()',
      () => scaledDotProductAttention(x, x, x, { runtime }),
    ],
  ])('%s', (_name, call, f) => {
    mha.withBuffers({ queryLength: 3 }, ({ query, output, run }) => {
      query.fill(1);
      run();
      const before = output.slice();
      expectError(f, busy(call));
      run();
      expectSameBits(output, before);
      expect(query.length).toBe(36);
    });
    expect(mha.forward(x).output.shape).toEqual([1, 12]);
  });
});

test('an error in the callback passes through and frees the runtime', () => {
  expect(() =>
    mha.withBuffers({ queryLength: 1 }, () => {
      throw new Error('mine');
    }),
  ).toThrow('mine');
  expect(mha.forward(zeros(1, 12)).output.shape).toEqual([1, 12]);
});

test('run() after the callback has returned is an error', () => {
  const run = mha.withBuffers({ queryLength: 1 }, (views) => views.run);
  expectError(run, {
    type: UseAfterDisposeError,
    code: 'disposed',
    call: `${CALL} run()`,
    argument: 'the views',
    got: 'dead',
    wanted: 'inside it',
  });
});

test('dispose() inside the callback: run() says so', () => {
  const short = new MultiHeadAttention({ embedDim: 4, numHeads: 4 });
  expect(() =>
    short.withBuffers({ queryLength: 1 }, ({ run }) => {
      short.dispose();
      run();
    }),
  ).toThrow(UseAfterDisposeError);
});

describe('bad arguments', () => {
  const RANGE = { type: HeadwiseRangeError, code: 'out-of-range', call: CALL } as const;
  const TYPE = { type: HeadwiseTypeError, code: 'wrong-type', call: CALL } as const;
  const nothing = (): number => 0;
  test.each<[string, unknown[], ExpectedError]>([
    ['no size', [], { ...TYPE, argument: 'queryLength', got: 'undefined', wanted: 'whole number from 0' }],
    [
      'a negative length',
      [{ queryLength: -1 }, nothing],
      { ...RANGE, argument: 'queryLength', got: '-1', wanted: 'whole number from 0' },
    ],
    [
      'a fractional length',
      [{ queryLength: 1, keyLength: 0.5 }, nothing],
      { ...RANGE, argument: 'keyLength', got: '0.5', wanted: 'whole number from 0' },
    ],
    [
      'a batch of NaN',
      [{ queryLength: 1, batch: NaN }, nothing],
      { ...RANGE, argument: 'batch', got: 'NaN', wanted: 'whole number from 0' },
    ],
    [
      'an unknown name',
      [{ queryLength: 1, length: 1 }, nothing],
      { ...TYPE, code: 'unknown-option', argument: '"length"', got: 'unknown', wanted: 'queryLength' },
    ],
    ['no function', [{ queryLength: 1 }], { ...TYPE, argument: 'f', got: 'undefined', wanted: 'a function' }],
    [
      'a function that waits',
      [{ queryLength: 1 }, async () => 0],
      { ...TYPE, argument: 'f', got: 'a promise', wanted: 'synchronous' },
    ],
    [
      'a mask of other sizes',
      [{ queryLength: 1, options: { keyPaddingMask: { data: new Uint8Array(2), shape: [2] } } }, nothing],
      { ...RANGE, code: 'wrong-shape', argument: 'keyPaddingMask.shape', got: '[2]', wanted: '[1]' },
    ],
    [
      'out',
      [{ queryLength: 1, options: { out: new Float32Array(12) } }, nothing],
      { ...TYPE, code: 'conflict', argument: 'options.out', got: 'given', wanted: 'left away' },
    ],
    [
      'needWeights of no kind',
      [{ queryLength: 1, options: { needWeights: true } }, nothing],
      { ...TYPE, argument: 'needWeights', got: 'true', wanted: "'perHead'" },
    ],
    [
      'sizes beyond the address space',
      [{ queryLength: 2 ** 31 - 1 }, nothing],
      { ...RANGE, code: 'too-large', argument: 'L = 2147483647', got: 'bytes', wanted: 'less than' },
    ],
  ])('%s', (_name, args, expected) => {
    expectError(() => (mha.withBuffers as (...args: unknown[]) => unknown)(...args), expected);
    expect(mha.forward(zeros(1, 12)).output.shape).toEqual([1, 12]);
  });
  test('self-attention of a layer whose keys are of another width', () => {
    const cross = new MultiHeadAttention({ embedDim: 12, numHeads: 4, kDim: 3 });
    expectError(() => cross.withBuffers({ queryLength: 1 }, nothing), {
      ...RANGE,
      code: 'wrong-shape',
      argument: 'keyLength',
      got: 'kDim 3',
      wanted: 'given where keys',
    });
  });
});
