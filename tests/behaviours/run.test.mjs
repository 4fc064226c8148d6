// The script itself, on small made-up lists and tests: that it finds what carries an id, and fails on what only seems to.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import vitestConfig from '../vitest.config.mjs';
import { testFiles } from './carried.mjs';
import { checkBehaviours } from './check.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const scratch = mkdtempSync(join(tmpdir(), 'headwise-behaviours-'));
after(() => rmSync(scratch, { recursive: true, force: true }));

const ROWS = `| id | issue | what |
|---|---|---|
| N-01 | Foundation | one |
| N-02 | Semantics | two |
| P-01 | Limit | three |
`;
const LINES = 'Sources.\n\n- masks: a mask hides [K]\n- dropout: none [K]\n';
const TABLE = [
  { id: 'masks/hides', line: 'masks: a mask hides [K]', differs: 'it hides more' },
  { id: 'dropout/none', line: 'dropout: none [K]', notForward: 'no dropout' },
];
const CC = 'TEST(Suite, N01Name) {\n  EXPECT_TRUE(true);\n}\n';
const CC_COMMENT = '// Of N-02.\nTEST(Suite, Name) {\n  EXPECT_TRUE(true);\n}\n';
const JS = "it('hides (masks/hides)', () => { check(); });";
let count = 0;

/** What the script says, for lists and for tests by file name. */
function run(tests, { rows = ROWS, lines = LINES, table = TABLE } = {}) {
  const folder = join(scratch, String(count++));
  const files = {
    'shared/known-failures.md': rows,
    'shared/conformance/BEHAVIOURS.md': lines,
    ...Object.fromEntries(Object.entries(tests).map(([name, text]) => [`tests/${name}`, text])),
  };
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  const { text, faults } = checkBehaviours({ shared: join(folder, 'shared'), tests: join(folder, 'tests'), table });
  return { folder, text, faults, last: text.split('\n').at(-1) };
}

/** The script as a program. */
function start(script, ...flags) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...flags], { encoding: 'utf8' });
  return { status, stdout, stderr };
}
const SCRIPT = fileURLToPath(new URL('run.mjs', import.meta.url));

const good = { 'cpp/a_test.cc': CC, 'cpp/c_test.cc': CC_COMMENT, 'web/b.test.ts': JS };

test('all there: no fault, a table by issue, what differs and what waits', () => {
  const { text, faults, last } = run(good);
  assert.deepEqual(faults, []);
  assert.equal(last, '3 passed, 0 failed, 1 skipped');
  assert.match(text, /^Foundation: 1 of 1 have a test\n {2}N-01 +tests\/cpp\/a_test\.cc$/m);
  assert.match(text, /^ {2}masks\/hides +tests\/web\/b\.test\.ts$/m);
  assert.match(text, /^Limit: 0 of 1 have a test, waiting for its issue\n {2}P-01 +-$/m);
  assert.match(text, /^ {2}masks\/hides +it hides more$/m);
  assert.match(text, /^ {2}dropout\/none +no dropout$/m);
});

test('a later issue shows the tests that are there already', () => {
  const { text, faults, last } = run({ ...good, 'web/p.test.ts': "test('P-01', () => { check(); });" });
  assert.deepEqual(faults, []);
  assert.match(text, /^ {2}P-01 +tests\/web\/p\.test\.ts$/m);
  assert.equal(last, '3 passed, 0 failed, 1 skipped');
});

/** Each of these instead of the good JavaScript test: none carries the id. */
const SEEMING = {
  'no test at all': '',
  'a comment': "// masks/hides\nit('hides', () => { check(); });",
  'a mention in a body': "it('hides', () => { check('masks/hides'); });",
  'another call': "note('hides (masks/hides)', () => { check(); });",
  'part of a longer id': "it('xmasks/hides, masks/hides/more, see/masks/hides', () => { check(); });",
  skip: "it.skip('masks/hides', () => { check(); });",
  todo: "it.todo('masks/hides');",
  'todo by leaving the body away': "test('masks/hides');",
  fails: "test.fails('masks/hides', () => { check(); });",
  'a condition': "test.skipIf(true)('masks/hides', () => { check(); });",
  'skip as an option': "test('masks/hides', { skip: true }, () => { check(); });",
  'todo as an option': "test('masks/hides', { todo: 'soon' }, () => { check(); });",
  'skip inside': "test('masks/hides', (t) => { t.skip('not here'); check(); });",
  'an empty body': "test('masks/hides', () => {});",
  'a group without tests': "describe('masks/hides', () => { const x = 1; });",
  'a group of skipped tests': "describe('masks/hides', () => { it.skip('a', () => { check(); }); });",
  'a skipped group': "describe.skip('of all', () => { it('masks/hides', () => { check(); }); });",
  'an empty table': "test.each([])('masks/hides %s', () => { check(); });",
};
for (const [name, text] of Object.entries(SEEMING)) {
  test(`JavaScript, not counted: ${name}`, () => {
    const got = run({ ...good, 'web/b.test.ts': text });
    assert.deepEqual(got.faults, ['Semantics: no test carries masks/hides: masks: a mask hides [K]']);
    assert.match(got.text, /^ {2}masks\/hides +NO TEST$/m);
    assert.equal(got.last, '2 passed, 1 failed, 1 skipped');
  });
}

