// The C++ library as a user builds it: downloaded sources at pinned hashes (from a local file:// archive, which stands
// in for the network), add_subdirectory, and an installed package.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { nativeCompiler } from '../../cpp/toolchain/compiler.mjs';
import { ROOT, buildDir } from '../../cpp/toolchain/paths.mjs';
import { ensureSources } from '../../cpp/toolchain/sources.mjs';

const runFile = promisify(execFile);
const CONSUMER = join(ROOT, 'tests/lib/consumer');
const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
let scratch;
let archive;
let hash;
let compiler;

before(async () => {
  scratch = mkdtempSync(join(tmpdir(), 'headwise-consumer-'));
  const { highway } = await ensureSources();
  compiler = await nativeCompiler();
  archive = join(scratch, 'highway.tar.gz');
  await runFile('tar', ['-czf', archive, '-C', join(highway, '..'), 'highway']);
  hash = createHash('sha256').update(readFileSync(archive)).digest('hex');
});
after(() => rmSync(scratch, { recursive: true, force: true }));

async function configure(name, ...args) {
  const dir = join(scratch, name);
  await runFile('cmake', ['-S', CONSUMER, '-B', dir, '-G', 'Ninja', '-DCMAKE_BUILD_TYPE=Debug',
    `-DCMAKE_CXX_COMPILER=${compiler}`, `-DMAIN=${join(CONSUMER, 'main.cc')}`, ...args]);
  return dir;
}

async function buildAndRun(dir) {
  await runFile('cmake', ['--build', dir], { maxBuffer: 1 << 26 });
  const { stdout } = await runFile(join(dir, 'consumer'));
  assert.match(stdout, new RegExp(`^headwise ${version.replaceAll('.', '\\.')} on \\w`));
}

const download = (sha) => [`-DHEADWISE_SOURCE=${ROOT}`, `-DHEADWISE_HIGHWAY_URL=${pathToFileURL(archive).href}`,
  `-DHEADWISE_HIGHWAY_HASH=${sha}`];

test('add_subdirectory downloads Highway, checks its hash, builds and runs', async () => {
  await buildAndRun(await configure('subdirectory', ...download(`SHA256=${hash}`)));
});

test('a wrong hash stops the configuration and says both hashes', async () => {
  const wrong = hash.replace(/^./, (digit) => digit === '0' ? '1' : '0');
  await assert.rejects(configure('wrong-hash', ...download(`SHA256=${wrong}`)), (error) => {
    const text = error.stderr + error.stdout;
    assert.match(text, new RegExp(wrong));
    assert.match(text, new RegExp(hash));
    return true;
  });
});

test('a malformed hash is refused', async () => {
  await assert.rejects(configure('no-algorithm', ...download(hash)), /wanted\s+ALGORITHM=hex/);
});

test('an archive that is not there stops the configuration', async () => {
  const missing = pathToFileURL(join(scratch, 'missing.tar.gz')).href;
  await assert.rejects(configure('missing', ...download(`SHA256=${hash}`), `-DHEADWISE_HIGHWAY_URL=${missing}`));
});

test('an installed library is found by find_package, without our headers of Highway', async () => {
  const prefix = join(scratch, 'prefix');
  await runFile('cmake', ['--install', buildDir('native'), '--prefix', prefix]);
  await buildAndRun(await configure('installed', `-DCMAKE_PREFIX_PATH=${prefix}`));
});
