// Packed sequences through the package: each as it would be alone. Every build is tested.
import {
  HeadwiseRangeError,
  HeadwiseTypeError,
  KvCache,
  MultiHeadAttention,
  type Runtime,
  type Tensor,
  headStatistics,
  inspect,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectClose, expectError, expectSameBits } from './helpers.js';

const lengths = [3, 0, 130, 7];
const starts = [0, 3, 3, 133, 140];
const [H, KV, D] = [4, 2, 6] as const;

/** Rows [from, to) of every head of [heads, rows, width], or of [rows, width]. */
function part(t: Tensor, from: number, to: number): Tensor {
  const [rows, width] = [t.shape.at(-2)!, t.shape.at(-1)!];
  const heads = t.shape.slice(0, -2);
  const count = heads.reduce((a, b) => a * b, 1);
  const data = new Float32Array(count * (to - from) * width);
  for (let n = 0; n < count; ++n) {
    data.set(t.data.subarray((n * rows + from) * width, (n * rows + to) * width), n * (to - from) * width);
  }
  return { data, shape: [...heads, to - from, width] };
}

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });

  test('each sequence has the bits it has alone', () => {
    const random = new Random(1);
    const [q, k, v] = [random.tensor(H, 140, D), random.tensor(KV, 140, D), random.tensor(KV, 140, 5)];
    for (const options of [{}, { causal: true }, { causal: 'end', window: [20, 0] }, { alibi: true }] as const) {
      const packed = { runtime, cumulativeQueryLengths: starts, ...options };
      const got = scaledDotProductAttention(q, k, v, { ...packed, returnLse: true, needWeights: 'perHead' });
      expect(got.output.shape).toEqual([H, 140, 5]);
      lengths.forEach((length, n) => {
        const rows = (t: Tensor): Tensor => part(t, starts[n]!, starts[n]! + length);
        const alone = scaledDotProductAttention(rows(q), rows(k), rows(v), { runtime, ...options, returnLse: true });
        expectSameBits(rows(got.output).data as Float32Array, alone.output.data as Float32Array);
        const lse = { data: got.lse!.data, shape: [H, 140, 1] };
        expectSameBits(rows(lse).data as Float32Array, alone.lse!.data as Float32Array);
      });
      // Nothing on keys of others.
      const of = (h: number, i: number, j: number): number => got.weights.data[(h * 140 + i) * 140 + j] as number;
      expect([of(1, 2, 3), of(3, 3, 2), of(0, 50, 133), of(2, 139, 132)]).toEqual([0, 0, 0, 0]);
      // The same weights a tile at a time.
      const values = inspect(q, k, { ...packed, lse: got.lse!, rows: [2, 5], keys: [1, 135] }).values!;
      for (let n = 0; n < values.data.length; ++n) {
        const [h, i, j] = [Math.floor(n / (3 * 134)), 2 + (Math.floor(n / 134) % 3), 1 + (n % 134)];
        expect(Math.abs(values.data[n]! - of(h, i, j))).toBeLessThan(1e-6);
      }
    }
  });

  test('a layer with rope turns each from its start; per-entry options are per sequence', () => {
    const layer = new MultiHeadAttention({ embedDim: 24, numHeads: H, numKvHeads: KV, rope: true, runtime });
    const x = new Random(2).tensor(140, 24);
    const cumulativeQueryLengths = Int32Array.from(starts);
    const queryLengths = [2, 0, 130, 7];
    const got = layer.forward(x, { causal: true, cumulativeQueryLengths, queryLengths, keyLengths: queryLengths });
    lengths.forEach((length, n) => {
      const own = part(x, starts[n]!, starts[n]! + length);
      const counts = { queryLengths: queryLengths[n]!, keyLengths: queryLengths[n]! };
      const alone = layer.forward(own, { causal: true, ...counts });
      expectSameBits(
        part(got.output, starts[n]!, starts[n]! + length).data as Float32Array,
        alone.output.data as Float32Array,
      );
    });
    // A batch of one is the same.
    const batched = { data: x.data, shape: [1, 140, 24] };
    const options = { causal: true, cumulativeQueryLengths, queryLengths, keyLengths: queryLengths };
    expectSameBits(layer.forward(batched, options).output.data as Float32Array, got.output.data as Float32Array);
    layer.dispose();
  });

  test('cross-attention has lengths on either side', () => {
    const random = new Random(3);
    const [q, k, v] = [random.tensor(H, 5, D), random.tensor(KV, 9, D), random.tensor(KV, 9, 5)];
    const options = { runtime, cumulativeQueryLengths: [0, 2, 5], cumulativeKeyLengths: [0, 9, 9] };
    const got = scaledDotProductAttention(q, k, v, { ...options, returnLse: true });
    expectSameBits(
      part(got.output, 0, 2).data as Float32Array,
      scaledDotProductAttention(part(q, 0, 2), k, v, { runtime }).output.data as Float32Array,
    );
    // The second has no keys.
    expect(part(got.output, 2, 5).data.every((x) => x === 0)).toBe(true);
    expect(got.lse!.data.subarray(2, 5)).toEqual(new Float32Array(3).fill(-Infinity));
  });

  test('headStatistics counts neighbours within a sequence', () => {
    const random = new Random(4);
    const [q, k] = [random.tensor(H, 10, D), random.tensor(KV, 10, D)];
    const got = headStatistics(q, k, { runtime, causal: true, cumulativeQueryLengths: [0, 4, 10] });
    const parts = [
      headStatistics(part(q, 0, 4), part(k, 0, 4), { runtime, causal: true }),
      headStatistics(part(q, 4, 10), part(k, 4, 10), { runtime, causal: true }),
    ] as const;
    for (const name of ['previous', 'self', 'first', 'next', 'entropy'] as const) {
      const mean = Float32Array.from(
        parts[0][name].data,
        (x, h) => (4 * x + 6 * (parts[1][name].data[h] as number)) / 10,
      );
      expectClose(got[name].data, mean, 1e-6);
    }
  });

  test('what does not fit is refused, and says so', () => {
    const random = new Random(5);
    const [q, k, v] = [random.tensor(H, 7, D), random.tensor(KV, 7, D), random.tensor(KV, 7, D)];
    const refuse = (options: object, argument: string, got: string, wanted: string, code = 'out-of-range'): void =>
      expectError(() => scaledDotProductAttention(q, k, v, { runtime, ...options }), {
        type: code === 'conflict' || code === 'wrong-type' ? HeadwiseTypeError : HeadwiseRangeError,
        code,
        call: 'scaledDotProductAttention()',
        argument,
        got,
        wanted,
      });
    const name = 'cumulativeQueryLengths';
    refuse({ [name]: [0, 3, 6] }, `${name}[2]`, '6', '7, the queries');
    refuse({ [name]: [1, 7] }, `${name}[0]`, '1', '0');
    refuse({ [name]: [0, 5, 3, 7] }, `${name}[2]`, '3', 'at least 5');
    refuse({ [name]: [0, 8] }, `${name}[1]`, '8', '0 to 7');
    refuse({ [name]: [] }, name, 'empty', 'one number more');
    refuse({ [name]: 7 }, name, '7', 'Int32Array', 'wrong-type');
    refuse({ [name]: new Float32Array([0, 7]) }, name, 'Float32Array', 'Int32Array', 'wrong-type');
    refuse({ cumulativeKeyLengths: [0, 7] }, 'cumulativeKeyLengths', 'alone', 'cumulativeQueryLengths', 'conflict');
    refuse(
      { [name]: [0, 7], cumulativeKeyLengths: [0, 1, 7] },
      'cumulativeKeyLengths',
      '3 long',
      '2 long',
      'wrong-shape',
    );
    refuse({ [name]: [0, 3, 7], keyLengths: [3, 5] }, 'keyLengths[1]', '5', '0 to 4');
    refuse({ [name]: [0, 3, 7], queryLengths: 4 }, 'queryLengths', '4', '0 to 3');
    refuse({ [name]: [0, 3, 7], keyLengths: [3, 4, 0] }, 'keyLengths', '3 long', '2 long', 'wrong-shape');
    const batch = random.tensor(2, H, 7, D);
    expectError(() => scaledDotProductAttention(batch, batch, batch, { runtime, [name]: [0, 7] }), {
      type: HeadwiseRangeError,
      code: 'wrong-shape',
      call: 'scaledDotProductAttention()',
      argument: name,
      got: 'a batch of 2',
      wanted: 'a batch of 1',
    });
    const cache = KvCache.create({ numKvHeads: KV, headDim: D, capacity: 8, runtime });
    cache.append(k, v);
    expect(() => scaledDotProductAttention(q, { cache, [name]: [0, 7] })).toThrow(/cumulativeQueryLengths.*cache/u);
  });
});
