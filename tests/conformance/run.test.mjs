// The runner must be able to fail. A made-up folder holds right cases and every kind of wrong one; both runners have
// to tell them apart.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ROOT } from '../../cpp/toolchain/paths.mjs';
import { excess } from './lib/compare.mjs';

const RUN = join(ROOT, 'tests/conformance/run.mjs');
const ENGINES = [['JavaScript', []], ['native', ['--native']]];
const ARRAYS = { F32: Float32Array, F64: Float64Array, I32: Int32Array, I64: BigInt64Array, BOOL: Uint8Array };

/** The bytes of a safetensors file. */
function safetensors(tensors, metadata) {
  const header = { __metadata__: metadata };
  const parts = [];
  let offset = 0;
  for (const [name, [dtype, shape, values]] of Object.entries(tensors)) {
    const bytes = new Uint8Array(ARRAYS[dtype].from(values).buffer);
    header[name] = { dtype, shape, data_offsets: [offset, offset + bytes.length] };
    parts.push(bytes);
    offset += bytes.length;
  }
  const text = JSON.stringify(header);
  const json = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([size, json, ...parts]);
}

/** Two keys with equal scores: the output is the mean of the values 1 and 3. */
function meanCase({ y = 2, tensors = {}, metadata = {} } = {}) {
  return safetensors({
    'in.Q': ['F32', [1, 1, 1, 1], [0]],
    'in.K': ['F32', [1, 1, 2, 1], [5, 7]],
    'in.V': ['F32', [1, 1, 2, 1], [1, 3]],
    'out.Y': ['F32', [1, 1, 1, 1], [y]],
    ...tensors,
  }, { kind: 'onnx_attention', features: 'rank4', tol_abs: '1e-5', tol_rel: '0', ...metadata });
}

const masked = { 'in.attn_mask': ['BOOL', [1, 2], [0, 0]] };
const tolerance = { tol_abs: '1e-5', tol_rel: '0' };

/** One earlier key and value 5, then a new one: through the cache. Two new ones for one query: in front of them. */
const past = { 'in.past_key': ['F32', [1, 1, 1, 1], [9]], 'in.past_value': ['F32', [1, 1, 1, 1], [5]] };
const oneKey = { 'in.K': ['F32', [1, 1, 1, 1], [7]], 'in.V': ['F32', [1, 1, 1, 1], [1]] };
function cachedCase(presentKey, { tensors = {}, metadata = {} } = {}) {
  return meanCase({
    y: 3, metadata,
    tensors: {
      ...past, ...oneKey, ...tensors,
      'out.present_key': ['F32', [1, 1, 2, 1], presentKey], 'out.present_value': ['F32', [1, 1, 2, 1], [5, 1]],
    },
  });
}

/** A buffer of three rows, one of them past; what is behind the new one is open. */
function gqaCase({ y = 2, present = [9, 5, 777], tensors = {}, metadata = {} } = {}) {
  return safetensors({
    'in.query': ['F32', [1, 1, 1], [0]], 'in.key': ['F32', [1, 1, 1], [5]], 'in.value': ['F32', [1, 1, 1], [3]],
    'in.past_key': ['F32', [1, 1, 3, 1], [9, 99, 999]], 'in.past_value': ['F32', [1, 1, 3, 1], [1, 50, 500]],
    'in.seqlens_k': ['I32', [1], [1]], 'in.total_sequence_length': ['I32', [1], [2]],
    'out.output': ['F32', [1, 1, 1], [y]], 'out.present_key': ['F32', [1, 1, 3, 1], present],
    ...tensors,
  }, { kind: 'ort_gqa', ...tolerance, 'attr.num_heads': '1', 'attr.kv_num_heads': '1', ...metadata });
}

function mhaCase({ y = 2, tensors = {}, metadata = {} } = {}) {
  return safetensors({
    'in.query': ['F32', [1, 1, 1], [0]], 'in.key': ['F32', [1, 2, 1], [5, 7]], 'in.value': ['F32', [1, 2, 1], [1, 3]],
    'out.output': ['F32', [1, 1, 1], [y]],
    ...tensors,
  }, { kind: 'ort_mha', ...tolerance, 'attr.num_heads': '1', ...metadata });
}

