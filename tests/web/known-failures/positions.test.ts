// What others got wrong with positions and heads: causality of unequal lengths, windows, ALiBi, rotary pairs, groups.
import { readFileSync } from 'node:fs';
import {
  HeadwiseTypeError,
  KvCache,
  MultiHeadAttention,
  type Runtime,
  type Tensor,
  alibiSlopes,
  load,
  rotaryEmbedding,
  scaledDotProductAttention,
} from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectClose, expectError, zeros } from '../helpers.js';
import { attendIn, column, expectNear, floats } from '../lists.js';
import { type Heads, attention, combine, headsOf, project } from '../reference.js';

/** What the types say of an option. */
function documented(option: string): string {
  const types = readFileSync(new URL('../../../web/dist/forward-options.d.ts', import.meta.url), 'utf8');
  const found = new RegExp(`/\\*\\*((?:(?!\\*/)[^])*)\\*/\\s*readonly ${option}\\?`).exec(types);
  return found![1]!.replaceAll(/\s*\n\s*\*\s*/g, ' ');
}

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });
  const attend = attendIn(() => runtime);

  test('causality of one query and four keys: start, end, and what the types say (N-15)', () => {
    const [q, k, v] = [column(0), column(0, 0, 0, 0), column(1, 2, 3, 4)];
    expectNear(attend(q, k, v, { causal: 'end' }), [2.5]);
    expectNear(attend(q, k, v, { causal: 'start' }), [1]);
    expectNear(attend(q, k, v, { causal: true }), [1]);
    expect(documented('causal')).toMatch(/true or 'start': query i sees keys 0 to i .*'end': .*Default false/);
  });

  test('a window does not count the query itself, and a cache of window 2 is the same (N-28)', () => {
    const [q, v] = [zeros(4, 1), column(1, 2, 3, 4)];
    expectNear(attend(q, q, v, { causal: true, window: [1, 0] }), [1, 1.5, 2.5, 3.5]);
    expectNear(attend(q, q, v, { causal: true, window: [0, 0] }), [1, 2, 3, 4]);
    expectNear(attend(q, q, v, { window: [-1, 0] }), [1, 1.5, 2, 2.5]);
    expectNear(attend(q, q, v, { window: [0, -1] }), [2.5, 3, 3.5, 4]);
    const cache = KvCache.create({ numKvHeads: 1, headDim: 1, window: 2, runtime });
    const steps = [1, 2, 3, 4].map((value) => {
      cache.append(zeros(1, 1, 1), floats([1, 1, 1], value));
      return scaledDotProductAttention(zeros(1, 1, 1), { cache, causal: true, runtime }).output.data[0]!;
    });
    expectNear(steps, [1, 1.5, 2.5, 3.5]);
    expect(documented('window')).toMatch(/its own position not counted.*that counts the query itself.*\[n - 1, 0\]/);
  });

  test('a window hides older tokens of a cache, and what a path cannot honour is refused (N-30)', () => {
    const tokens = floats([1, 6, 1], 1, 2, 3, 4, 5, 6);
    const cache = KvCache.create({ numKvHeads: 1, headDim: 1, capacity: 6, runtime });
    cache.append(zeros(1, 6, 1), tokens);
    for (const window of [
      [1, -1],
      [1, 0],
    ] as const) {
      const { output } = scaledDotProductAttention(zeros(1, 1, 1), { cache, window, runtime });
      expect(Array.from(output.data)).toEqual([5.5]);
    }
    const rolling = KvCache.create({ numKvHeads: 1, headDim: 1, window: 3, runtime });
    rolling.append(zeros(1, 6, 1), tokens);
    const refused = (options: object, argument: string, wanted: string): void =>
      expectError(() => scaledDotProductAttention(zeros(1, 1, 1), { cache: rolling, runtime, ...options }), {
        type: HeadwiseTypeError,
        code: 'conflict',
        call: 'scaledDotProductAttention()',
        argument,
        got: 'with a rolling cache',
        wanted,
      });
    refused({ window: [1, 0] }, 'window', '[2, 0]');
    refused({ needWeights: 'perHead' }, 'needWeights', 'left away');
  });

  test('ALiBi slopes for any number of heads, and in the scores (N-31)', () => {
    expect([...alibiSlopes(3)]).toEqual([0.0625, 0.00390625, 0.25]);
    expect([...alibiSlopes(6)]).toEqual([0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]);
    const twelve = alibiSlopes(12);
    expect([...twelve.slice(0, 8)]).toEqual([1, 2, 3, 4, 5, 6, 7, 8].map((n) => 2 ** -n));
    expectNear(twelve.slice(8), [0.70710678, 0.35355339, 0.1767767, 0.08838835]);
    const [q, k] = [zeros(3, 1, 1), zeros(3, 2, 1)];
    const { scores } = scaledDotProductAttention(q, k, k, { runtime, alibi: true, needScores: 'biased' });
    expect(Array.from(scores!.data, Math.abs)).toEqual([0, 0.0625, 0, 0.00390625, 0, 0.25]);
  });

  test('both layouts of rotary pairs (N-33)', () => {
    const x = floats([1, 4], 1, 2, 3, 4);
    const options = { offset: 1, runtime };
    expectNear(rotaryEmbedding(x, options).data, [-1.984111, 1.959901, 2.462378, 4.0198]);
    expectNear(rotaryEmbedding(x, { ...options, interleaved: true }).data, [-1.14264, 1.922076, 2.959851, 4.0298]);
    expectNear(rotaryEmbedding(x, { ...options, dim: 2 }).data, [-1.14264, 1.922076, 3, 4]);
    expect(Array.from(x.data)).toEqual([1, 2, 3, 4]);
  });

  test('grouped heads: each key/value head serves neighbours (N-35)', () => {
    const got = attend(zeros(1, 4, 1, 3), zeros(1, 2, 1, 3), floats([1, 2, 1, 1], 10, 20));
    expect(got).toEqual([10, 10, 20, 20]);
  });

  test('a shape test notices heads in the wrong order: 4 or more, groups, and no two sizes equal (N-37)', () => {
    const random = new Random(37);
    const [B, H, Hkv, L, S, D, Dv] = [3, 8, 2, 5, 7, 4, 6];
    const [q, k, v] = [random.tensor(B, H, L, D), random.tensor(B, Hkv, S, D), random.tensor(B, Hkv, S, Dv)];
    const got = scaledDotProductAttention(q, k, v, { runtime }).output.data;
    const [Q, K, V] = [headsOf(q), headsOf(k), headsOf(v)];
    expectClose(got, attention(Q, K, V).output.flat(3), 1e-6);
    const far = (other: Heads): number => Math.max(...other.flat(3).map((x, i) => Math.abs(x - got[i]!)));
    const tiled = (heads: Heads): Heads => heads.map((entry) => Array.from({ length: H }, (_, h) => entry[h % Hkv]!));
    expect(far(attention(Q, tiled(K), tiled(V)).output)).toBeGreaterThan(0.1);
    const turned = (heads: Heads): Heads => heads.map((entry) => [...entry].reverse());
    expect(far(attention(Q, turned(K), turned(V)).output)).toBeGreaterThan(0.1);
    expect(far(turned(attention(Q, K, V).output))).toBeGreaterThan(0.1);
    // Rows before heads in memory, read as heads before rows.
    const rowsFirst = attention(Q, K, V).output.map((entry) => [
      Array.from({ length: L }, (_, i) => entry.map((head) => head[i]!)).flat(),
    ]);
    expect(far(rowsFirst)).toBeGreaterThan(0.1);
  });

  test.each([false, true])('no bias and an odd number of heads, padding %s (N-44)', (padded) => {
    const random = new Random(44);
    const mha = new MultiHeadAttention({ embedDim: 6, numHeads: 3, bias: false, seed: 5, runtime });
    const dict = mha.stateDict();
    expect(Object.keys(dict)).toEqual(['in_proj_weight', 'out_proj.weight']);
    const x = random.tensor(2, 5, 6);
    const part = (n: number): Tensor => floats([6, 6], ...dict['in_proj_weight']!.data.slice(36 * n, 36 * (n + 1)));
    const [q, k, v] = [0, 1, 2].map((n) => project(x, part(n), undefined, 3)) as [Heads, Heads, Heads];
    const keyPaddingMask = { data: Uint8Array.of(0, 0, 0, 1, 1, 1, 0, 0, 0, 0), shape: [2, 5] };
    const sees = (b: number, _h: number, _i: number, j: number): boolean => keyPaddingMask.data[5 * b + j] === 0;
    const want = combine(attention(q, k, v, padded ? { sees } : {}).output, dict['out_proj.weight']!, undefined);
    expectClose(mha.forward(x, padded ? { keyPaddingMask } : {}).output.data, want, 1e-6);
  });
});
