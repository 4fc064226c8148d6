// What public test suites demand of masks. Where it is decided otherwise, tests/behaviours/lines-masks.mjs says why, and
// the test shows what happens instead.
import {
  type AttentionOptions,
  HeadwiseRangeError,
  HeadwiseTypeError,
  type MaskTensor,
  MultiHeadAttention,
  type Runtime,
  type Tensor,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectError, expectSameBits, zeros } from '../helpers.js';

const [B, H, L, S, D] = [2, 4, 5, 7, 6];
const random = new Random(91);
const [q, k, v] = [random.tensor(B, H, L, D), random.tensor(B, 2, S, D), random.tensor(B, 2, S, 3)];
const SHAPE = { type: HeadwiseRangeError, code: 'wrong-shape' } as const;

/** A mask of any shape that says for each pair whether it is seen. */
function maskOf(
  sees: (b: number, h: number, i: number, j: number) => boolean,
  shape: readonly [number, number, number, number] = [B, H, L, S],
): MaskTensor {
  const [, heads, rows, keys] = shape;
  const data = Uint8Array.from({ length: shape.reduce((a, n) => a * n, 1) }, (_, at) => {
    const [j, i] = [at % keys, Math.floor(at / keys) % rows];
    const [h, b] = [Math.floor(at / (keys * rows)) % heads, Math.floor(at / (keys * rows * heads))];
    return Number(sees(b, h, i, j));
  });
  return { data, shape };
}
const reshaped = ({ data }: MaskTensor, ...shape: number[]): MaskTensor => ({ data, shape });

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });
  const output = (options: AttentionOptions): Float32Array =>
    scaledDotProductAttention(q, k, v, { runtime, ...options }).output.data;
  /** The options give the same bits as the one mask that says it all. */
  const same = (options: AttentionOptions, sees: Parameters<typeof maskOf>[0]): void => {
    const want = output({ attendMask: maskOf(sees) });
    expectSameBits(output(options), want);
    expect(want).not.toEqual(output({}));
  };

  test('one content as [L, S], [B, 1, L, S], [B, H, L, S]; [B, L, S] is refused as ambiguous (masks/ranks)', () => {
    const sees = (_b: number, _h: number, i: number, j: number): boolean => (i + 2 * j) % 3 !== 0;
    same({ attendMask: reshaped(maskOf(sees, [1, 1, L, S]), L, S) }, sees);
    same({ attendMask: maskOf(sees, [B, 1, L, S]) }, sees);
    const ambiguous = reshaped(maskOf(sees, [B, 1, L, S]), B, L, S);
    expectError(() => output({ attendMask: ambiguous }), {
      ...SHAPE,
      call: 'scaledDotProductAttention()',
      argument: 'attendMask.shape',
      got: `[${B}, ${L}, ${S}], which could be [B, L, S]`,
      wanted: `write [B, 1, L, S] = [${B}, 1, ${L}, ${S}]`,
    });
  });

  test('sizes of 1 repeat along every axis (masks/broadcast)', () => {
    const content = (b: number, h: number, i: number, j: number): boolean => (3 * b + 5 * h + i + 2 * j) % 4 !== 0;
    for (let axes = 0; axes < 16; ++axes) {
      const on = [0, 1, 2, 3].map((axis) => (axes >> axis) & 1) as [number, number, number, number];
      const sees = (...at: [number, number, number, number]): boolean =>
        content(...(at.map((index, axis) => index * on[axis]! + 1 - on[axis]!) as typeof at));
      const shape = [B, H, L, S].map((n, axis) => (on[axis] ? n : 1)) as [number, number, number, number];
      const want = output({ attendMask: maskOf(sees) });
      expectSameBits(output({ attendMask: maskOf(sees, shape) }), want);
    }
  });

  test("PyTorch's [B*H, L, S], head fastest, is [B, H, L, S] as it lies (masks/batch-times-heads)", () => {
    const sees = (b: number, h: number, i: number, j: number): boolean => (b + 2 * h + 3 * i + j) % 3 !== 0;
    const attendMask = maskOf(sees);
    const whole = output({ attendMask });
    const part = ({ data, shape }: Tensor, b: number): Tensor => {
      const length = data.length / B;
      return { data: data.slice(b * length, (b + 1) * length), shape: shape.slice(1) };
    };
    for (let b = 0; b < B; ++b) {
      // The entry alone, with the rows b * H to (b + 1) * H of the mask as [H, L, S].
      const bytes = (attendMask.data as Uint8Array).slice(b * H * L * S, (b + 1) * H * L * S);
      const own = { data: bytes, shape: [H, L, S] };
      const alone = scaledDotProductAttention(part(q, b), part(k, b), part(v, b), { runtime, attendMask: own });
      expectSameBits(alone.output.data, whole.slice((b * whole.length) / B, ((b + 1) * whole.length) / B));
    }
    expect(() => output({ attendMask: reshaped(attendMask, B * H, L, S) })).toThrow(/\[B\*H, L, S\]/);
  });

  test('masks of rank 1, or of a first size that is none of ours (masks/rank-refused)', () => {
    const wrong = (batched: boolean, shape: number[], wanted: string | RegExp): void => {
      const one = (t: Tensor): Tensor => ({ data: t.data.slice(0, t.data.length / B), shape: t.shape.slice(1) });
      const inputs = (batched ? [q, k, v] : [q, k, v].map(one)) as [Tensor, Tensor, Tensor];
      const attendMask = { data: new Uint8Array(shape.reduce((a, n) => a * n, 1)), shape };
      expectError(() => scaledDotProductAttention(...inputs, { runtime, attendMask }), {
        ...SHAPE,
        call: 'scaledDotProductAttention()',
        argument: 'attendMask.shape',
        got: `[${shape.join(', ')}]`,
        wanted,
      });
    };
    wrong(true, [S], /\[L, S\] or \[B, H, L, S\] with B = 2, H = 4, L = 5, S = 7/);
    wrong(true, [B * H + 1, L, S], '[B, H, L, S] = [2, 4, 5, 7]');
    wrong(false, [S], /\[L, S\] or \[H, L, S\] with .*H = 4, L = 5, S = 7/);
    wrong(false, [H + 1, L, S], /\[L, S\] or \[H, L, S\] with .*H = 4/);
  });

  test('padding masks of the wrong rank or length (masks/padding-shape)', () => {
    const mha = new MultiHeadAttention({ embedDim: 12, numHeads: 4, runtime });
    const wrong = (x: Tensor, shape: number[], wanted: string): void => {
      const keyPaddingMask = { data: new Uint8Array(shape.reduce((a, n) => a * n, 1)), shape };
      expectError(() => mha.forward(x, { keyPaddingMask }), {
        ...SHAPE,
        call: 'MultiHeadAttention.forward()',
        argument: 'keyPaddingMask.shape',
        got: `[${shape.join(', ')}]`,
        wanted,
      });
    };
    wrong(zeros(2, 5, 12), [5], '[2, 5]');
    wrong(zeros(2, 5, 12), [2, 4], '[2, 5]');
    wrong(zeros(5, 12), [1, 5], '[5]');
    wrong(zeros(5, 12), [6], '[5]');
  });

  test('bytes of 0 and 1 are masks, other integers and bytes are not (masks/integers)', () => {
    const sees = (_b: number, _h: number, i: number, j: number): boolean => j <= i;
    const bytes = maskOf(sees, [1, 1, L, S]);
    const booleans = { data: Array.from(bytes.data, Boolean), shape: bytes.shape };
    expectSameBits(output({ attendMask: booleans }), output({ attendMask: bytes }));
    const ones = Array<number>(S).fill(1);
    for (const name of ['attendMask', 'keyPaddingMask'] as const) {
      const shape = name === 'attendMask' ? [1, S] : [B, S];
      const count = shape[0]! * S;
      const call = 'scaledDotProductAttention()';
      for (const data of [new BigInt64Array(count), new Int32Array(count), new Int8Array(count)]) {
        expectError(() => output({ [name]: { data, shape } }), {
          type: HeadwiseTypeError,
          code: 'wrong-type',
          call,
          argument: `${name}.data`,
          got: data.constructor.name,
          wanted: 'a Uint8Array of 0 and 1',
        });
      }
      expectError(() => output({ [name]: { data: Uint8Array.from({ length: count }, () => 2), shape } }), {
        type: HeadwiseRangeError,
        code: 'out-of-range',
        call,
        argument: `${name}.data[0]`,
        got: '2',
        wanted: '0 or 1',
      });
    }
    expect(() => output({ attendMask: { data: ones, shape: [1, S] } as unknown as MaskTensor })).toThrow(TypeError);
  });

  test('a mask and padding together hide what either hides (masks/union)', () => {
    const attendMask = random.mask(0.7, L, S);
    const keyPaddingMask = random.mask(0.3, B, S);
    same(
      { attendMask, keyPaddingMask },
      (b, _h, i, j) => attendMask.data[i * S + j] === 1 && keyPaddingMask.data[b * S + j] === 0,
    );
  });

  test('padding of queries and of values and causality are one mask (masks/query-and-value)', () => {
    const [queries, keys] = [
      [4, 2],
      [6, 3],
    ] as const;
    same(
      { queryLengths: queries, keyLengths: keys, causal: true },
      (b, _h, i, j) => i < queries[b]! && j < keys[b]! && j <= i,
    );
    const ofQueries = random.mask(0.6, B, 1, L, 1);
    const keyPaddingMask = random.mask(0.3, B, S);
    same(
      { attendMask: ofQueries, keyPaddingMask, causal: true },
      (b, _h, i, j) => ofQueries.data[b * L + i] === 1 && keyPaddingMask.data[b * S + j] === 0 && j <= i,
    );
  });

  test('a mask of queries hides whole rows; results carry no masks (masks/of-query)', () => {
    const attendMask = { data: Uint8Array.of(1, 0, 1, 1, 0, 0, 1, 1, 0, 1), shape: [B, 1, L, 1] };
    const before = attendMask.data.slice();
    const got = scaledDotProductAttention(q, k, v, { runtime, attendMask, needWeights: 'perHead' });
    expect(Object.keys(got).sort()).toEqual(['output', 'weights']);
    expect(attendMask.data).toEqual(before);
    for (let row = 0; row < B * H * L; ++row) {
      const seen = before[Math.floor(row / (H * L)) * L + (row % L)] === 1;
      const sum = got.weights.data.slice(row * S, (row + 1) * S).reduce((a, p) => a + p, 0);
      expect(sum).toBeCloseTo(Number(seen), 6);
      expect(got.output.data.slice(row * 3, row * 3 + 3).every((x) => x === 0)).toBe(!seen);
    }
  });

  test('a float mask of 0 and -Infinity is the boolean one (masks/float)', () => {
    const attendMask = random.mask(0.6, B, 1, L, S);
    const data = Float32Array.from(attendMask.data as Uint8Array, (seen) => (seen ? 0 : -Infinity));
    expectSameBits(output({ attnBias: { data, shape: attendMask.shape } }), output({ attendMask }));
  });

  test('a bias beside a mask, causality and padding lengths (masks/bias)', () => {
    const attnBias = random.tensor(1, H, L, S);
    const attendMask = random.mask(0.7, L, S);
    const keyLengths = [6, 4];
    // A bias of -Infinity hides, so that one bias can say it all.
    const all = (sees: (b: number, i: number, j: number) => boolean): Tensor => ({
      data: Float32Array.from({ length: B * H * L * S }, (_, at) => {
        const [j, i, b] = [at % S, Math.floor(at / S) % L, Math.floor(at / (H * L * S))];
        return sees(b, i, j) ? attnBias.data[at % (H * L * S)]! : -Infinity;
      }),
      shape: [B, H, L, S],
    });
    const masked = (i: number, j: number): boolean => attendMask.data[i * S + j] === 1;
    expectSameBits(output({ attnBias, attendMask }), output({ attnBias: all((_b, i, j) => masked(i, j)) }));
    expectSameBits(output({ attnBias, causal: true }), output({ attnBias: all((_b, i, j) => j <= i) }));
    const lengths = (b: number, j: number): boolean => j < keyLengths[b]!;
    const withMask = output({ attnBias, attendMask, keyLengths });
    expectSameBits(withMask, output({ attnBias: all((b, i, j) => masked(i, j) && lengths(b, j)) }));
    const withCausal = output({ attnBias, causal: true, keyLengths });
    expectSameBits(withCausal, output({ attnBias: all((b, i, j) => j <= i && lengths(b, j)) }));
  });
});
