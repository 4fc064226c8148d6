// What a layer adds to the functional core: learned extra keys, norms, rotary positions, gates, heads, by state dict.
import { HeadwiseRangeError, HeadwiseTypeError, MultiHeadAttention, type Runtime, type Tensor, load } from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { type ExpectedError, Random, expectClose, expectError, expectSameBits, zeros } from './helpers.js';
import { attention, combine, project, rotate } from './reference.js';

const [B, L, S, E, H, Hkv, D, Dv] = [2, 5, 7, 12, 4, 2, 6, 3];
const good = { embedDim: E, numHeads: H, numKvHeads: Hkv, headDim: D, vHeadDim: Dv } as const;
const random = new Random(55);
const [x, y] = [random.tensor(B, L, E), random.tensor(B, S, E)];

describe.each(['simd', 'relaxed'] as const)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });

  /** A layer with random weights, and its parameters. */
  function make(options: object): { mha: MultiHeadAttention; dict: Record<string, Tensor> } {
    const mha = new MultiHeadAttention({ ...good, ...options, runtime });
    const own = new Random(9);
    const dict = Object.fromEntries(
      Object.entries(mha.stateDict()).map(([name, { shape }]) => [name, own.tensor(...shape)]),
    );
    mha.loadStateDict(dict);
    return { mha, dict };
  }
  const part = (t: Tensor, begin: number, end: number): Tensor => {
    const width = t.shape[1] ?? 1;
    return { data: t.data.slice(begin * width, end * width), shape: [end - begin, ...t.shape.slice(1)] };
  };
  function projections(
    dict: Record<string, Tensor>,
    query: Tensor,
    key: Tensor,
  ): [number[][][][], number[][][][], number[][][][]] {
    const [w, b] = [dict['in_proj_weight']!, dict['in_proj_bias']!];
    const [one, two, three] = [H * D, H * D + Hkv * D, H * D + Hkv * D + Hkv * Dv];
    return [
      project(query, part(w, 0, one), part(b, 0, one), H),
      project(key, part(w, one, two), part(b, one, two), Hkv),
      project(key, part(w, two, three), part(b, two, three), Hkv),
    ];
  }
  const out = (dict: Record<string, Tensor>, heads: number[][][][]): number[] =>
    combine(heads, dict['out_proj.weight']!, dict['out_proj.bias']);

  test.each([
    [true, false],
    [false, true],
    [true, true],
  ])('addBiasKv %s, addZeroAttn %s', (addBiasKv, addZeroAttn) => {
    const { mha, dict } = make({ addBiasKv, addZeroAttn });
    const keys = Number(addBiasKv) + Number(addZeroAttn);
    const [q, k, v] = projections(dict, x, y);
    const extend = (heads: number[][][][], bias: Tensor | undefined, width: number): number[][][][] =>
      heads.map((entry) =>
        entry.map((rows, h) => [
          ...rows,
          ...(bias ? [[...bias.data.slice(h * width, (h + 1) * width)]] : []),
          ...(addZeroAttn ? [Array<number>(width).fill(0)] : []),
        ]),
      );
    const want = attention(q, extend(k, dict['bias_k'], D), extend(v, dict['bias_v'], Dv), {
      sees: (_b, _h, i, j) => j <= i || j >= S,
    });
    const got = mha.forward(x, y, { causal: true, needWeights: 'perHead', needScores: 'biased' });
    expect(got.weights!.shape).toEqual([B, H, L, S + keys]);
    expect(got.scores!.shape).toEqual([B, H, L, S + keys]);
    expectClose(got.weights!.data, want.weights.flat(3));
    expectClose(got.output.data, out(dict, want.output), 2e-5);
    if (addBiasKv)
      expect([dict['bias_k']!.shape, dict['bias_v']!.shape]).toEqual([
        [1, 1, Hkv * D],
        [1, 1, Hkv * Dv],
      ]);
  });

  test('qkNorm and rope, in this order, with positions of both sides', () => {
    const { mha, dict } = make({ qkNorm: { epsilon: 1e-3 }, rope: { base: 100, dim: 4, interleaved: true } });
    const [q, k, v] = projections(dict, x, y);
    const norm = (heads: number[][][][], weight: Tensor): number[][][][] =>
      heads.map((entry) =>
        entry.map((rows) =>
          rows.map((row) => {
            const rms = Math.sqrt(row.reduce((s, z) => s + z * z, 0) / row.length + 1e-3);
            return row.map((z, d) => (z / rms) * weight.data[d]!);
          }),
        ),
      );
    const positions = Int32Array.from({ length: B * L }, (_, i) => (3 * i) % 17);
    const keyPositions = Int32Array.from({ length: B * S }, (_, i) => (5 * i) % 11);
    const turn = { base: 100, dim: 4, interleaved: true };
    const expected = (ofQuery: (b: number, i: number) => number, ofKey: (b: number, i: number) => number): number[] => {
      const Q = rotate(norm(q, dict['q_norm.weight']!), turn, ofQuery);
      const K = rotate(norm(k, dict['k_norm.weight']!), turn, ofKey);
      return out(dict, attention(Q, K, v).output);
    };
    expectClose(
      mha.forward(x, y, { positions, keyPositions }).output.data,
      expected(
        (b, i) => positions[b * L + i]!,
        (b, i) => keyPositions[b * S + i]!,
      ),
      2e-5,
    );
    expectClose(
      mha.forward(x, y).output.data,
      expected(
        (_b, i) => i,
        (_b, i) => i,
      ),
      2e-5,
    );
    expectClose(
      mha.forward(x, y, { queryOffset: [4, 9] }).output.data,
      expected(
        (b, i) => [4, 9][b]! + i,
        (_b, i) => i,
      ),
      2e-5,
    );
    // Where the queries are the keys, their positions are the keys' as well.
    const own = Int32Array.from({ length: B * L }, (_, i) => i % 7);
    expectSameBits(
      mha.forward(x, { positions: own }).output.data,
      mha.forward(x, { positions: own, keyPositions: own }).output.data,
    );
  });

  test('several axes of positions', () => {
    const { mha } = make({ rope: { sections: [1, 2] } });
    const line = Int32Array.from({ length: B * L }, (_, i) => i % L);
    const twice = Int32Array.from([...line, ...line]);
    expectSameBits(mha.forward(x, { positions: twice }).output.data, mha.forward(x).output.data);
    const apart = Int32Array.from([...line, ...line.map((p) => 2 * p)]);
    expect(mha.forward(x, { positions: apart }).output.data).not.toEqual(mha.forward(x).output.data);
  });

  test('gate, heads and head mask', () => {
    const { mha, dict } = make({});
    const plain = mha.forward(x, y, { returnHeads: true });
    expect(plain.heads!.shape).toEqual([B, L, H, Dv]);
    const [q, k, v] = projections(dict, x, y);
    const want = attention(q, k, v).output;
    const flat = want.flatMap((entry) => Array.from({ length: L }, (_, i) => entry.flatMap((head) => head[i]!)).flat());
    expectClose(plain.heads!.data, flat);
    const outputGate = random.tensor(B, L, H * Dv);
    const gated = mha.forward(x, y, { outputGate, returnHeads: true });
    expectClose(
      gated.heads!.data,
      flat.map((z, i) => z * outputGate.data[i]!),
    );
    const headMask = Float32Array.of(1, 0, 2, 1);
    const masked = mha.forward(x, y, { headMask, returnHeads: true }).heads!.data;
    expectClose(
      masked,
      flat.map((z, i) => z * headMask[Math.floor(i / Dv) % H]!),
    );
    const unbatched = mha.forward({ data: x.data.slice(0, L * E), shape: [L, E] }, { returnHeads: true });
    expect(unbatched.heads!.shape).toEqual([L, H, Dv]);
  });

  test('what the layer is made with is the default of its calls', () => {
    const sinks = Float32Array.of(1, -1, 0.5, 0);
    const slopes = Float32Array.of(0.1, 0.2, 0.3, 0.4);
    const layer = { softcap: 0.8, sinks, alibi: slopes, window: [2, 1] } as const;
    const [mha, plain] = [
      new MultiHeadAttention({ ...good, ...layer, runtime }),
      new MultiHeadAttention({ ...good, runtime }),
    ];
    expectSameBits(mha.forward(x, y).output.data, plain.forward(x, y, layer).output.data);
    expect(mha.forward(x, y).output.data).not.toEqual(plain.forward(x, y).output.data);
    const off = { softcap: 0, sinks: new Float32Array(H).fill(-Infinity), alibi: false, window: [-1, -1] } as const;
    expectClose(mha.forward(x, y, off).output.data, plain.forward(x, y).output.data, 1e-6);
    // The layer has copies of its own.
    sinks.fill(9);
    slopes.fill(9);
    expectClose(mha.stateDict()['sinks']!.data, [1, -1, 0.5, 0], 0);
    expect(mha.config.sinks![0]).toBe(1);
  });

  test('parameters by name: saved, loaded, in every layout', () => {
    const all = { addBiasKv: true, qkNorm: true, sinks: true };
    const { mha, dict } = make(all);
    for (const layout of ['pytorch', 'huggingface', 'bert', 'keras'] as const) {
      const other = new MultiHeadAttention({ ...good, ...all, seed: 7, runtime });
      other.loadStateDict(mha.stateDict({ layout }), { layout });
      expectSameBits(other.forward(x, y).output.data, mha.forward(x, y).output.data);
    }
    expect(Object.keys(dict).slice(-5)).toEqual(['bias_k', 'bias_v', 'q_norm.weight', 'k_norm.weight', 'sinks']);
    // What is missing keeps its value when not strict.
    const fresh = new MultiHeadAttention({ ...good, ...all, runtime });
    const { missing } = fresh.loadStateDict({ sinks: dict['sinks']! }, { strict: false });
    expect(missing).toContain('q_norm.weight');
    const after = fresh.stateDict();
    expectSameBits(after['sinks']!.data, dict['sinks']!.data);
    expectClose(after['q_norm.weight']!.data, new Float32Array(D).fill(1), 0);
  });
});

