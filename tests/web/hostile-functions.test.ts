// Functions of the caller that do what they should not: attend within themselves, answer with what is no answer, be
// asked about sizes that no memory holds.
import {
  BlockMask,
  HeadwiseRangeError,
  HeadwiseTypeError,
  KvCache,
  type MaskMod,
  MultiHeadAttention,
  type Runtime,
  type ScoreTile,
  inspect,
  load,
  perScore,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, expectError, expectSameBits } from './helpers.js';

let runtime: Runtime;
let other: Runtime;
beforeAll(async () => {
  runtime = await load({ variant: 'simd' });
  other = await load({
    variant: 'simd',
    wasmUrl: new URL('../../web/dist/wasm/headwise.simd.wasm', import.meta.url),
  });
});
const random = new Random(41);

describe('maskMod', () => {
  test('one that attends with itself as the mask keeps one mask, not one for each depth', () => {
    const [inner, outer] = [random.tensor(1, 300, 4), random.tensor(1, 310, 4)];
    const attend = (): Float32Array => {
      let depth = 0;
      const maskMod: MaskMod = (_b, _h, i, j) => {
        depth += 1;
        if (depth === 1) scaledDotProductAttention(inner, inner, inner, { runtime, maskMod });
        return (i * j) % 3 === 0;
      };
      return scaledDotProductAttention(outer, outer, outer, { runtime, maskMod }).output.data;
    };
    const want = attend();
    for (let n = 0; n < 10; ++n) attend();
    const before = runtime.heapBytes;
    // 12 kilobytes each, were they kept.
    for (let n = 0; n < 100; ++n) attend();
    expectSameBits(attend(), want);
    expect(runtime.heapBytes).toBe(before);
  });

  test('a new function for each call fills no memory, and a few are kept', () => {
    const x = random.tensor(8, 200, 4);
    const attend = (maskMod: MaskMod): unknown => scaledDotProductAttention(x, x, x, { runtime, maskMod });
    for (let n = 0; n < 10; ++n) attend((_b, _h, i, j) => (i + j) % 2 === 0);
    const before = runtime.heapBytes;
    // 50 kilobytes each, were they kept.
    for (let n = 0; n < 60; ++n) attend((_b, _h, i, j) => (i + j) % 2 === 0);
    expect(runtime.heapBytes).toBe(before);

    let asked = 0;
    const mods = Array.from({ length: 8 }, (): MaskMod => () => ++asked > 0);
    for (let round = 0; round < 3; ++round) mods.forEach(attend);
    expect(asked).toBe(8 * x.shape[0]! * 200 * 200);
  });

  test('one used in another runtime, too, is asked once in each, and takes no mask away', () => {
    expect(other).not.toBe(runtime);
    let asked = 0;
    const maskMod: MaskMod = (_b, _h, i, j) => {
      asked += 1;
      return i >= j;
    };
    const x = random.tensor(1, 6, 8);
    const layers = [runtime, other].map((of) => new MultiHeadAttention({ embedDim: 8, numHeads: 1, runtime: of }));
    const want = layers[0]!.forward(x, { causal: true }).output.data;
    layers[0]!.withBuffers({ batch: 1, queryLength: 6, options: { maskMod } }, ({ query, output, run }) => {
      query.set(x.data);
      expectSameBits(layers[1]!.forward(x, { maskMod }).output.data, want);
      run();
      expectSameBits(output, want);
    });
    for (const layer of [...layers, ...layers]) expectSameBits(layer.forward(x, { maskMod }).output.data, want);
    expect(asked).toBe(2 * 36);
  });
});

test('perScore: what is no number is refused, and not taken for NaN', () => {
  const x = random.tensor(1, 6, 4);
  const want = scaledDotProductAttention(x, x, x, { runtime }).output.data;
  const answers: [unknown, string][] = [
    [undefined, 'undefined'],
    [null, 'null'],
    ['1', '"1"'],
    [true, 'true'],
    [Promise.resolve(0), 'a Promise'],
    [1n, '1'],
  ];
  for (const [answer, got] of answers) {
    const scoreMod = perScore(() => answer as number);
    expectError(() => scaledDotProductAttention(x, x, x, { runtime, scoreMod }), {
      type: HeadwiseTypeError,
      code: 'wrong-type',
      call: 'perScore()',
      argument: 'f',
      got: `returns ${got}`,
      wanted: 'a number',
    });
    expectSameBits(scaledDotProductAttention(x, x, x, { runtime }).output.data, want);
  }
  // Every number is an answer.
  const nan = perScore(() => NaN);
  expect(scaledDotProductAttention(x, x, x, { runtime, scoreMod: nan }).output.data.every(Number.isNaN)).toBe(true);
});

