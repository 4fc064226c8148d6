// Masks by position and functions of the caller, through the package: what they say is what a dense mask or a bias
// says, and what goes wrong in them leaves nothing broken. Every build is tested.
import {
  BlockMask,
  HeadwiseRangeError,
  HeadwiseTypeError,
  KvCache,
  type MaskMod,
  MultiHeadAttention,
  type Runtime,
  type ScoreTile,
  type Tensor,
  UseAfterDisposeError,
  attentionTile,
  inspect,
  load,
  perScore,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectError, expectSameBits, zeros } from './helpers.js';

const CALL = 'scaledDotProductAttention()';

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });

  const [B, H, KV, L, S, D] = [2, 4, 2, 70, 150, 6] as const;
  const inputs = (seed: number, queries: number = L, keys: number = S): [Tensor, Tensor, Tensor] => {
    const random = new Random(seed);
    return [random.tensor(B, H, queries, D), random.tensor(B, KV, keys, D), random.tensor(B, KV, keys, 5)];
  };
  const patches: MaskMod = (b, h, i, j) => (i * 3 + j + b + h) % 7 < 3 || Math.floor(j / 60) === b;

  const dense = (mod: MaskMod, queries: number, keys: number, offset = 0): { data: Uint8Array; shape: number[] } => {
    const data = new Uint8Array(B * H * queries * keys);
    let at = 0;
    for (let b = 0; b < B; ++b)
      for (let h = 0; h < H; ++h)
        for (let i = 0; i < queries; ++i) for (let j = 0; j < keys; ++j) data[at++] = Number(mod(b, h, i + offset, j));
    return { data, shape: [B, H, queries, keys] };
  };
  const full = { needWeights: 'perHead', needScores: 'biased', returnLse: true, returnMax: true } as const;
  const expectSame = (got: object, want: object): void => {
    for (const name of ['output', 'weights', 'scores', 'lse', 'rowMax'] as const) {
      const of = (result: object): Float32Array => (result as Record<string, Tensor>)[name]!.data as Float32Array;
      expectSameBits(of(got), of(want));
    }
  };

  test('maskMod equals the dense mask', () => {
    const [q, k, v] = inputs(1);
    const want = scaledDotProductAttention(q, k, v, { runtime, attendMask: dense(patches, L, S), ...full });
    expectSame(scaledDotProductAttention(q, k, v, { runtime, maskMod: patches, ...full }), want);
    // 1 and 0 are as good as true and false.
    const numbers: MaskMod = (b, h, i, j) => Number(patches(b, h, i, j));
    expectSame(scaledDotProductAttention(q, k, v, { runtime, maskMod: numbers, ...full }), want);
  });

  test('N-49 a function of the key is asked about the key, and its answers are kept only while they fit', () => {
    const keep = Array.from({ length: 300 }, (_, j) => j % 3 !== 1);
    let asked = 0;
    const maskMod: MaskMod = (_b, _h, _i, j) => {
      asked += 1;
      return keep[j]!;
    };
    const run = (queries: number, keys: number): void => {
      const [q, k, v] = inputs(queries, queries, keys);
      const attendMask = dense((_b, _h, _i, j) => keep[j]!, queries, keys);
      const want = scaledDotProductAttention(q, k, v, { runtime, attendMask, ...full });
      expectSame(scaledDotProductAttention(q, k, v, { runtime, maskMod, ...full }), want);
    };
    run(40, 200);
    expect(asked).toBe(B * H * 40 * 200);
    // Shorter in both directions: the answers are there.
    run(40, 200);
    run(13, 150);
    expect(asked).toBe(B * H * 40 * 200);
    // Longer in one: asked anew.
    run(40, 201);
    expect(asked).toBe(B * H * 40 * (200 + 201));
    run(41, 201);
    expect(asked).toBe(B * H * (40 * (200 + 201) + 41 * 201));
  });

  test('positions count from queryOffset, and from the cache', () => {
    const [q, k, v] = inputs(3, 12, S);
    const attendMask = dense(patches, 12, S, 90);
    const want = scaledDotProductAttention(q, k, v, { runtime, attendMask, ...full });
    expectSame(scaledDotProductAttention(q, k, v, { runtime, maskMod: patches, queryOffset: 90, ...full }), want);

    const length = 50;
    const [query, key, value] = inputs(4, length, length);
    const whole = scaledDotProductAttention(query, key, value, { runtime, maskMod: patches, causal: true });
    const cache = KvCache.create({ batch: B, numKvHeads: KV, headDim: D, vHeadDim: 5, capacity: 64, runtime });
    let asked = 0;
    const counted: MaskMod = (b, h, i, j) => {
      asked += 1;
      return patches(b, h, i, j);
    };
    const rows = (t: Tensor, heads: number, width: number, from: number, to: number): Tensor => {
      const parts: number[] = [];
      for (let n = 0; n < B * heads; ++n)
        parts.push(...t.data.subarray((n * length + from) * width, (n * length + to) * width));
      return { data: Float32Array.from(parts), shape: [B, heads, to - from, width] };
    };
    let at = 0;
    for (const step of [20, 1, 1, 8, 1, 19]) {
      cache.append(rows(key, KV, D, at, at + step), rows(value, KV, 5, at, at + step));
      const q = rows(query, H, D, at, at + step);
      asked = 0;
      const got = scaledDotProductAttention(q, { cache, maskMod: counted, causal: true });
      expectSameBits(got.output.data as Float32Array, rows(whole.output, H, 5, at, at + step).data as Float32Array);
      // A step asks about its own rows only.
      expect(asked).toBe(B * H * step * (at + step));
      at += step;
    }
    cache.dispose();
  });

  test('a layer takes them, cached or not', () => {
    const layer = new MultiHeadAttention({ embedDim: 24, numHeads: H, numKvHeads: KV, rope: true, runtime });
    const x = new Random(5).tensor(B, 30, 24);
    const want = layer.forward(x, { attendMask: dense(patches, 30, 30), causal: true, ...full });
    expectSame(layer.forward(x, { maskMod: patches, causal: true, ...full }), want);
    const cache = layer.createCache({ batch: B, capacity: 30 });
    expectSame(layer.forward(x, { maskMod: patches, cache, causal: true, ...full }), want);
    cache.dispose();
    // Every run() asks whether the mask is still there.
    const mask = BlockMask.fromFunction(patches, { batch: B, numHeads: H, queryLength: 30, keyLength: 30, runtime });
    layer.withBuffers(
      { batch: B, queryLength: 30, options: { blockMask: mask, causal: true } },
      ({ query, output, run }) => {
        query.set(x.data);
        run();
        expectSameBits(output.slice(), want.output.data as Float32Array);
        mask.dispose();
        expect(run).toThrow(UseAfterDisposeError);
      },
    );
    layer.dispose();
  });

  test('BlockMask: from a function, a map of blocks, documents', () => {
    const [q, k, v] = inputs(6);
    const sizes = { queryLength: L, keyLength: S, runtime };
    const shared = BlockMask.fromFunction((_b, _h, i, j) => (i + j) % 5 === 0, sizes);
    expect(shared.shape).toEqual({ batch: 1, numHeads: 1, firstQuery: 0, queryLength: L, keyLength: S });
    expect(shared.blocks).toEqual({ empty: 0, full: 0, partial: 4 });
    const modulo = dense((_b, _h, i, j) => (i + j) % 5 === 0, L, S);
    const run = (blockMask: BlockMask): object => scaledDotProductAttention(q, k, v, { runtime, blockMask, ...full });
    const want = (mask: object): object =>
      scaledDotProductAttention(q, k, v, {
        runtime,
        attendMask: mask as { data: Uint8Array; shape: number[] },
        ...full,
      });
    expectSame(run(shared), want(modulo));

    const map = { data: Uint8Array.from([1, 0, 1, 0, 1, 0]), shape: [2, 3] };
    const sparse = BlockMask.fromBlocks(map, { ...sizes, blockSize: [64, 64] });
    const checkers: MaskMod = (_b, _h, i, j) => map.data[Math.floor(i / 64) * 3 + Math.floor(j / 64)]!;
    expectSame(run(sparse), want(dense(checkers, L, S)));
    const perEntry = { data: Uint8Array.from([1, 0, 0, 1]), shape: [2, 1, 1, 2] };
    const halves = BlockMask.fromBlocks(perEntry, { ...sizes, batch: 2, blockSize: [100, 75] });
    expectSame(run(halves), want(dense((b, _h, _i, j) => Math.floor(j / 75) === b, L, S)));

    const [q2, k2, v2] = inputs(7, L, L);
    const ids = [Array.from({ length: L }, (_, i) => Math.floor(i / 30)), Array.from({ length: L }, (_, i) => i % 2)];
    const documents = BlockMask.fromDocuments(ids, { runtime });
    expect(documents.shape.batch).toBe(2);
    const same = dense((b, _h, i, j) => ids[b]![i] === ids[b]![j], L, L);
    expectSame(
      scaledDotProductAttention(q2, k2, v2, { runtime, blockMask: documents, ...full }),
      scaledDotProductAttention(q2, k2, v2, { runtime, attendMask: same, ...full }),
    );
    for (const mask of [shared, sparse, halves, documents]) mask.dispose();
    expect(shared.disposed).toBe(true);
    expect(() => shared.blocks).toThrow(UseAfterDisposeError);
  });

  test('blocks that nobody sees cost no memory', () => {
    const length = 2048;
    const sizes = { queryLength: length, keyLength: length, runtime };
    const window = BlockMask.fromFunction((_b, _h, i, j) => i - j >= 0 && i - j < 128, sizes);
    const { empty, full: whole, partial } = window.blocks;
    expect(empty + whole + partial).toBe((length / 64) * (length / 128));
    expect(whole + partial).toBeLessThan((3 * length) / 64);
    expect(window.bytes).toBeLessThan(length * 128);
    window.dispose();
  });

  test('scoreMod: adding is a bias, whole tiles or score by score', () => {
    const [q, k, v] = inputs(8);
    const bias = (b: number, h: number, i: number, j: number): number => ((b + h * 2 + i * 3 + j * 5) % 16) / 4 - 2;
    const attnBias = {
      data: Float32Array.from({ length: B * H * L * S }, (_, n) =>
        bias(Math.floor(n / (H * L * S)), Math.floor(n / (L * S)) % H, Math.floor(n / S) % L, n % S),
      ),
      shape: [B, H, L, S],
    };
    const want = scaledDotProductAttention(q, k, v, { runtime, softcap: 3, causal: 'end', attnBias, ...full });
    const tiles = (t: ScoreTile): void => {
      for (let r = 0; r < t.rows; ++r)
        for (let c = 0; c < t.keys; ++c)
          t.scores[r * t.stride + c]! += bias(t.batch, t.head, t.row + r, t.keyPosition + c);
    };
    const options = { runtime, softcap: 3, causal: 'end' } as const;
    expectSame(scaledDotProductAttention(q, k, v, { ...options, scoreMod: tiles, ...full }), want);
    // Positions, not rows: 'end' puts query 0 at S - L.
    const scoreMod = perScore((score, b, h, i, j) => score + bias(b, h, i - (S - L), j));
    expectSame(scaledDotProductAttention(q, k, v, { ...options, scoreMod, ...full }), want);

    // The same in what is looked at afterwards.
    const { lse, weights } = want;
    const tile = attentionTile(q, k, {
      ...options,
      scoreMod,
      lse: lse!,
      batch: 1,
      head: 3,
      rows: [5, 30],
      keys: [90, 150],
    });
    const plain = attentionTile(q, k, {
      ...options,
      attnBias,
      lse: lse!,
      batch: 1,
      head: 3,
      rows: [5, 30],
      keys: [90, 150],
    });
    expectSameBits(tile.data as Float32Array, plain.data as Float32Array);
    const top = inspect(q, k, { ...options, scoreMod, lse: lse!, topK: 1 }).topK!;
    expect(top.values[0]).toBeCloseTo(Math.max(...weights.data.subarray(0, S)), 5);
  });

  test('a scoreMod that throws, or returns something, ends the call and breaks nothing', () => {
    const [q, k, v] = inputs(9);
    const before = scaledDotProductAttention(q, k, v, { runtime }).output.data as Float32Array;
    let calls = 0;
    const failing = (): void => {
      calls += 1;
      if (calls === 3) throw new Error('mine');
    };
    const out = new Float32Array(B * H * L * 5).fill(42);
    for (let n = 0; n < 2000; ++n) {
      calls = 0;
      expect(() => scaledDotProductAttention(q, k, v, { runtime, scoreMod: failing, out })).toThrow('mine');
      expect(calls).toBe(3);
      if (n > 3 && variant !== 'simd') break;
      if (n > 40) break;
    }
    expect(out.every((x) => x === 42)).toBe(true);
    expectError(() => scaledDotProductAttention(q, k, v, { runtime, scoreMod: ((score: unknown) => score) as never }), {
      type: HeadwiseTypeError,
      code: 'wrong-type',
      call: CALL,
      argument: 'scoreMod',
      got: 'returns',
      wanted: 'nothing',
    });
    expectSameBits(scaledDotProductAttention(q, k, v, { runtime }).output.data as Float32Array, before);
  });

  test('a scoreMod cannot change what the call is reading', () => {
    const layer = new MultiHeadAttention({ embedDim: 24, numHeads: H, runtime });
    const x = new Random(10).tensor(1, 9, 24);
    const want = layer.forward(x).output.data as Float32Array;
    const errors: unknown[] = [];
    const attempt = (f: () => unknown): void => {
      try {
        f();
        errors.push(undefined);
      } catch (error) {
        errors.push((error as { code?: string }).code);
      }
    };
    const cache = layer.createCache({ capacity: 20 });
    const mask = BlockMask.fromFunction(() => true, { queryLength: 20, keyLength: 20, runtime });
    let tried = false;
    const got = layer.forward(x, {
      cache,
      blockMask: mask,
      scoreMod: () => {
        if (tried) return;
        tried = true;
        attempt(() => layer.forward(x));
        attempt(() => cache.crop(1));
        attempt(() => cache.clear());
        attempt(() => cache.append(zeros(1, H, 1, 6), zeros(1, H, 1, 6)));
        attempt(() => layer.stateDict());
        attempt(() => BlockMask.fromFunction(() => true, { queryLength: 1, keyLength: 1, runtime }));
        // Freed when the call is over.
        cache.dispose();
        mask.dispose();
        layer.dispose();
      },
    });
    expect(errors).toEqual(Array(6).fill('busy'));
    expectSameBits(got.output.data as Float32Array, want);
    expect([cache.disposed, mask.disposed, layer.disposed]).toEqual([true, true, true]);
  });

  test('what does not fit is refused, and says so', () => {
    const [q, k, v] = inputs(11);
    const make = (queryLength: number, keyLength: number, more: object = {}): BlockMask =>
      BlockMask.fromFunction(() => true, { queryLength, keyLength, runtime, ...more });
    const refuse = (options: object, argument: string, got: string, wanted: string | RegExp, code: string): void =>
      expectError(() => scaledDotProductAttention(q, k, v, { runtime, ...options }), {
        type: code === 'wrong-shape' || code === 'out-of-range' ? HeadwiseRangeError : HeadwiseTypeError,
        code,
        call: CALL,
        argument,
        got,
        wanted,
      });
    refuse({ blockMask: make(L - 1, S) }, 'blockMask', `0 to ${L - 1}`, `0 to ${L}`, 'wrong-shape');
    refuse({ blockMask: make(L, S - 1) }, 'blockMask', `${S - 1} keys`, `${S} keys`, 'wrong-shape');
    refuse({ blockMask: make(L, S, { batch: 3 }) }, 'blockMask.shape.batch', '3', '1, or 2', 'wrong-shape');
    refuse({ blockMask: make(L, S, { numHeads: 2 }) }, 'blockMask.shape.numHeads', '2', '1, or 4', 'wrong-shape');
    refuse({ blockMask: {} }, 'blockMask', 'object', 'a BlockMask', 'wrong-type');
    refuse({ blockMask: make(L, S), maskMod: patches }, 'maskMod', 'blockMask', 'alone', 'conflict');
    refuse({ maskMod: 1 }, 'maskMod', '1', 'a function', 'wrong-type');
    refuse({ maskMod: () => undefined }, 'maskMod', 'undefined for (0, 0, 0, 0)', 'true, false', 'wrong-type');
    refuse({ maskMod: async () => true }, 'maskMod', 'Promise', 'true, false', 'wrong-type');
    refuse({ scoreMod: 'abs' }, 'scoreMod', 'abs', 'a function', 'wrong-type');
    const old = make(L, S);
    old.dispose();
    expect(() => scaledDotProductAttention(q, k, v, { runtime, blockMask: old })).toThrow(UseAfterDisposeError);
    const cache = KvCache.create({ batch: B, numKvHeads: KV, headDim: D, window: 8, runtime });
    expectError(() => scaledDotProductAttention(q, { cache, maskMod: patches, runtime }), {
      type: Error as never,
      code: 'wrong-shape',
      call: CALL,
      argument: 'query.shape',
      got: '70',
      wanted: '64',
    });
    const few = new Random(1).tensor(B, H, 3, D);
    expect(() => scaledDotProductAttention(few, { cache, maskMod: patches })).toThrow(/maskMod.*rolling/u);
    const map = { data: new Uint8Array(6), shape: [3, 2] };
    expectError(() => BlockMask.fromBlocks(map, { queryLength: L, keyLength: S, blockSize: [64, 64], runtime }), {
      type: HeadwiseRangeError,
      code: 'wrong-shape',
      call: 'BlockMask.fromBlocks()',
      argument: 'map.shape',
      got: '[3, 2]',
      wanted: '[2, 3]',
    });
    expect(() => BlockMask.fromDocuments([[0, 1], [0]], { runtime })).toThrow(/documents\[1\].*1 long.*2 long/u);
    expect(() => BlockMask.fromDocuments([0, 0.5], { runtime })).toThrow(/documents\[1\]/u);
    expect(() => perScore(5 as never)).toThrow(/perScore\(\)/u);
  });
});