/** Queries and keys are 0, values are the input. */
function attentionCase({ y = [2, 2], tensors = {}, metadata = {} } = {}) {
  return safetensors({
    'in.input': ['F32', [1, 2, 1], [1, 3]], 'in.weights': ['F32', [1, 3], [0, 0, 1]],
    'in.bias': ['F32', [3], [0, 0, 0]], 'out.output': ['F32', [1, 2, 1], y],
    'out.present': ['F32', [2, 1, 1, 2, 1], [0, 0, 1, 3]],
    ...tensors,
  }, { kind: 'ort_attention', ...tolerance, 'attr.num_heads': '1', ...metadata });
}

/** A quarter turn at position 1. */
function rotaryCase(position, y = [0, 1]) {
  return safetensors({
    'in.input': ['F32', [1, 1, 1, 2], [1, 0]], 'in.position_ids': ['I64', [1], [BigInt(position)]],
    'in.cos_cache': ['F32', [2, 1], [1, 0]], 'in.sin_cache': ['F32', [2, 1], [0, 1]],
    'out.output': ['F32', [1, 1, 1, 2], y],
  }, { kind: 'ort_rotary', ...tolerance });
}

/** Keys and values that are given projected, and one of zeros: the weights are thirds. */
function staticCase(y = 4 / 3) {
  return safetensors({
    'in.query': ['F32', [1, 1, 1], [0]],
    'in.static_k': ['F32', [1, 2, 1], [5, 7]], 'in.static_v': ['F32', [1, 2, 1], [1, 3]],
    'param.in_proj_weight': ['F32', [3, 1], [1, 40, 50]], 'param.in_proj_bias': ['F32', [3], [0, 60, 70]],
    'param.out_proj.weight': ['F32', [1, 1], [1]],
    'out.attn_output': ['F32', [1, 1, 1], [y]], 'out.attn_weights': ['F32', [1, 1, 3], [1 / 3, 1 / 3, 1 / 3]],
  }, {
    kind: 'torch_mha', ...tolerance, 'attr.num_heads': '1', 'attr.add_zero_attn': '1', 'alias.key': 'query',
    'alias.value': 'query',
  });
}

