// The builds as they were made: each one that ships has its suites, and each compiled the pinned Highway.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { join, normalize } from 'node:path';
import { test } from 'node:test';
import { WASM_VARIANTS } from '../../cpp/toolchain/build.mjs';
import { ROOT, buildDir } from '../../cpp/toolchain/paths.mjs';
import { ensureSources } from '../../cpp/toolchain/sources.mjs';
import { SUITES } from './suites.mjs';

test('every variant that ships is built and tested (B-03)', () => {
  const shipped = readdirSync(join(ROOT, 'web/dist/wasm')).map((name) => /^headwise\.(\w+)\.wasm$/.exec(name)?.[1]);
  assert.deepEqual(shipped.sort(), [...WASM_VARIANTS].sort());
  for (const variant of shipped) {
    const program = join(buildDir(`wasm-${variant}`), 'tests/cpp/headwise_tests.js');
    const suites = SUITES.filter(({ needs, command }) => needs.includes(`wasm-${variant}`)
      && command('report').includes(program));
    assert.equal(suites.length, 1, `a suite runs the tests in the build ${variant}`);
  }
});

test('every build compiled the pinned Highway, whatever the system has (B-05)', async () => {
  const { highway } = await ensureSources();
  const pins = JSON.parse(readFileSync(join(ROOT, 'cpp/toolchain/pins.json'), 'utf8'));
  const base = readFileSync(join(highway, 'hwy/base.h'), 'utf8');
  const version = ['MAJOR', 'MINOR', 'PATCH'].map((part) => new RegExp(`#define HWY_${part} (\\d+)`).exec(base)[1]);
  assert.equal(version.join('.'), pins.highway.version);
  for (const name of ['native', ...WASM_VARIANTS.map((variant) => `wasm-${variant}`)]) {
    const dir = buildDir(name);
    const deps = execFileSync('ninja', ['-C', dir, '-t', 'deps'], { encoding: 'utf8', maxBuffer: 1 << 28 });
    const headers = [...deps.matchAll(/^ +(\S.*\/hwy\/\S+\.h)$/gm)].map(([, path]) => normalize(path));
    assert.ok(headers.some((path) => path.endsWith('/hwy/highway.h')), `${name} compiled Highway`);
    assert.deepEqual(headers.filter((path) => !path.startsWith(`${highway}/`)), [], name);
  }
});