test('a promise is refused, and its rejection ends nothing', async () => {
  const unhandled: unknown[] = [];
  const listen = (error: unknown): void => void unhandled.push(error);
  process.on('unhandledRejection', listen);
  const late = (): never => Promise.reject(new Error('late')) as never;
  const x = random.tensor(1, 6, 4);
  const sizes = { queryLength: 2, keyLength: 2, runtime };
  try {
    for (const options of [{ maskMod: late }, { scoreMod: late }, { scoreMod: perScore(late) }]) {
      expect(() => scaledDotProductAttention(x, x, x, { runtime, ...options })).toThrow(/returns a Promise/u);
    }
    expect(() => BlockMask.fromFunction(late, sizes)).toThrow(/returns a Promise/u);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(unhandled).toEqual([]);
  } finally {
    process.off('unhandledRejection', listen);
  }
});

test('a scoreMod without braces is told of them', () => {
  const x = random.tensor(1, 6, 4);
  const scoreMod = ((tile: ScoreTile) => tile.scores.fill(1)) as never;
  expectError(() => scaledDotProductAttention(x, x, x, { runtime, scoreMod }), {
    type: HeadwiseTypeError,
    code: 'wrong-type',
    call: 'scaledDotProductAttention()',
    argument: 'scoreMod',
    got: 'returns a Float32Array',
    wanted: 'or braces: (tile) => { … }',
  });
});

test('private constructors say who makes such objects', () => {
  for (const [name, Type] of Object.entries({ BlockMask, KvCache })) {
    expectError(() => new (Type as unknown as new () => unknown)(), {
      type: HeadwiseTypeError,
      code: 'wrong-type',
      call: `new ${name}()`,
      argument: 'the constructor',
      got: 'called',
      wanted: 'left to the package',
    });
  }
});

test('what only looks like one of our objects is called so', () => {
  const layer = new MultiHeadAttention({ embedDim: 8, numHeads: 1, runtime });
  const x = random.tensor(1, 2, 8);
  const mask = BlockMask.fromFunction(() => true, { queryLength: 2, keyLength: 2, runtime });
  const cache = layer.createCache({ capacity: 2 });
  expect(() => layer.forward(x, { blockMask: new Proxy(mask, {}) })).toThrow(/this copy of the package did not make/u);
  expect(() => layer.forward(x, { cache: new Proxy(cache, {}) })).toThrow(/this copy of the package did not make/u);
});

test('holes in a list of heads are no heads', () => {
  const x = random.tensor(1, 2, 6, 4);
  expect(() => inspect(x, x, { runtime, heads: new Array<number>(2) })).toThrow(/heads\[0\] is undefined/u);
});

describe('BlockMask of a length of 0', () => {
  test('sizes that nothing could go through are refused at once', () => {
    const most = 2 ** 31 - 1;
    const sizes = [
      { queryLength: most, keyLength: 0 },
      { queryLength: 0, keyLength: most, batch: most },
      { queryLength: 0, keyLength: 0, batch: most, numHeads: most },
    ];
    for (const options of sizes) {
      expectError(() => BlockMask.fromFunction(() => true, { ...options, runtime }), {
        type: HeadwiseRangeError,
        code: 'too-large',
        call: 'BlockMask.fromFunction()',
        argument: 'the memory for a mask',
        got: 'bytes',
        wanted: 'less than',
      });
    }
  });
  test('others are legal', () => {
    for (const options of [
      { queryLength: 0, keyLength: 0 },
      { queryLength: 7, keyLength: 0 },
      { queryLength: 0, keyLength: 7, batch: 3, numHeads: 2 },
    ]) {
      const mask = BlockMask.fromFunction(() => true, { ...options, runtime });
      expect(mask.blocks).toEqual({ empty: 0, full: 0, partial: 0 });
      mask.dispose();
    }
  });
});