describe('bad options', () => {
  beforeAll(async () => {
    await load();
  });
  const RANGE = { type: HeadwiseRangeError, code: 'out-of-range' } as const;
  const SHAPE = { ...RANGE, code: 'wrong-shape' } as const;
  const TYPE = { type: HeadwiseTypeError, code: 'wrong-type' } as const;
  const CONFLICT = { ...TYPE, code: 'conflict' } as const;
  const UNKNOWN = { ...TYPE, code: 'unknown-option' } as const;

  test.each<[string, object, Omit<ExpectedError, 'call'>]>([
    ['addBiasKv', { addBiasKv: 1 }, { ...TYPE, argument: 'addBiasKv', got: '1', wanted: 'true or false' }],
    [
      'addZeroAttn',
      { addZeroAttn: 'yes' },
      { ...TYPE, argument: 'addZeroAttn', got: '"yes"', wanted: 'true or false' },
    ],
    ['softcap', { softcap: -2 }, { ...RANGE, argument: 'softcap', got: '-2', wanted: 'positive, or 0' }],
    [
      'sinks',
      { sinks: [1, 2, 3, 4] },
      { ...TYPE, argument: 'sinks', got: 'an Array of 4', wanted: 'a Float32Array of 4' },
    ],
    [
      'sinks NaN',
      { sinks: Float32Array.of(0, NaN, 0, 0) },
      { ...RANGE, argument: 'sinks[1]', got: 'NaN', wanted: 'finite, or -Infinity' },
    ],
    ['alibi', { alibi: 1 }, { ...TYPE, argument: 'alibi', got: '1', wanted: 'true for alibiSlopes(4)' }],
    ['alibi length', { alibi: new Float32Array(3) }, { ...SHAPE, argument: 'alibi', got: '3 long', wanted: '4 long' }],
    ['window', { window: 3 }, { ...TYPE, argument: 'window', got: '3', wanted: '[left, right]' }],
    ['window side', { window: [-2, 0] }, { ...RANGE, argument: 'window[0]', got: '-2', wanted: '-1 to' }],
    ['window length', { window: [1] }, { ...SHAPE, argument: 'window', got: '1 long', wanted: '[left, right]' }],
    [
      'qkNorm',
      { qkNorm: 1e-6 },
      { ...TYPE, argument: 'qkNorm', got: '0.000001', wanted: 'true, false or { epsilon }' },
    ],
    ['qkNorm name', { qkNorm: { eps: 1 } }, { ...UNKNOWN, argument: '"eps"', got: 'unknown', wanted: 'epsilon' }],
    [
      'qkNorm epsilon',
      { qkNorm: { epsilon: -1 } },
      { ...RANGE, argument: 'qkNorm.epsilon', got: '-1', wanted: 'at least 0' },
    ],
    ['rope name', { rope: { theta: 1 } }, { ...UNKNOWN, argument: '"theta"', got: 'unknown', wanted: 'base' }],
    ['rope dim', { rope: { dim: 3 } }, { ...RANGE, argument: 'rope.dim', got: '3', wanted: 'even' }],
    ['rope dim beyond', { rope: { dim: 8 } }, { ...RANGE, argument: 'rope.dim', got: '8', wanted: '2 to 6' }],
    [
      'rope of an odd head',
      { headDim: 5, rope: true },
      { ...RANGE, argument: 'rope.dim', got: '5, the head size', wanted: 'even' },
    ],
    ['rope base', { rope: { base: 0 } }, { ...RANGE, argument: 'rope.base', got: '0', wanted: 'positive' }],
    [
      'rope interleaved',
      { rope: { interleaved: 1 } },
      { ...TYPE, argument: 'rope.interleaved', got: '1', wanted: 'true or false' },
    ],
    [
      'scaling type',
      { rope: { scaling: { type: 'dynamic', factor: 2 } } },
      { ...RANGE, argument: 'rope.scaling.type', got: '"dynamic"', wanted: "'llama3'" },
    ],
    [
      'scaling factor',
      { rope: { scaling: { type: 'linear' } } },
      { ...TYPE, argument: 'rope.scaling.factor', got: 'undefined', wanted: 'a finite number' },
    ],
    [
      'yarn without a length',
      { rope: { scaling: { type: 'yarn', factor: 2 } } },
      { ...TYPE, argument: 'rope.scaling.originalLength', got: 'undefined', wanted: 'a finite number' },
    ],
    [
      'linear with a beta',
      { rope: { scaling: { type: 'linear', factor: 2, betaFast: 3 } } },
      { ...CONFLICT, argument: 'rope.scaling.betaFast', got: "'linear'", wanted: 'left away' },
    ],
    [
      'ntk of one pair',
      { rope: { dim: 2, scaling: { type: 'ntk', factor: 2 } } },
      { ...RANGE, argument: 'rope.scaling.type', got: 'dim 2', wanted: "'linear'" },
    ],
    [
      'llama3 factors',
      { rope: { scaling: { type: 'llama3', factor: 2, originalLength: 9, lowFrequencyFactor: 4 } } },
      { ...RANGE, argument: 'highFrequencyFactor', got: '4', wanted: 'above lowFrequencyFactor 4' },
    ],
    [
      'sections',
      { rope: { sections: [1, 1] } },
      { ...RANGE, argument: 'rope.sections', got: '[1, 1]', wanted: 'add up to 3' },
    ],
    ['sections type', { rope: { sections: 3 } }, { ...TYPE, argument: 'rope.sections', got: '3', wanted: 'an Array' }],
  ])('layer: %s', (_name, options, expected) => {
    expectError(() => new MultiHeadAttention({ ...good, ...options }), {
      ...expected,
      call: 'new MultiHeadAttention()',
    });
  });

  test.each<[string, object, Omit<ExpectedError, 'call'>]>([
    ['softcap', { softcap: Infinity }, { ...RANGE, argument: 'softcap', got: 'Infinity', wanted: 'finite' }],
    ['softcap type', { softcap: true }, { ...TYPE, argument: 'softcap', got: 'true', wanted: 'a finite number' }],
    ['window', { window: [1, 2, 3] }, { ...SHAPE, argument: 'window', got: '3 long', wanted: '[left, right]' }],
    [
      'window half',
      { window: [0.5, 0] },
      { ...RANGE, argument: 'window[0]', got: '0.5', wanted: 'a whole number from -1' },
    ],
    [
      'chunk',
      { attentionChunk: -1 },
      { ...RANGE, argument: 'attentionChunk', got: '-1', wanted: 'a whole number from 0' },
    ],
    [
      'headMask',
      { headMask: new Float32Array(2) },
      { ...SHAPE, argument: 'headMask', got: '2 long', wanted: '4 long' },
    ],
    [
      'headMask NaN',
      { headMask: Float32Array.of(1, 1, 1, NaN) },
      { ...RANGE, argument: 'headMask[3]', got: 'NaN', wanted: 'finite' },
    ],
    ['needScores', { needScores: true }, { ...TYPE, argument: 'needScores', got: 'true', wanted: "'biased'" }],
    ['returnMax', { returnMax: 1 }, { ...TYPE, argument: 'returnMax', got: '1', wanted: 'true or false' }],
    [
      'returnHeads',
      { returnHeads: 'yes' },
      { ...TYPE, argument: 'returnHeads', got: '"yes"', wanted: 'true or false' },
    ],
    [
      'prefix without causal',
      { prefixLengths: 2 },
      { ...CONFLICT, argument: 'prefixLengths', got: 'without causal', wanted: 'causal: true' },
    ],
    [
      'prefix beyond',
      { causal: true, prefixLengths: 8 },
      { ...RANGE, argument: 'prefixLengths', got: '8', wanted: '0 to 7' },
    ],
    [
      "offset with 'end'",
      { causal: 'end', queryOffset: 1, window: [1, 1] },
      { ...CONFLICT, argument: 'queryOffset', got: '"end"', wanted: 'left away' },
    ],
    [
      'offset that counts for nothing',
      { queryOffset: 1 },
      { ...CONFLICT, argument: 'queryOffset', got: 'false', wanted: 'window' },
    ],
    [
      'positions without rope',
      { positions: new Int32Array(10) },
      { ...CONFLICT, argument: 'positions', got: 'without rope', wanted: 'left away' },
    ],
    [
      'gate',
      { outputGate: zeros(2, 5, 4) },
      { ...SHAPE, argument: 'outputGate.shape', got: '[2, 5, 4]', wanted: '[2, 5, 12]' },
    ],
    ['extraKey', { extraKey: zeros(1) }, { ...UNKNOWN, argument: '"extraKey"', got: 'unknown', wanted: 'one of' }],
  ])('call: %s', (_name, options, expected) => {
    const mha = new MultiHeadAttention(good);
    expectError(() => mha.forward(x, y, options), { ...expected, call: 'MultiHeadAttention.forward()' });
    mha.dispose();
  });

  test('positions of the wrong type and length', () => {
    const mha = new MultiHeadAttention({ ...good, rope: true });
    const call = 'MultiHeadAttention.forward()';
    expectError(() => mha.forward(x, y, { positions: [1] as never }), {
      ...TYPE,
      call,
      argument: 'positions',
      got: 'an Array of 1',
      wanted: 'an Int32Array of [2, 5]',
    });
    expectError(() => mha.forward(x, y, { keyPositions: new Int32Array(3) }), {
      ...SHAPE,
      call,
      argument: 'keyPositions',
      got: '3 long',
      wanted: '14 long, for [2, 7]',
    });
  });
});

test('create() makes what the constructor makes', async () => {
  const options = {
    ...good,
    qkNorm: { epsilon: 1e-5 },
    sinks: true,
    alibi: true,
    softcap: 3,
    window: [4, 0],
    rope: { scaling: { type: 'yarn', factor: 2, originalLength: 64 }, sections: [1, 2] },
  } as const;
  const runtime = await load();
  const [made, created] = [
    new MultiHeadAttention({ ...options, runtime }),
    await MultiHeadAttention.create({ ...options, runtime }),
  ];
  expect(created.config).toEqual(made.config);
  const positions = Int32Array.from({ length: 2 * B * L }, (_, i) => i % L);
  expectSameBits(created.forward(x, { positions }).output.data, made.forward(x, { positions }).output.data);
});
