// README's two quick starts are run as they stand there.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { nativeCompiler } from '../../cpp/toolchain/compiler.mjs';
import { BUILD, ROOT, buildDir } from '../../cpp/toolchain/paths.mjs';

const runFile = promisify(execFile);
const README = readFileSync(join(ROOT, 'README.md'), 'utf8');

function firstBlock(language) {
  const block = new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\`$`, 'm').exec(README);
  assert.ok(block, `README has no block of ${language}`);
  return block[1];
}

test('the JavaScript quick start', async () => {
  // Inside the package, where "headwise" means this very package.
  const file = join(BUILD, 'readme/quick-start.mjs');
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, firstBlock('js'));
  const { stdout } = await runFile(process.execPath, [file]);
  assert.match(stdout, /\[ 5, 8 \] \[ 2, 5, 5 \]/);
});

test('the C++ quick start', async () => {
  const scratch = mkdtempSync(join(tmpdir(), 'headwise-readme-'));
  try {
    const main = join(scratch, 'main.cc');
    writeFileSync(main, firstBlock('cpp'));
    const prefix = join(scratch, 'prefix');
    await runFile('cmake', ['--install', buildDir('native'), '--prefix', prefix]);
    const dir = join(scratch, 'build');
    await runFile('cmake', ['-S', join(ROOT, 'tests/lib/consumer'), '-B', dir, '-G', 'Ninja', `-DMAIN=${main}`,
      `-DCMAKE_CXX_COMPILER=${await nativeCompiler()}`, `-DCMAKE_PREFIX_PATH=${prefix}`]);
    await runFile('cmake', ['--build', dir], { maxBuffer: 1 << 26 });
    const { stdout } = await runFile(join(dir, 'consumer'));
    assert.match(stdout, /^[A-Z][A-Z0-9_]+\n$/, 'the name of the instruction set');
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
});

test('links within the repository lead somewhere', () => {
  const links = [...README.matchAll(/\]\((?!https?:|#)([^)\s]+)\)/g)].map(([, link]) => link);
  assert.ok(links.length > 3);
  for (const link of links) assert.ok(existsSync(join(ROOT, link)), `README links to ${link}`);
  const headings = [...README.matchAll(/^#+ (.*)$/gm)].map(([, text]) =>
    text.toLowerCase().replaceAll(/[^\w -]/g, '').replaceAll(' ', '-'));
  for (const [, anchor] of README.matchAll(/\]\(#([^)]+)\)/g)) assert.ok(headings.includes(anchor), `#${anchor}`);
});