const CARRYING = {
  each: "test.each([1, 2])('masks/hides %d', () => { check(); });",
  'rows of a table': "test.each([['masks/hides', 1] as const, ['other', 2]])('%s', () => { check(); });",
  'rows of a named table': "const T: Row[] = [['masks/hides', 1]];\ntest.each<Row>(T)('%s', () => { check(); });",
  'a template': 'it(`${name}: masks/hides`, () => { check(); });',
  'a title in parts': "it('a title of some ' + 'length (masks/hides)', () => { check(); });",
  'a group': "describe.each(ALL)('%s (masks/hides)', () => { describe('of', () => { it('a', () => check()); }); });",
  'an option': "test('masks/hides', { timeout: 5, skip: false }, () => { check(); });",
};
for (const [name, text] of Object.entries(CARRYING)) {
  test(`JavaScript, counted: ${name}`, () => assert.deepEqual(run({ ...good, 'web/b.test.ts': text }).faults, []));
}

const SEEMING_CC = {
  'an id further on in the name': CC.replace('N01Name', 'NameN01'),
  'a comment with a line between': `// N-01\n\n${CC.replace('N01Name', 'Name')}`,
  'a comment in the body': CC.replace('N01Name', 'Name').replace('EXPECT', '// N-01\n  EXPECT'),
  'a disabled test': CC.replace('N01Name', 'DISABLED_N01Name'),
  'a skipped test': CC.replace('EXPECT_TRUE(true)', 'GTEST_SKIP() << 1'),
  'an empty test': CC.replace('\n  EXPECT_TRUE(true);\n', ''),
  'a test that is commented out': CC.replace(/^/gm, '// '),
  'a test left out by the preprocessor': `#if 0\n${CC}#endif\n`,
};
for (const [name, text] of Object.entries(SEEMING_CC)) {
  test(`C++, not counted: ${name}`, () => {
    const { faults } = run({ ...good, 'cpp/a_test.cc': text });
    assert.deepEqual(faults, ['Foundation: no test carries N-01: one']);
  });
}

test('C++, counted: several ids in a name, on several lines', () => {
  const text = '//\nTEST_P(\n    Suite,\n    N01N02Name) {\n  EXPECT_TRUE(true);\n}\n';
  assert.deepEqual(run({ ...good, 'cpp/a_test.cc': text }).faults, []);
});

test('lists and table must agree', () => {
  const fault = (options, pattern, tests = good) => {
    assert.match(run(tests, options).faults.join('\n'), pattern);
  };
  const changed = LINES.replace('hides', 'shows');
  fault({ lines: changed }, /no id for this line, new or changed: masks: a mask shows \[K\]/);
  fault({ lines: changed }, /masks\/hides stands for a line that is gone or changed: masks: a mask hides \[K\]/);
  fault({ rows: ROWS.replace('Foundation', 'Fundament') }, /N-01 names an unknown issue: Fundament/);
  fault({ table: [...TABLE, TABLE[0]] }, /masks\/hides is there twice/);
  fault({}, /N-09 in tests\/web\/c\.test\.ts is on no list/, {
    ...good,
    'web/c.test.ts': "it('N-09', () => { f(); });",
  });
});

test('lists with nothing in them, and half of the lists, are errors', () => {
  assert.throws(() => run(good, { rows: '# nothing\n' }), /nothing to read/);
  const half = join(scratch, 'half');
  mkdirSync(half);
  writeFileSync(join(half, 'known-failures.md'), ROWS);
  const { status, stderr } = start(SCRIPT, '--shared', half);
  assert.match(stderr, /BEHAVIOURS\.md is missing/);
  assert.equal(status, 1);
});

test('the program ends with 1 when something is missing', () => {
  const { folder } = run(good);
  const { status, stdout } = start(SCRIPT, '--shared', join(folder, 'shared'), '--tests', join(folder, 'tests'));
  assert.equal(status, 1, 'our own table of lines has ids that these lists have not');
  assert.match(stdout, /stands for a line that is gone or changed/);
  assert.match(stdout, /^\d+ passed, \d+ failed, 1 skipped$/m);
});

test('a clone without the lists says so and is not a failure', () => {
  const { status, stdout } = start(SCRIPT, '--shared', join(scratch, 'nowhere'));
  assert.match(stdout, /^not run: .* not beside this clone\n0 passed, 0 failed, 0 skipped\n$/);
  assert.equal(status, 0);
});

test('every file with tests in TypeScript is run by a suite', () => {
  const globs = vitestConfig.test.projects.flatMap(({ test: { include } }) => include);
  const patterns = globs.map((glob) => new RegExp(`^${glob.replaceAll('.', '\\.').replaceAll('*', '[^/]*')}$`));
  const files = testFiles(join(root, 'tests')).filter((path) => path.endsWith('.ts'));
  assert.ok(files.length > 10);
  for (const path of files) {
    const name = relative(root, path).replaceAll('\\', '/');
    assert.ok(
      patterns.some((pattern) => pattern.test(name)),
      `no project of tests/vitest.config.mjs includes ${name}`,
    );
  }
});
