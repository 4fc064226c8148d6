// projectHeads(), inspect() and headStatistics() of a layer: the heads against float64, the rest against what
// forward() returns for the same call.
import {
  HeadwiseRangeError,
  HeadwiseTypeError,
  MultiHeadAttention,
  type MultiHeadAttentionOptions,
  type LayerInspectOptions,
  type Runtime,
  type Tensor,
  UseAfterDisposeError,
  headStatistics,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { type ExpectedError, Random, VARIANTS, expectClose, expectError, expectSameBits, zeros } from './helpers.js';
import { project, rotate } from './reference.js';

const random = new Random(77);
const [B, L, S, E, H, Hkv, D, Dv] = [2, 9, 13, 20, 6, 2, 8, 5];
const SIZES = { embedDim: E, numHeads: H, numKvHeads: Hkv, headDim: D, vHeadDim: Dv };

/** Parameters that are not what a layer starts with: biases, norms, sinks and extra keys are no zeros and ones. */
function make(options: Partial<MultiHeadAttentionOptions>, runtime?: Runtime): MultiHeadAttention {
  const mha = new MultiHeadAttention({ ...SIZES, ...options, runtime });
  const state = mha.stateDict();
  mha.loadStateDict(Object.fromEntries(Object.entries(state).map(([name, x]) => [name, random.tensor(...x.shape)])));
  return mha;
}
const flat = (heads: number[][][][]): number[] => heads.flat(3);

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });

  test('projected heads are projections, with bias, in heads', () => {
    const mha = make({ kDim: 7, vDim: 11 }, runtime);
    const state = mha.stateDict();
    const [q, k, v] = [random.tensor(B, L, E), random.tensor(B, S, 7), random.tensor(B, S, 11)];
    const heads = mha.projectHeads(q, k, v);
    const bias = state['in_proj_bias']!.data;
    const part = (begin: number, end: number): Tensor => ({ data: bias.slice(begin, end), shape: [end - begin] });
    const [wq, wk] = [H * D, H * D + Hkv * D];
    expect(heads.query.shape).toEqual([B, H, L, D]);
    expect(heads.key.shape).toEqual([B, Hkv, S, D]);
    expect(heads.value.shape).toEqual([B, Hkv, S, Dv]);
    expectClose(heads.query.data, flat(project(q, state['q_proj_weight']!, part(0, wq), H)));
    expectClose(heads.key.data, flat(project(k, state['k_proj_weight']!, part(wq, wk), Hkv)));
    expectClose(heads.value.data, flat(project(v, state['v_proj_weight']!, part(wk, bias.length), Hkv)));
  });

  test('they turn where the call stands', () => {
    const layer = { bias: false, kDim: E, vDim: 11 } as const;
    const mha = make({ ...layer, rope: { interleaved: true } }, runtime);
    const plain = make(layer, runtime);
    plain.loadStateDict(mha.stateDict());
    const [q, k, v] = [random.tensor(B, L, E), random.tensor(B, S, E), random.tensor(B, S, 11)];
    const state = mha.stateDict();
    const [queries, keys] = [
      project(q, state['q_proj_weight']!, undefined, H),
      project(k, state['k_proj_weight']!, undefined, Hkv),
    ];
    const positions = Int32Array.from({ length: B * L }, (_, i) => 3 * i);
    const turned = (x: number[][][][], at: (b: number, i: number) => number): number[] =>
      flat(rotate(x, { interleaved: true }, at));
    const offset = mha.projectHeads(q, k, v, { queryOffset: [4, 9] });
    expectClose(
      offset.query.data,
      turned(queries, (b, i) => [4, 9][b]! + i),
      1e-4,
    );
    expectClose(
      offset.key.data,
      turned(keys, (_, j) => j),
      1e-4,
    );
    const given = mha.projectHeads(q, k, v, { positions, keyPositions: new Int32Array(B * S).fill(5) });
    expectClose(
      given.query.data,
      turned(queries, (b, i) => positions[b * L + i]!),
      1e-4,
    );
    expectClose(
      given.key.data,
      turned(keys, () => 5),
      1e-4,
    );
    expectSameBits(given.value.data, plain.projectHeads(q, k, v).value.data);
  });

  // Everything a layer can be, and every mask a call can have.
  const layers: [string, Partial<MultiHeadAttentionOptions>][] = [
    ['plain', {}],
    ['other widths', { kDim: 7, vDim: 11 }],
    ['norm, rope, softcap, scale', { qkNorm: { epsilon: 1e-3 }, rope: true, softcap: 2, scale: 0.7 }],
    ['window, alibi, sinks, empty rows of NaN', { window: [3, 4], alibi: true, sinks: true, emptyRows: 'nan' }],
    ['extra keys', { addBiasKv: true, addZeroAttn: true, sinks: true }],
    ['extra keys, other widths', { kDim: 7, vDim: 11, addBiasKv: true, softcap: 1.5 }],
  ];
  const calls: [string, LayerInspectOptions][] = [
    ['none', {}],
    ['padding and causality', { keyPaddingMask: random.mask(0.3, B, S), causal: 'end' }],
    ['masks', { attendMask: random.mask(0.7, 1, H, L, S), attnBias: random.tensor(B, 1, L, S), scale: 0.3 }],
    ['lengths', { keyLengths: [13, 6], queryLengths: [9, 2], causal: true, queryOffset: [0, 3], window: [5, -1] }],
    ['a prefix, sinks off', { causal: true, prefixLengths: 4, sinks: new Float32Array(H).fill(-Infinity) }],
  ];
  /** The columns of the call's own keys. */
  const ownColumns = ({ data, shape }: Tensor, keys: number): Float32Array => {
    const columns = shape.at(-1)!;
    return data.filter((_, i) => i % columns < keys);
  };
  describe.each(layers)('layer: %s', (_name, layer) => {
    test.each(calls)('weights and scores are those of forward(); masks: %s', (_of, options) => {
      const mha = make(layer, runtime);
      const [q, k] = [random.tensor(B, L, E), random.tensor(B, S, layer.kDim ?? E)];
      const v = random.tensor(B, S, layer.vDim ?? E);
      const call = { ...options, needWeights: 'perHead', returnLse: true } as const;
      const { weights, lse } = mha.forward(q, k, v, call);
      const want = ownColumns(weights, S);
      for (const given of [lse, undefined]) {
        const { values, entropy } = mha.inspect(q, k, { ...options, lse: given, values: true, entropy: true });
        expect(values!.shape).toEqual([B, H, L, S]);
        expectClose(values!.data, want, 1e-6);
        expect(entropy!.shape).toEqual([B, H, L]);
      }
      for (const kind of ['raw', 'capped', 'biased'] as const) {
        const { scores } = mha.forward(q, k, v, { ...options, needScores: kind });
        expectSameBits(mha.inspect(q, k, { ...options, kind }).values!.data, ownColumns(scores!, S));
      }
      const part = mha.inspect(q, k, { ...options, heads: [4], rows: [2, 5], keys: [1, 12] }).values!;
      expect(part.shape).toEqual([B, 1, 3, 11]);
      const at = (b: number, i: number, j: number): number => want[((b * H + 4) * L + i) * S + j]!;
      const few = Array.from(part.data, (_x, n) => at(Math.floor(n / 33), 2 + (Math.floor(n / 11) % 3), 1 + (n % 11)));
      expectClose(part.data, few, 1e-6);
    });
  });

  test('the same of unbatched self-attention, with positions', () => {
    const mha = make({ rope: true, qkNorm: true }, runtime);
    const x = random.tensor(L, E);
    const positions = Int32Array.from({ length: L }, (_, i) => 5 * i);
    const options = { positions, causal: true, keyPaddingMask: random.mask(0.2, L) } as const;
    const { weights } = mha.forward(x, { ...options, needWeights: 'perHead' });
    const { values, topK } = mha.inspect(x, { ...options, values: true, topK: 2 });
    expect(values!.shape).toEqual([H, L, L]);
    expect(topK!.shape).toEqual([H, L, 2]);
    expectClose(values!.data, weights.data, 1e-6);
    const { query, key, value } = mha.projectHeads(x, { positions });
    expect([query.shape, key.shape, value.shape]).toEqual([
      [H, L, D],
      [Hkv, L, D],
      [Hkv, L, Dv],
    ]);
    const { causal, keyPaddingMask } = options;
    const core = { causal, keyPaddingMask, runtime, needWeights: 'perHead' } as const;
    const again = scaledDotProductAttention(query, key, value, core);
    expectSameBits(again.weights.data, weights.data);
    // Other positions turn otherwise.
    expect(mha.inspect(x, { causal: true }).values!.data).not.toEqual(values!.data);
  });

  test('an offset that only turns', () => {
    const mha = make({ rope: true }, runtime);
    const [q, k] = [random.tensor(B, L, E), random.tensor(B, S, E)];
    const { weights } = mha.forward(q, k, { queryOffset: 6, needWeights: 'perHead' });
    expectClose(mha.inspect(q, k, { queryOffset: 6 }).values!.data, weights.data, 1e-6);
  });

  test('head statistics are those of the projected heads, and of the weights', () => {
    const mha = make({ kDim: 7, vDim: 11, emptyRows: 'nan', window: [2, 2], rope: true }, runtime);
    const [q, k, v] = [random.tensor(B, L, E), random.tensor(B, S, 7), random.tensor(B, S, 11)];
    const options = { causal: true, queryOffset: [3, 1], queryLengths: [9, 4] } as const;
    const got = mha.headStatistics(q, k, options);
    const { query, key } = mha.projectHeads(q, k, v, { queryOffset: options.queryOffset });
    const want = headStatistics(query, key, { ...options, window: [2, 2], runtime });
    for (const name of ['entropy', 'previous', 'next', 'self', 'first'] as const) {
      expect(got[name].shape).toEqual([B, H]);
      expectClose(got[name].data, want[name].data, 1e-6);
    }
    const dense = mha.forward(q, k, v, { ...options, needWeights: 'perHead' }).weights.data;
    const self = Array.from({ length: B * H }, (_, group) => {
      const b = Math.floor(group / H);
      const rows = Array.from({ length: options.queryLengths[b]! }, (_x, i) => i);
      const sum = rows.reduce((a, i) => a + dense[(group * L + i) * S + options.queryOffset[b]! + i]!, 0);
      return sum / rows.length;
    });
    expectClose(got.self.data, self, 1e-6);
  });

  test('head statistics with extra keys', () => {
    const mha = make({ addBiasKv: true, addZeroAttn: true }, runtime);
    const x = random.tensor(B, L, E);
    const dense = mha.forward(x, { needWeights: 'perHead' }).weights;
    const first = Array.from({ length: B * H }, (_, group) => {
      let sum = 0;
      for (let i = 0; i < L; ++i) sum += dense.data[(group * L + i) * (L + 2)]!;
      return sum / L;
    });
    expectClose(mha.headStatistics(x).first.data, first, 1e-6);
  });

  test.each([0, 4])('with a cache heads stand behind what it holds; window %i', (window) => {
    const mha = make({ rope: true }, runtime);
    const x = random.tensor(B, 6, E);
    const rows = (begin: number, end: number): Tensor => {
      const data = Array.from({ length: B }, (_, b) => [...x.data.slice((b * 6 + begin) * E, (b * 6 + end) * E)]);
      return { data: Float32Array.from(data.flat()), shape: [B, end - begin, E] };
    };
    const cache = mha.createCache(window === 0 ? { batch: B, capacity: 6 } : { batch: B, window });
    mha.forward(rows(0, 4), { cache, causal: true });
    const own = cache.fork();
    const { query, key, value } = mha.projectHeads(rows(4, 6), { cache });
    expect(cache.length).toBe(4);
    own.append(key, value);
    const got = scaledDotProductAttention(query, { cache: own, causal: true, runtime });
    const { heads } = mha.forward(rows(4, 6), { cache, causal: true, returnHeads: true });
    const inRows = heads!.data.map((_, n) => {
      const [b, i, h, d] = [Math.floor(n / (2 * H * Dv)), Math.floor(n / (H * Dv)) % 2, Math.floor(n / Dv) % H, n % Dv];
      return got.output.data[((b * H + h) * 2 + i) * Dv + d]!;
    });
    expectSameBits(inRows, heads!.data);
  });

  test('zero lengths', () => {
    const mha = make({}, runtime);
    const key = random.tensor(B, S, E);
    const heads = mha.projectHeads(zeros(B, 0, E), key);
    expect(heads.query.shape).toEqual([B, H, 0, D]);
    // Keys are projected although no query asks.
    expectSameBits(heads.key.data, mha.projectHeads(key).key.data);
    expect(mha.projectHeads(zeros(B, L, E), zeros(B, 0, E)).value.shape).toEqual([B, Hkv, 0, Dv]);
    expect(mha.projectHeads(zeros(0, L, E)).query.shape).toEqual([0, H, L, D]);
    expect(mha.inspect(zeros(B, 0, E), key).values!.shape).toEqual([B, H, 0, S]);
    expect(mha.inspect(zeros(B, L, E), zeros(B, 0, E)).values!.shape).toEqual([B, H, L, 0]);
    expect(mha.headStatistics(zeros(0, L, E)).self.shape).toEqual([0, H]);
  });
});