/** name: [file, wanted line]; no line: it passes. */
const CASES = {
  'right': [meanCase()],
  'right-mask': [meanCase({ y: 3, tensors: { 'in.attn_mask': ['BOOL', [2], [0, 1]] } })],
  'right-short-mask': [meanCase({ y: 1, tensors: { 'in.attn_mask': ['BOOL', [1, 1], [1]] } })],
  'right-float64': [meanCase({ tensors: { 'ref64.Y': ['F64', [1, 1, 1, 1], [2.000005]] } })],
  'right-rank3': [safetensors({
    'in.Q': ['F32', [1, 1, 2], [0, 0]], 'in.K': ['F32', [1, 2, 1], [5, 7]], 'in.V': ['F32', [1, 2, 1], [1, 3]],
    'out.Y': ['F32', [1, 1, 2], [2, 2]],
  }, { kind: 'ort_onnx_attention', tol_abs: '1e-5', tol_rel: '0', 'attr.q_num_heads': '2', 'attr.kv_num_heads': '1' })],
  'right-empty-keys': [meanCase({
    y: 0, tensors: { 'in.K': ['F32', [1, 1, 0, 1], []], 'in.V': ['F32', [1, 1, 0, 1], []] },
  })],
  'right-empty-queries': [meanCase({
    tensors: { 'in.Q': ['F32', [1, 1, 0, 1], []], 'out.Y': ['F32', [1, 1, 0, 1], []] },
  })],
  'right-no-keys-zero': [meanCase({ y: 0, tensors: masked, metadata: { fully_masked: 'zero' } })],
  'right-no-keys-nan': [meanCase({ y: NaN, tensors: masked, metadata: { fully_masked: 'nan' } })],
  'right-no-keys-uniform': [meanCase({ y: 2, tensors: masked, metadata: { fully_masked: 'uniform' } })],
  'right-alias': [safetensors({ 'in.V': ['F32', [1, 1, 1, 1], [3]], 'out.Y': ['F32', [1, 1, 1, 1], [3]] },
    { kind: 'onnx_attention', tol_abs: '1e-5', tol_rel: '0', 'alias.Q': 'K', 'alias.K': 'V' })],

  'right-past-cached': [cachedCase([9, 7])],
  'right-past-in-front': [meanCase({ y: 3, tensors: past })],
  'right-past-no-batch': [meanCase({ tensors: {
    'in.Q': ['F32', [0, 1, 1, 1], []], 'in.K': ['F32', [0, 1, 1, 1], []], 'in.V': ['F32', [0, 1, 1, 1], []],
    'in.past_key': ['F32', [0, 1, 2, 1], []], 'in.past_value': ['F32', [0, 1, 2, 1], []],
    'out.Y': ['F32', [0, 1, 1, 1], []], 'out.present_key': ['F32', [0, 1, 3, 1], []],
  } })],
  'right-past-nothing-new': [meanCase({ tensors: {
    'in.Q': ['F32', [1, 1, 0, 1], []], 'in.K': ['F32', [1, 1, 0, 1], []], 'in.V': ['F32', [1, 1, 0, 1], []], ...past,
    'out.Y': ['F32', [1, 1, 0, 1], []], 'out.present_key': ['F32', [1, 1, 1, 1], [9]],
  } })],
  'right-past-empty': [meanCase({ y: 1, tensors: {
    ...oneKey, 'in.past_key': ['F32', [1, 1, 0, 1], []], 'in.past_value': ['F32', [1, 1, 0, 1], []],
    'out.present_key': ['F32', [1, 1, 1, 1], [7]],
  } })],
  'right-gqa-ragged': [gqaCase({
    tensors: {
      'in.query': ['F32', [2, 1, 1], [0, 0]], 'in.key': ['F32', [2, 1, 1], [5, 6]],
      'in.value': ['F32', [2, 1, 1], [3, 4]], 'in.past_key': ['F32', [2, 1, 1, 1], [9, 99]],
      'in.past_value': ['F32', [2, 1, 1, 1], [1, 50]], 'in.seqlens_k': ['I32', [2], [1, 0]],
      'out.output': ['F32', [2, 1, 1], [2, 4]], 'out.present_key': ['F32', [2, 1, 2, 1], [9, 5, 6, 777]],
    },
  })],
  'right-softcap': [meanCase({
    tensors: { 'in.Q': ['F32', [1, 1, 1, 1], [1]], 'out.qk_matmul_output': ['F32', [1, 1, 1, 2], [1e-7, 1e-7]] },
    metadata: { 'attr.softcap': '1e-7', 'attr.qk_matmul_output_mode': '1', tol_abs: '1e-6' },
  })],
  'right-raw-scores': [meanCase({
    y: 1, tensors: {
      'in.Q': ['F32', [1, 1, 1, 1], [1]], 'in.attn_mask': ['BOOL', [2], [1, 0]],
      'out.qk_matmul_output': ['F32', [1, 1, 1, 2], [5, 7]],
    },
  })],
  'right-masked-scores': [meanCase({
    y: 1, metadata: { 'attr.qk_matmul_output_mode': '2' }, tensors: {
      'in.Q': ['F32', [1, 1, 1, 1], [1]], 'in.attn_mask': ['BOOL', [2], [1, 0]],
      'out.qk_matmul_output': ['F32', [1, 1, 1, 2], [5, -Infinity]],
    },
  })],
  'right-window': [meanCase({ y: 1, metadata: { 'attr.right_window_size': '0' } })],
  'right-gqa': [gqaCase()],
  'right-gqa-window': [gqaCase({ y: 3, metadata: { 'attr.local_window_size': '1' } })],
  'right-gqa-smooth': [gqaCase({ y: 4 / 3, metadata: { 'attr.smooth_softmax': '1' } })],
  'right-mha': [mhaCase()],
  'right-mha-bias': [mhaCase({ y: 12, tensors: { 'in.bias': ['F32', [3], [0, 4, 10]] } })],
  'right-mha-finite': [mhaCase({
    tensors: { 'in.key_padding_mask': ['I32', [1, 2], [0, 0]] }, metadata: { fully_masked: 'finite' },
  })],
  // The weights are 1 and exp(-1).
  'right-mha-small-filter': [mhaCase({
    y: 1 + 2 / (1 + Math.E), tensors: { 'in.key_padding_mask': ['I32', [1], [1]] },
    metadata: { 'attr.mask_filter_value': '-1' },
  })],
  'right-attention': [attentionCase()],
  'right-attention-causal': [attentionCase({ y: [1, 2], metadata: { 'attr.unidirectional': '1' } })],
  'right-rotary': [rotaryCase(1)],
  'right-static': [staticCase()],

  'wrong-present': [cachedCase([9, 8]), /out\.present_key: 1 of 2 elements off, worst at \[0,0,1,0\]: got 7, want 8/],
  'wrong-gqa-present': [gqaCase({ present: [9, 6, 777] }), /out\.present_key: 1 of 3 elements off/],
  'wrong-gqa-window': [gqaCase({ y: 2, metadata: { 'attr.local_window_size': '1' } }), /got 3, want 2/],
  'wrong-mha-bias': [mhaCase({ y: 2, tensors: { 'in.bias': ['F32', [3], [0, 4, 10]] } }), /got 12, want 2/],
  'wrong-attention': [attentionCase({ metadata: { 'attr.unidirectional': '1' } }), /out\.output: 1 of 2 elements/],
  'wrong-rotary': [rotaryCase(1, [1, 0]), /out\.output: 2 of 2 elements/],
  'wrong-static': [staticCase(2), /out\.attn_output: 1 of 1/],
  'wrong-number': [meanCase({ y: 2.5 }),
    /out\.Y: 1 of 1 elements off, worst at \[0,0,0,0\]: got 2, want 2\.5, allowed/],
  'wrong-nan': [meanCase({ y: NaN }), /got 2, want nan, allowed exactly that/i],
  'wrong-infinity': [meanCase({ y: Infinity }), /got 2, want inf/i],
  'wrong-finite': [meanCase({ y: 2, tensors: masked, metadata: { fully_masked: 'nan' } }), /got nan, want 2/i],
  'wrong-float64': [meanCase({ tensors: { 'ref64.Y': ['F64', [1, 1, 1, 1], [2.00002]] } }), /ref64\.Y: 1 of 1/],
  'wrong-shape': [meanCase({ tensors: { 'out.Y': ['F32', [1, 1, 1], [2]] } }), /has shape \[1,1,1,1\], want \[1,1,1\]/],
  'damaged-cut': [meanCase().subarray(0, -5), /cannot be read/],
  'damaged-empty': [Buffer.alloc(0), /cannot be read/],
  'damaged-header': [Buffer.from([255, 255, 255, 255, 255, 255, 255, 127, 123]), /cannot be read/],
  'unknown-kind': [meanCase({ metadata: { kind: 'numpy_attention' } }), /no adapter for kind numpy_attention/],
  'unknown-input': [meanCase({ tensors: { 'in.sinks': ['F32', [1], [0]] } }), /does not handle in\.sinks/],
  'unknown-attribute': [meanCase({ metadata: { 'attr.alibi': '1' } }), /does not handle attr\.alibi/],
  'unknown-result': [meanCase({ tensors: { 'out.lse': ['F32', [1], [0]] } }), /does not make out\.lse/],
  'unknown-tensor': [meanCase({ tensors: { 'want.Y': ['F32', [1], [0]] } }), /want\.Y is neither/],
  'half-past': [meanCase({ tensors: { 'in.past_key': ['F32', [1, 1, 1, 1], [0]] } }), /past_value one is missing/],
  'past-and-lengths': [cachedCase([9, 7], { tensors: { 'in.nonpad_kv_seqlen': ['I64', [1], [2n]] } }),
    /nonpad_kv_seqlen contradicts/],
  'bad-mode': [meanCase({
    tensors: { 'out.qk_matmul_output': ['F32', [1, 1, 1, 2], [0, 0]] }, metadata: { 'attr.qk_matmul_output_mode': '4' },
  }), /qk_matmul_output_mode is 4/],
  'gqa-two-sinks': [gqaCase({
    tensors: { 'in.head_sink': ['F32', [1], [0]] }, metadata: { 'attr.smooth_softmax': '1' },
  }), /smooth_softmax=1 together with in\.head_sink/],
  'gqa-past-too-long': [gqaCase({ tensors: {
    'in.seqlens_k': ['I32', [1], [4]], 'in.total_sequence_length': ['I32', [1], [5]],
  } }), /leaves a past of 4 rows, of 3/],
  'mha-mask-size': [mhaCase({ tensors: { 'in.key_padding_mask': ['I32', [3], [1, 1, 1]] } }), /3 entries for a batch/],
  'attention-mask-shape': [attentionCase({ tensors: { 'in.mask_index': ['I32', [1, 3], [1, 1, 1]] } }),
    /unknown shape \[1,3\]/],
  'rotary-beyond-table': [rotaryCase(2), /position/i],
  'bad-dtype': [meanCase({ tensors: { 'in.attn_mask': ['I64', [1, 2], [1n, 1n]] } }), /in\.attn_mask is I64/],
  'bad-flavour': [meanCase({ metadata: { fully_masked: 'maybe' } }), /fully_masked is "maybe"/],
  'bad-flag': [meanCase({ metadata: { 'attr.is_causal': 'true' } }), /attr\.is_causal is "true"/],
  'bad-tolerance': [meanCase({ metadata: { tol_abs: 'NaN' } }), /tol_abs is "NaN"/],
  'bad-alias': [meanCase({ metadata: { 'alias.nonpad_kv_seqlen': 'lengths' } }), /alias\.nonpad_kv_seqlen/],
  'no-result': [safetensors({ 'in.Q': ['F32', [1, 1, 1, 1], [0]] },
    { kind: 'onnx_attention', tol_abs: '0', tol_rel: '0' }), /wants no result/],
  'no-kind': [safetensors({}, { tol_abs: '0', tol_rel: '0' }), /names no kind/],
  'refused': [meanCase({ tensors: { 'in.attn_mask': ['BOOL', [1, 3], [1, 1, 1]] } }), /attend.?mask/i],
};
/** Left out by the default selection, with its reason. */
const LEFT_OUT = {
  'later-kind': [meanCase({ metadata: { kind: 'torch_mha_grad' } }), 'kind torch_mha_grad (no adapter yet)'],
};

