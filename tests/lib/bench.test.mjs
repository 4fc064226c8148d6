// The benchmarks still run: every section once, on the smallest workload, without peers. And what they count and judge.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as headwise from 'headwise';
import { openNode, runningNode } from '../bench/engines.mjs';
import { goalsOf } from '../bench/goals.mjs';
import { makeInputs } from '../bench/inputs.mjs';
import { openOurs } from '../bench/ours.mjs';
import { referenceRows, relativeError } from '../bench/reference.mjs';
import { benchMarkdown, peersMarkdown } from '../bench/results.mjs';
import { SECTIONS } from '../bench/sections/index.mjs';
import { contest } from '../bench/seats/contest.mjs';
import { SlowPeers } from '../bench/seats/slow.mjs';
import { goalTable } from '../bench/tables.mjs';
import { buildBareModules } from '../bench/wasm.mjs';
import { WORKLOADS, decodeBytes, flop, workload } from '../bench/workloads.mjs';

test('every section gives figures and goals', { timeout: 120_000 }, async () => {
  await buildBareModules();
  const engine = await openNode(runningNode());
  const figures = {};
  for (const name of Object.keys(SECTIONS)) figures[name] = await engine.measure(name, { quick: true, ids: ['W8', 'W7a'] });
  const goals = goalsOf(engine.name, { ...figures, sizes: { simd: 1 }, 'cold-start': 1 });
  assert.deepEqual([...new Set(goals.map(({ goal }) => goal))].sort(), ['1', '4', '6', '7', '9', 'masks']);
  for (const { what, figure } of goals) assert.match(figure, /^-?[\d.]+( %| µs| ms| KB)?$/, what);
  const machine = { processor: '', cores: 1, system: '', load: 0, commit: '', date: '' };
  const text = benchMarkdown({ machine, engines: { [engine.name]: figures } });
  assert.doesNotMatch(text, /NaN|undefined|null|Infinity/);
});

test('a goal that is not met says why, where that is known', () => {
  const row = { goal: '4', what: 'W7a decode', want: '≥ 1', figure: '0', met: false };
  const reasons = [{ goal: '4', what: /^W7b/, reason: 'of another' }, { goal: '4', what: /^W7/, reason: 'one row a tile' }];
  const lines = goalTable([row, { ...row, met: true }, { ...row, goal: '5' }], reasons).split('\n').slice(2);
  assert.deepEqual(lines.map((line) => line.split(' | ').at(-1)), ['**fail**: one row a tile |', 'pass |', '**fail** |']);
});

test('work is counted as 2 m n k of every product', () => {
  // 27.9 ms are 28.8 GFLOP/s on W1 only if it is 0.65 GFLOP: 4 · 2 · 128 · 768² + 2 · 2 · 128² · 768.
  assert.equal(flop(workload('W1')), 654_311_424);
  assert.equal(flop(workload('W9')), 8 * 654_311_424);
  assert.equal(flop(workload('W6b')), 4 * 4096 * 4096 * 768);
  assert.equal(flop(workload('W7a')), 8 * 768 * 768 + 4 * 1024 * 768);
  assert.deepEqual(['W7a', 'W7b'].map((id) => Math.round(decodeBytes(workload(id)) / 1e5) / 10), [15.7, 34.6]);
});

const SMALL = [
  { kind: 'layer', batch: 2, length: 5, embedDim: 12, numHeads: 3 },
  { kind: 'layer', batch: 1, length: 7, embedDim: 8, numHeads: 2, causal: true },
  { kind: 'attention', batch: 2, length: 6, embedDim: 20, numHeads: 4 },
  { kind: 'decode', batch: 1, length: 1, embedDim: 12, numHeads: 3, cached: 9 },
];

test('the reference and the package agree, and a wrong number is seen', async () => {
  const runtime = await headwise.load({ variant: 'simd' });
  for (const w of SMALL) {
    const inputs = makeInputs(w);
    const rows = Array.from({ length: w.batch * w.length }, (_, i) => i);
    const reference = referenceRows(w, inputs, rows);
    const ours = openOurs(headwise, runtime, w, inputs);
    const output = ours.run().slice();
    assert.ok(relativeError(w, output, reference) < 1e-6, JSON.stringify(w));
    assert.deepEqual(ours.run(), output, 'a second call is the same step');
    output[output.length - 1] += 0.1;
    assert.ok(relativeError(w, output, reference) > 1e-3, JSON.stringify(w));
    assert.ok(!(relativeError(w, output.fill(NaN), reference) < 1));
    assert.equal(relativeError(w, output.subarray(1), reference), Infinity);
    ours.close();
  }
});

test('what is verified includes the first and the last row', () => {
  for (const w of WORKLOADS.filter(({ length }) => length < 200)) {
    const rows = [...referenceRows(w, makeInputs(w)).keys()];
    assert.deepEqual([rows[0], Math.max(...rows)], [0, w.batch * w.length - 1]);
  }
});

/** A hall whose participants take these milliseconds a call. */
const hallOf = (ms) => ({
  async seat() {
    let own;
    return {
      async call(method, name) {
        if (method === 'turn') return own;
        own = ms[name];
        if (own === undefined) throw new Error('no such thing');
        return own < 0 ? [{ variant: 'v', why: 'wrong: relative error 1' }] : [{ variant: 'slow', ms: 1.5 * own },
          { variant: 'v', ms: own }];
      },
      leave: async () => {},
    };
  },
});

test('peers take turns; wrong and failing ones have a reason, slow ones are timed once', async () => {
  const slow = new SlowPeers();
  const names = ['headwise', 'half', 'wrong', 'failing', 'crawling'];
  const hall = hallOf({ headwise: 10, half: 20, wrong: -1, crawling: 201 });
  const result = await contest(hall, names, 'W4', slow);
  assert.equal(result.half.ms, 20);
  assert.equal(result.half.variant, 'v');
  assert.match(result.wrong.why, /wrong/);
  assert.match(result.failing.why, /no such thing/);
  assert.deepEqual([result.crawling.ms, result.crawling.once], [201, true]);
  const next = await contest(hall, names, 'W6a', slow);
  assert.match(next.crawling.why, /over 20 times/);
  const machine = { processor: '', cores: 1, system: '', load: 0, commit: '', date: '' };
  const text = peersMarkdown({ machine, versions: {}, engines: { 'Node 24': { W4: result } } });
  assert.match(text, /2\.00 × half/);
  assert.match(text, /\| 2 \| W4 .* \(half\) \| ≥ 1\.5 \| 2\.00 \| pass \|/);
});

test('a peer is given up where it was too slow, and altogether when it never kept up', () => {
  const slow = new SlowPeers();
  slow.record('mixed', workload('W8'), false);
  slow.record('mixed', workload('W7a'), true);
  assert.deepEqual(['W7b', 'W4'].map((id) => slow.has('mixed', workload(id))), [true, false]);
  slow.record('never', workload('W7a'), true);
  assert.equal(slow.has('never', workload('W4')), true);
  slow.record('talkative', workload('W8'), true);
  assert.equal(slow.has('talkative', workload('W4')), false);
});
