// What others got wrong with masks: polarity, shapes, axes, and masks that count only beside another.
import {
  type AttentionOptions,
  HeadwiseRangeError,
  HeadwiseTypeError,
  KvCache,
  type MaskTensor,
  MultiHeadAttention,
  type Runtime,
  attentionTile,
  inspect,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectClose, expectError, expectSameBits, zeros } from '../helpers.js';
import { attendIn, column, expectNear, floats, mask } from '../lists.js';
import { attention, headsOf } from '../reference.js';

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });
  const attend = attendIn(() => runtime);

  describe('a mask means the same through every public entry; names that flip it say so (N-17)', () => {
    const [q, k, v] = [column(0), column(0, 0), column(10, 20)];
    const attendMask = mask([1, 2], 1, 0);
    /** A layer that only takes the value over. */
    const layer = (): MultiHeadAttention => {
      const mha = new MultiHeadAttention({ embedDim: 1, numHeads: 1, runtime });
      mha.loadStateDict({
        in_proj_weight: floats([3, 1], 0, 0, 1),
        in_proj_bias: zeros(3),
        'out_proj.weight': floats([1, 1], 1),
        'out_proj.bias': zeros(1),
      });
      return mha;
    };

    test('scaledDotProductAttention', () => {
      expect(attend(q, k, v, { attendMask })).toEqual([10]);
      expect(attend(q, k, v, { attnBias: floats([1, 2], 0, -Infinity) })).toEqual([10]);
      expect(attend(q, k, v, { keyPaddingMask: mask([2], 0, 1) })).toEqual([10]);
    });
    test('scaledDotProductAttention over a cache', () => {
      const cache = KvCache.create({ numKvHeads: 1, headDim: 1, capacity: 2, runtime });
      cache.append(zeros(1, 2, 1), floats([1, 2, 1], 10, 20));
      expect(Array.from(scaledDotProductAttention(q, { cache, attendMask, runtime }).output.data)).toEqual([10]);
    });
    test('MultiHeadAttention: forward, withBuffers, with a cache', () => {
      const mha = layer();
      expect(Array.from(mha.forward(q, k, v, { attendMask }).output.data)).toEqual([10]);
      const inside = mha.withBuffers({ queryLength: 1, keyLength: 2, options: { attendMask } }, (views) => {
        views.value.set([10, 20]);
        views.run();
        return Array.from(views.output);
      });
      expect(inside).toEqual([10]);
      const cache = mha.createCache({ capacity: 2 });
      const both = mask([2, 2], 1, 0, 1, 0);
      expect(Array.from(mha.forward(v, { cache, attendMask: both }).output.data)).toEqual([10, 10]);
    });
    test('attentionTile and inspect', () => {
      expect(Array.from(attentionTile(q, k, { attendMask, runtime }).data)).toEqual([1, 0]);
      expect(Array.from(inspect(q, k, { attendMask, runtime }).values!.data)).toEqual([1, 0]);
    });
  });

  test('floats of 0 and 1 where a mask is wanted are an error, never added (N-18)', () => {
    const given = (options: AttentionOptions) => () => attend(column(0), column(0, 0), column(10, 20), options);
    const wrong = { type: HeadwiseTypeError, code: 'wrong-type', call: 'scaledDotProductAttention()' } as const;
    const got = 'a Float32Array of 2';
    const attendMask = floats([1, 2], 1, 0) as unknown as MaskTensor;
    const wanted = 'a Uint8Array of 0 and 1';
    expectError(given({ attendMask }), { ...wrong, argument: 'attendMask.data', got, wanted });
    const keyPaddingMask = floats([2], 1, 0) as unknown as MaskTensor;
    expectError(given({ keyPaddingMask }), { ...wrong, argument: 'keyPaddingMask.data', got, wanted });
  });

  test('a mask and causality go together (N-19)', () => {
    const attendMask = mask([3, 3], 1, 1, 1, 1, 1, 0, 0, 1, 1);
    const [q, v] = [zeros(3, 1), column(1, 2, 3)];
    expectNear(attend(q, q, v, { attendMask, causal: true }), [1, 1.5, 2.5]);
  });

  describe('one mask in every shape (N-21)', () => {
    const random = new Random(21);
    const [B, H, L, S] = [2, 4, 3, 5];
    const [q, k, v] = [random.tensor(B, H, L, 6), random.tensor(B, 2, S, 6), random.tensor(B, 2, S, 7)];
    const repeat = (...lead: number[]): MaskTensor => {
      const count = lead.reduce((a, b) => a * b, 1);
      return mask([...lead, S], ...Array.from({ length: count }, () => [1, 0, 1, 1, 0]).flat());
    };
    const bits = (attendMask: MaskTensor): Float32Array =>
      scaledDotProductAttention(q, k, v, { runtime, attendMask }).output.data;

    test('the same bits', () => {
      const want = bits(repeat(L));
      expect(want).not.toEqual(scaledDotProductAttention(q, k, v, { runtime }).output.data);
      for (const shaped of [repeat(B, 1, L), repeat(B, H, L), repeat(1, H, L), repeat(B, 1, 1)]) {
        expectSameBits(bits(shaped), want);
      }
    });

    test.each([[[S]], [[B, L, S]], [[H, L, S]], [[B * H, L, S]], [[S, L]], [[B, 2, L, S]], [[1, B, H, L, S]]])(
      '%j names the expected ones',
      (shape) => {
        const data = new Uint8Array(shape.reduce((a, b) => a * b, 1));
        expectError(() => bits({ data, shape }), {
          type: HeadwiseRangeError,
          code: 'wrong-shape',
          call: 'scaledDotProductAttention()',
          argument: 'attendMask.shape',
          got: `[${shape.join(', ')}]`,
          wanted: /\[L, S\].*\[B, H, L, S\]/,
        });
      },
    );
  });

  test('random masks along every axis, no two sizes equal, against plain loops (N-22)', () => {
    const random = new Random(22);
    const [B, H, L, S, D] = [2, 3, 4, 5, 6];
    const [q, k, v] = [random.tensor(B, H, L, D), random.tensor(B, H, S, D), random.tensor(B, H, S, D)];
    for (let axes = 0; axes < 16; ++axes) {
      const shape = [B, H, L, S].map((n, axis) => ((axes >> axis) & 1 ? n : 1)) as [number, number, number, number];
      const attendMask = random.mask(0.6, ...shape);
      const at = (...index: number[]): boolean =>
        attendMask.data[shape.reduce((flat, n, axis) => flat * n + (n === 1 ? 0 : index[axis]!), 0)] === 1;
      const got = scaledDotProductAttention(q, k, v, { runtime, attendMask, needWeights: 'perHead' });
      const want = attention(headsOf(q), headsOf(k), headsOf(v), { sees: at });
      expectClose(got.output.data, want.output.flat(3), 1e-6);
      expectClose(got.weights.data, want.weights.flat(3), 1e-6);
    }
  });

  test('a window counts without a mask, and the same with one that hides nothing (N-24)', () => {
    const [q, v] = [zeros(4, 1), column(1, 2, 3, 4)];
    const window = [1, 0] as const;
    expectNear(attend(q, q, v, { window }), [1, 1.5, 2.5, 3.5]);
    const attendMask = mask([4, 4], ...Array<number>(16).fill(1));
    expectNear(attend(q, q, v, { window, attendMask }), [1, 1.5, 2.5, 3.5]);
  });

  test('key lengths count without query lengths (N-25)', () => {
    const [q, k, v] = [zeros(2, 1), zeros(4, 1), column(1, 3, 100, 100)];
    expectNear(attend(q, k, v, { keyLengths: 2 }), [2, 2]);
    expectNear(attend(q, k, v, { keyLengths: 2, queryLengths: 1 }), [2, 0]);
  });

  test('a mask [B, 1, 1, S] works with no bias beside it (N-26)', () => {
    const v = floats([2, 1, 3, 1], 1, 2, 4, 10, 20, 40);
    const attendMask = mask([2, 1, 1, 3], 1, 0, 1, 0, 1, 1);
    expectNear(attend(zeros(2, 1, 2, 1), zeros(2, 1, 3, 1), v, { attendMask }), [2.5, 2.5, 30, 30]);
  });
});
