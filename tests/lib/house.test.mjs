// Rules of the house that a reader would otherwise have to check by eye.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../../cpp/toolchain/paths.mjs';

const files = execFileSync('git', ['ls-files', '-z'], { cwd: ROOT, encoding: 'utf8' }).split('\0')
  .filter((name) => name && statSync(join(ROOT, name), { throwIfNoEntry: false })?.isFile());
const read = (name) => readFileSync(join(ROOT, name), 'utf8');
const texts = files.filter((name) => /\.(?:cc|h|cmake|txt|json|mjs|cjs|js|ts|html|css|md|yml)$|(?:^|\/)(?:run|LICENSE)$/
  .test(name));

function offenders(names, pattern) {
  return names.flatMap((name) => read(name).split('\n')
    .flatMap((line, i) => pattern.test(line) ? [`${name}:${i + 1}: ${line.trim().slice(0, 100)}`] : []));
}

test('Highway is included by kernels, the thread seam and tests only', () => {
  const others = files.filter((name) => /\.(?:cc|h)$/.test(name)
    && !/^(?:cpp\/src\/kernels\/|cpp\/src\/parallel\.cc$|tests\/)/.test(name));
  assert.ok(others.length > 10);
  assert.deepEqual(offenders(others, /#\s*include\s*["<]hwy\//), []);
});

test('the oracle uses neither kernels nor vectors', () => {
  const oracle = files.filter((name) => /^cpp\/reference\//.test(name));
  assert.ok(oracle.length > 0);
  assert.deepEqual(offenders(oracle, /#\s*include\s*["<](?:hwy|kernels|immintrin|arm_neon|wasm_simd)/), []);
});

test('emcc flags stand in Wasm.cmake only', () => {
  const build = files.filter((name) => /\.cmake$|CMakeLists\.txt$|CMakePresets\.json$/.test(name)
    && !name.endsWith('/Wasm.cmake'));
  assert.deepEqual(offenders(build, /^[^#]*(?:-s[A-Z][A-Z_]{3,}|-msimd128|-lembind)/), []);
});

test('no absolute path of a machine and no package host in committed files', () => {
  const self = 'tests/lib/house.test.mjs';
  const names = texts.filter((name) => name !== self);
  assert.deepEqual(offenders(names, /(?<![\w.])\/(?:work|root|home\/\w+)\/\w/), []);
  assert.deepEqual(offenders(names, /registry\.npmjs|deb\.debian\.org|files\.pythonhosted/), []);
});
