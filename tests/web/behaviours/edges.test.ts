// What public test suites demand at the edges: rows that see nothing, softcap, positions beyond a table.
import {
  HeadwiseRangeError,
  MultiHeadAttention,
  type Runtime,
  type Tensor,
  load,
  rotaryEmbedding,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectClose, expectError, expectSameBits, zeros } from '../helpers.js';
import { column, expectNear, floats, mask, sigmoid } from '../lists.js';

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });

  test('a row without a key: output and weights 0, whatever the raw scores hold (empty-rows/zero)', () => {
    for (const raw of [1, 1e30, NaN, Infinity, -Infinity]) {
      const got = scaledDotProductAttention(column(raw, 1), column(1, raw), column(raw, 5), {
        runtime,
        attendMask: mask([2, 2], 0, 0, 1, 1),
        needWeights: 'perHead',
      });
      expect([got.output.data[0], ...got.weights.data.slice(0, 2)], `raw ${raw}`).toEqual([0, 0, 0]);
    }
  });

  test('the same by mask, bias, padding, length and causality; rows beside it stay (empty-rows/torch-sdpa)', () => {
    const random = new Random(1);
    const [q, k, v] = [random.tensor(2, 4, 3, 6), random.tensor(2, 4, 5, 6), random.tensor(2, 4, 5, 7)];
    const plain = scaledDotProductAttention(q, k, v, { runtime }).output.data;
    const entry = plain.length / 2;
    // All of entry 0 is hidden, and nothing of entry 1.
    const bias = floats([2, 1, 1, 1], -Infinity, 0);
    for (const options of [
      { attendMask: mask([2, 1, 1, 1], 0, 1) },
      { attnBias: bias },
      { keyPaddingMask: mask([2, 5], 1, 1, 1, 1, 1, 0, 0, 0, 0, 0) },
      { keyLengths: [0, 5] },
      { queryLengths: [0, 3] },
      { causal: true, queryOffset: [-3, 4] },
    ]) {
      const { output } = scaledDotProductAttention(q, k, v, { runtime, ...options });
      expect(output.data.slice(0, entry), Object.keys(options).join()).toEqual(new Float32Array(entry));
      expectSameBits(output.data.slice(entry), plain.slice(entry));
    }
  });

  test("a layer's empty row is its output bias; NaN where emptyRows: 'nan' asks for it (empty-rows/torch-module)", () => {
    const mha = new MultiHeadAttention({ embedDim: 12, numHeads: 4, runtime });
    const bias = new Random(2).tensor(12);
    mha.loadStateDict({ ...mha.stateDict(), 'out_proj.bias': bias });
    const x = new Random(3).tensor(2, 5, 12);
    const keyPaddingMask = mask([2, 5], 1, 1, 1, 1, 1, 0, 0, 0, 0, 0);
    for (const needWeights of [false, 'averaged', 'perHead'] as const) {
      const zero = mha.forward(x, { keyPaddingMask, needWeights });
      for (let i = 0; i < 5; ++i) expectSameBits(zero.output.data.slice(12 * i, 12 * i + 12), bias.data);
      expect(zero.weights?.data.slice(0, 25).every((p) => p === 0)).toBe(needWeights ? true : undefined);
      const nan = mha.forward(x, { keyPaddingMask, needWeights, emptyRows: 'nan' });
      expect(nan.output.data.slice(0, 60).every(Number.isNaN)).toBe(true);
      expect(nan.weights?.data.slice(0, 25).every(Number.isNaN)).toBe(needWeights ? true : undefined);
      expectSameBits(nan.output.data.slice(60), zero.output.data.slice(60));
    }
  });

  test('a huge value behind a hidden key does not leak, with softcap either (empty-rows/huge-value)', () => {
    for (const softcap of [0, 0.5, 2, 50]) {
      for (const hide of [
        { attendMask: mask([1, 3], 1, 1, 0) },
        { attnBias: floats([1, 3], 0, 0, -Infinity) },
        { keyPaddingMask: mask([3], 0, 0, 1) },
        { keyLengths: 2 },
        { window: [1, 1] as const },
      ]) {
        const options = { runtime, softcap, ...hide };
        const { output } = scaledDotProductAttention(column(1), column(1, 1, 30), column(2, 4, 1000), options);
        expect(output.data[0], `${Object.keys(hide).join()}, softcap ${softcap}`).toBe(3);
      }
    }
  });

  test('softcap turns scaled scores, before bias and masks (softcap/before-masks)', () => {
    const [q, k, v] = [column(1), column(4, 8, 12), column(1, 0, 1000)];
    const options = {
      runtime,
      scale: 0.5,
      softcap: 2,
      attnBias: floats([1, 3], 5, 0, 0),
      attendMask: mask([1, 3], 1, 1, 0),
      needScores: 'biased',
    } as const;
    const got = scaledDotProductAttention(q, k, v, options);
    const scores = [2 * Math.tanh(1) + 5, 2 * Math.tanh(2)] as const;
    expectClose(got.scores!.data, [...scores, -Infinity], 1e-6);
    expectNear(got.output.data, [sigmoid(scores[0] - scores[1])]);
  });

  test('positions outside a table are refused; without a table a negative one turns back (rotary/positions)', () => {
    const x = new Random(4).tensor(1, 2, 3, 4);
    const table = (f: (angle: number) => number): Tensor => ({
      data: Float32Array.from({ length: 10 }, (_, i) => f(Math.floor(i / 2) * (i % 2 === 0 ? 1 : 0.01))),
      shape: [5, 2],
    });
    const tables = { cos: table(Math.cos), sin: table(Math.sin), runtime };
    for (const bad of [-1, 5]) {
      expectError(() => rotaryEmbedding(x, { ...tables, positions: Int32Array.of(0, bad, 4) }), {
        type: HeadwiseRangeError,
        code: 'out-of-range',
        call: 'rotaryEmbedding()',
        argument: 'position',
        got: String(bad),
        wanted: '0 to 4',
      });
    }
    const last = { positions: Int32Array.of(0, 3, 4) };
    expectClose(rotaryEmbedding(x, { ...tables, ...last }).data, rotaryEmbedding(x, { ...last, runtime }).data, 1e-6);
    const there = rotaryEmbedding(x, { positions: Int32Array.of(-1, -7, 0), runtime });
    const back = rotaryEmbedding(there, { positions: Int32Array.of(1, 7, 0), runtime });
    expect(there.data).not.toEqual(x.data);
    expectClose(back.data, x.data, 1e-6);
  });

  test('no queries: an empty output; no keys: rows of the output bias (shapes/zero-lengths)', () => {
    const mha = new MultiHeadAttention({ embedDim: 12, numHeads: 4, runtime });
    const bias = new Random(5).tensor(12);
    mha.loadStateDict({ ...mha.stateDict(), 'out_proj.bias': bias });
    const none = mha.forward(zeros(2, 0, 12), zeros(2, 6, 12));
    expect([none.output.shape, none.output.data.length]).toEqual([[2, 0, 12], 0]);
    const { output } = mha.forward(new Random(6).tensor(2, 5, 12), zeros(2, 0, 12));
    expect(output.shape).toEqual([2, 5, 12]);
    for (let row = 0; row < 10; ++row) expectSameBits(output.data.slice(12 * row, 12 * row + 12), bias.data);
  });
});