describe('bad arguments', () => {
  const RANGE = { type: HeadwiseRangeError, code: 'wrong-shape' } as const;
  const CONFLICT = { type: HeadwiseTypeError, code: 'conflict' } as const;
  const TYPE = { type: HeadwiseTypeError, code: 'wrong-type' } as const;
  const x = random.tensor(B, L, E);
  let mha: MultiHeadAttention;
  beforeAll(async () => {
    await load();
    mha = make({});
  });
  const NAMES = ['projectHeads', 'inspect', 'headStatistics'] as const;
  const run = (name: (typeof NAMES)[number], ...args: unknown[]): unknown =>
    (mha[name] as (...all: unknown[]) => unknown).apply(mha, args);

  describe.each(NAMES)('%s()', (name) => {
    const call = `MultiHeadAttention.${name}()`;
    const wrong = (args: unknown[], expected: Omit<ExpectedError, 'call'>): void =>
      expectError(() => run(name, ...args), { ...expected, call });
    test('inputs', () => {
      wrong([zeros(B, L, 3)], { ...RANGE, argument: 'query.shape', got: '[2, 9, 3]', wanted: 'embedDim 20' });
      wrong([x, zeros(B, S, 3)], { ...RANGE, argument: 'key.shape', got: '[2, 13, 3]', wanted: 'kDim 20' });
      wrong([x, zeros(1, S, E)], { ...RANGE, argument: 'key.shape', got: '[1, 13, 20]', wanted: 'batch size 2' });
      wrong([x, {}, {}], { ...TYPE, argument: 'argument 3', got: 'an object', wanted: 'left away' });
    });
    test('positions without rope', () => {
      const positions = new Int32Array(B * L);
      wrong([x, { positions }], { ...CONFLICT, argument: 'positions', got: 'without rope', wanted: 'left away' });
    });
    test('an option of another call', () => {
      const unknown = { type: HeadwiseTypeError, code: 'unknown-option' } as const;
      wrong([x, { needWeights: 'perHead' }], {
        ...unknown,
        argument: '"needWeights"',
        got: 'unknown',
        wanted: 'queryOffset',
      });
      wrong([x, { runtime: 1 }], { ...unknown, argument: '"runtime"', got: 'unknown', wanted: 'queryOffset' });
      if (name !== 'inspect') {
        wrong([x, { topK: 1 }], { ...unknown, argument: '"topK"', got: 'unknown', wanted: 'queryOffset' });
      }
    });
    test('after dispose()', () => {
      const gone = make({});
      gone.dispose();
      expect(() => (gone[name] as (x: Tensor) => unknown)(x)).toThrow(UseAfterDisposeError);
    });
  });

  test.each(['inspect', 'headStatistics'] as const)('a cache: %s() says what to do', (name) => {
    const cache = mha.createCache({ batch: B, capacity: 20 });
    expectError(() => run(name, x, { cache }), {
      ...CONFLICT,
      call: `MultiHeadAttention.${name}()`,
      argument: 'cache',
      got: 'given',
      wanted: 'left away',
    });
    expect(cache.length).toBe(0);
  });
  test('what inspect() checks itself', () => {
    const call = 'MultiHeadAttention.inspect()';
    const key = zeros(B, S, E);
    const wrong = (o: object, expected: Omit<ExpectedError, 'call'>): void =>
      expectError(() => run('inspect', x, key, o), { ...expected, call });
    const OUT = { type: HeadwiseRangeError, code: 'out-of-range' } as const;
    wrong({ heads: [6] }, { ...OUT, argument: 'heads[0]', got: '6', wanted: '0 to 5' });
    wrong({ rows: [0, 10] }, { ...OUT, argument: 'rows[1]', got: '10', wanted: '0 to 9' });
    wrong({ keys: 1 }, { ...TYPE, argument: 'keys', got: '1', wanted: '[begin, end]' });
    wrong({ pooled: 1 }, { ...TYPE, argument: 'pooled', got: '1', wanted: '[rows, keys]' });
    wrong({ lse: zeros(B, H, 2) }, { ...RANGE, argument: 'lse.shape', got: '[2, 6, 2]', wanted: '[2, 6, 9]' });
    wrong(
      { keyPaddingMask: { data: new Uint8Array(2), shape: [2] } },
      {
        ...RANGE,
        argument: 'keyPaddingMask.shape',
        got: '[2]',
        wanted: '[2, 13]',
      },
    );
    wrong({ queryOffset: 3 }, { ...CONFLICT, argument: 'queryOffset', got: 'causal: false', wanted: 'left away' });
  });
  test('positions that heads do not depend on, and those a cache knows', () => {
    const call = 'MultiHeadAttention.projectHeads()';
    expectError(() => mha.projectHeads(x, { queryOffset: 2 }), {
      ...CONFLICT,
      call,
      argument: 'queryOffset',
      got: 'without rope',
      wanted: 'left away',
    });
    const turning = make({ rope: true });
    const cache = turning.createCache({ batch: B, capacity: 20 });
    expectError(() => turning.projectHeads(x, { queryOffset: 2, cache }), {
      ...CONFLICT,
      call,
      argument: 'queryOffset',
      got: 'given with a cache',
      wanted: 'left away',
    });
    expectError(() => turning.projectHeads(zeros(1, L, E), { cache }), {
      ...RANGE,
      call,
      argument: 'cache',
      got: 'batch 2',
      wanted: 'batch 1',
    });
  });
});