const WRONG = Object.entries(CASES).filter(([, [, line]]) => line);
const RIGHT = Object.entries(CASES).filter(([, [, line]]) => !line);

let scratch;
const folder = (name) => join(scratch, name);

function writeCases(name, cases) {
  mkdirSync(folder(name), { recursive: true });
  for (const [file, [bytes]] of Object.entries(cases)) writeFileSync(join(folder(name), `${file}.safetensors`), bytes);
  return folder(name);
}

function run(args, script = RUN) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...args], { encoding: 'utf8' });
  return { status, stdout, stderr, lines: stdout.trimEnd().split('\n') };
}

before(() => {
  scratch = mkdtempSync(join(tmpdir(), 'headwise-conformance-'));
  writeCases('all', { ...CASES, ...LEFT_OUT });
  writeFileSync(join(folder('all'), 'index.json'),
    JSON.stringify([{ file: 'right.safetensors' }, { file: 'gone.safetensors' }]));
  writeCases('right', Object.fromEntries(RIGHT));
});
after(() => rmSync(scratch, { recursive: true, force: true }));

for (const [engine, flags] of ENGINES) {
  test(`${engine}: every wrong case fails with its reason, every right one passes`, () => {
    const { status, lines, stdout, stderr } = run([...flags, '--dir', folder('all')]);
    const blocks = new Map(stdout.split(/^(?=FAILED |passed |skipped |\d+ passed)/m)
      .map((block) => [/^FAILED (\S+?)(?:\.safetensors)?(?: \(|:)/.exec(block)?.[1], block]));
    for (const [name, [, line]] of WRONG) assert.match(blocks.get(name) ?? `no failure of ${name}`, line, stderr);
    assert.match(blocks.get('gone'), /is listed in index\.json, but missing/);
    for (const [, reason] of Object.values(LEFT_OUT)) assert.ok(lines.includes(`skipped 1: ${reason}`), reason);
    assert.equal(lines.at(-1), `${RIGHT.length} passed, ${WRONG.length + 1} failed, 1 skipped`);
    assert.equal(status, 1);
  });

  test(`${engine}: right cases alone exit with 0`, () => {
    const { status, lines } = run([...flags, '--dir', folder('right')]);
    assert.equal(lines.at(-1), `${RIGHT.length} passed, 0 failed, 0 skipped`);
    assert.equal(status, 0);
  });

  test(`${engine}: --kind and --without leave out, --all does not`, () => {
    const one = `1 passed, 0 failed, ${RIGHT.length - 1} skipped`;
    const count = (...args) => run([...flags, '--dir', folder('right'), ...args]).lines.at(-1);
    assert.equal(count('--kind', 'ort_onnx_attention'), one);
    assert.equal(count('--kind', 'onnx_attention', '--without', 'rank4'), one);
    const { lines } = run([...flags, '--dir', folder('right'), '--without', 'rank4']);
    assert.ok(lines.some((line) => /^skipped \d+: feature rank4$/.test(line)));
    const all = run([...flags, '--dir', folder('all'), '--all']);
    assert.match(all.stdout, /FAILED later-kind.*no adapter for kind torch_mha_grad/);
    assert.match(all.lines.at(-1), / 0 skipped$/);
  });
}

test('questions that make no sense exit with 2', () => {
  for (const args of [['--dir', folder('nowhere')], ['--dir', scratch], ['--kinds', 'torch_mha'], ['--dir'],
    ['--dir', folder('right'), '--kind', 'torch']]) {
    const { status, stderr } = run(args);
    assert.equal(status, 2, args.join(' '));
    assert.match(stderr, /^error: /);
  }
});

test('a clone without the public cases says so and is not a failure', () => {
  const clone = join(folder('clone'), 'repository');
  for (const part of ['package.json', 'tests/conformance', 'cpp/toolchain']) {
    cpSync(join(ROOT, part), join(clone, part), { recursive: true });
  }
  const { status, lines } = run([], join(clone, 'tests/conformance/run.mjs'));
  assert.match(lines[0], /not beside this clone/);
  assert.deepEqual(lines.slice(1), ['0 passed, 0 failed, 0 skipped']);
  assert.equal(status, 0);
});

test('the tolerance rule', () => {
  const tolerance = { abs: 0.5, rel: 0.25 };
  const within = [[1.5, 1], [1.75, 1], [0.25, 1], [NaN, NaN], [Infinity, Infinity], [-Infinity, -Infinity], [-0, 0]];
  const off = [[1.7500001, 1], [0.2499999, 1], [NaN, 1], [1, NaN], [Infinity, 1], [1, Infinity], [-Infinity, Infinity],
    [Infinity, NaN]];
  for (const [got, want] of within) assert.ok(excess(got, want, tolerance) <= 1, `${got} for ${want}`);
  for (const [got, want] of off) assert.ok(excess(got, want, tolerance) > 1, `${got} for ${want}`);
  assert.equal(excess(1, 1, { abs: 0, rel: 0 }), 0);
  assert.ok(excess(1 + 1e-15, 1, { abs: 0, rel: 0 }) > 1);
});
