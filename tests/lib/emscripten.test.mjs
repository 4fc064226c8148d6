// Which Emscripten is taken: the user's when it is new enough, never an old one.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { findInstalled } from '../../cpp/toolchain/emscripten.mjs';

const saved = { PATH: process.env.PATH, EMSDK: process.env.EMSDK };
let dir;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'headwise-emcc-test-'));
  process.env.PATH = `${join(dir, 'bin')}:/usr/bin:/bin`;
  delete process.env.EMSDK;
});
afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
  for (const [name, value] of Object.entries(saved)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
});

function program(path, body) {
  mkdirSync(join(path, '..'), { recursive: true });
  writeFileSync(path, `#!/bin/sh\n${body}\n`, { mode: 0o755 });
}
const says = (version) => `echo "emcc (Emscripten gcc/clang-like replacement + linker) ${version} (abc)"`;

function platformFile(root) {
  mkdirSync(join(root, 'cmake/Modules/Platform'), { recursive: true });
  writeFileSync(join(root, 'cmake/Modules/Platform/Emscripten.cmake'), '');
}

test('3.1.6, as Debian 12 has it, is passed over', async () => {
  program(join(dir, 'bin/emcc'), says('3.1.6'));
  platformFile(join(dir, 'bin'));
  assert.equal(await findInstalled(), undefined);
});

test('one that does not run is passed over', async () => {
  program(join(dir, 'bin/emcc'), 'exit 1');
  assert.equal(await findInstalled(), undefined);
});

test('3.1.69 on PATH is used, with the platform file beside it', async () => {
  const emcc = join(dir, 'bin/emcc');
  program(emcc, says('3.1.69'));
  platformFile(join(dir, 'bin'));
  assert.deepEqual(await findInstalled(), { emcc, version: '3.1.69', root: join(dir, 'bin') });
});

test('a wrapper on PATH is used with the root its emcmake names', async () => {
  const emcc = join(dir, 'bin/emcc');
  const root = join(dir, 'libexec');
  program(emcc, says('6.0.5-git'));
  program(join(dir, 'bin/emcmake'),
    `echo "configure: cmake -DCMAKE_TOOLCHAIN_FILE=${root}/cmake/Modules/Platform/Emscripten.cmake" >&2`);
  platformFile(root);
  assert.deepEqual(await findInstalled(), { emcc, version: '6.0.5', root });
});

test('an old one on PATH does not hide a new one under EMSDK', async () => {
  program(join(dir, 'bin/emcc'), says('3.1.6'));
  process.env.EMSDK = join(dir, 'emsdk');
  const root = join(dir, 'emsdk/upstream/emscripten');
  program(join(root, 'emcc'), says('4.0.10'));
  platformFile(root);
  assert.deepEqual(await findInstalled(), { emcc: join(root, 'emcc'), version: '4.0.10', root });
});
