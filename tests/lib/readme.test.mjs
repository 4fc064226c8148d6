// README's examples are run as they stand there, and its tables name what exists.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { nativeCompiler } from '../../cpp/toolchain/compiler.mjs';
import { BUILD, ROOT, buildDir } from '../../cpp/toolchain/paths.mjs';

const runFile = promisify(execFile);
const README = readFileSync(join(ROOT, 'README.md'), 'utf8');

/** [{ code, line, heading }] of the blocks of one language. */
function blocksOf(language) {
  const fence = /^```(\w*)\n([^]*?)^```$/gm;
  return [...README.matchAll(fence)].filter((match) => match[1] === language).map(({ 2: code, index }) => {
    const before = README.slice(0, index).split('\n');
    const heading = before.findLast((text) => /^#+ /.test(text)).replace(/^#+ /, '');
    return { code, line: before.length + 1, heading };
  });
}

// Every block is a module of its own, in order, in a folder where "headwise" means this very package. One that begins
// with a file's name in a comment has that name, so that others find it. What console.log() prints stands behind it as
// a comment.
const examples = blocksOf('js').map((block, n) => ({
  ...block,
  name: /^\/\/ ([\w-]+\.js)$/m.exec(block.code.split('\n')[0])?.[1] ?? `example-${n + 1}.js`,
  printed: [...block.code.matchAll(/^ *console\.log\(.*\); \/\/ (.*)$/gm)].map(([, text]) => text),
}));
const folder = join(BUILD, 'readme');
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
for (const { name, code } of examples) writeFileSync(join(folder, name), code);

test('README has examples, each of its own', () => {
  assert.ok(examples.length > 5);
  assert.equal(new Set(examples.map(({ name }) => name)).size, examples.length);
  assert.ok(examples.filter(({ printed }) => printed.length > 0).length > 5);
});

for (const { name, code, line, heading, printed } of examples) {
  test(`the example in README line ${line}, ${heading}`, async () => {
    const logs = code.match(/console\.log\(/g)?.length ?? 0;
    assert.equal(printed.length, logs, 'what a console.log() prints stands behind it');
    const workers = new URL('web-worker.mjs', import.meta.url).href;
    const { stdout } = await runFile(process.execPath, ['--import', workers, join(folder, name)], { timeout: 60_000 });
    assert.deepEqual(stdout.split('\n').slice(0, -1), printed);
  });
}

test('the C++ quick start', async () => {
  const scratch = mkdtempSync(join(tmpdir(), 'headwise-readme-'));
  try {
    const main = join(scratch, 'main.cc');
    writeFileSync(main, blocksOf('cpp')[0].code);
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

const TITLES = /^\| (?:there|build|layer option|call option) \|/;
/** The cells of the tables below a heading, without the rows of titles. */
function cellsBelow(heading) {
  const section = new RegExp(`^#+ ${heading}$([^]*?)(?=^## |(?![^]))`, 'm').exec(README);
  assert.ok(section, `README has no heading ${heading}`);
  return section[1].split('\n').filter((line) => line.startsWith('| ') && !TITLES.test(line))
    .map((line) => line.split(/(?<!\\)\|/).slice(1, -1).map((cell) => cell.trim()));
}

/** Names in a cell's code. */
const namesIn = (cell) => [...cell.matchAll(/`([^`]+)`/g)]
  .flatMap(([, code]) => code.replaceAll(/'[^']*'/g, '').match(/[A-Za-z]\w{2,}/g) ?? []);

test('the names in the tables are those of the package', () => {
  const dist = join(ROOT, 'web/dist');
  const types = readdirSync(dist).filter((name) => name.endsWith('.d.ts'))
    .map((name) => readFileSync(join(dist, name), 'utf8').replaceAll(/\/\*[^]*?\*\//g, ''));
  const known = new Set(types.join('\n').match(/\w+/g));
  const ours = [
    ...cellsBelow('The package').map(([name]) => name),
    ...cellsBelow('Coming from .*').map(([, here]) => here),
  ];
  const names = ours.flatMap(namesIn);
  assert.ok(names.length > 100, `${names.length} names`);
  assert.deepEqual([...new Set(names.filter((name) => !known.has(name)))], []);
});

test('every option of a layer and of a call stands in the tables', () => {
  const listed = new Set(cellsBelow('The package').flatMap(([name]) => namesIn(name)));
  const optionsOf = (file, name) => {
    const source = readFileSync(join(ROOT, 'web/src', file), 'utf8');
    const body = new RegExp(`interface ${name}[^{]*{([^]*?)^}`, 'm').exec(source);
    return [...body[1].matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, option]) => option);
  };
  const options = [
    ...optionsOf('layer-options.ts', 'MultiHeadAttentionOptions'),
    ...optionsOf('forward-options.ts', 'ForwardOptions'),
    ...optionsOf('layer-call-options.ts', 'LayerForwardOptions'),
  ];
  assert.ok(options.length > 45);
  // Which runtime is said where load() is.
  assert.deepEqual(options.filter((option) => option !== 'runtime' && !listed.has(option)), []);
});
