// The runner itself: what it reads from reports, what it counts, and that it cannot be made to pass by silence.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { compareVersions } from '../../cpp/toolchain/emscripten.mjs';
import { SetupError, run } from '../../cpp/toolchain/log.mjs';
import { parseClosingLine, parseGtest, parseTap, parseVitest } from './parsers.mjs';
import { closingTable } from './table.mjs';

const dir = mkdtempSync(join(tmpdir(), 'headwise-runner-'));
after(() => rmSync(dir, { recursive: true, force: true }));

function report(value) {
  const reportFile = join(dir, 'report.json');
  writeFileSync(reportFile, JSON.stringify(value));
  return { reportFile };
}
const numbers = ({ passed, failed, skipped }) => [passed, failed, skipped];

test('GoogleTest: passed, failed, skipped, disabled', () => {
  const counts = parseGtest(report({ testsuites: [{ name: 'S', testsuite: [
    { name: 'a', status: 'RUN', result: 'COMPLETED' },
    { name: 'b', status: 'RUN', result: 'COMPLETED', failures: [{ failure: 'one is not two' }] },
    { name: 'c', status: 'RUN', result: 'SKIPPED', skipped: [{ message: 'f.cc:1\nno AVX3 here\n' }] },
    { name: 'd', status: 'NOTRUN', result: 'SUPPRESSED' },
  ] }] }));
  assert.deepEqual(numbers(counts), [1, 1, 2]);
  assert.match(counts.failures[0], /S\.b\none is not two/);
  assert.deepEqual(counts.reasons, ['S.c: no AVX3 here', 'S.d: disabled']);
});

test('Vitest: a file that does not load is a failure', () => {
  const counts = parseVitest(report({ testResults: [
    { name: 'x', status: 'passed', assertionResults: [{ status: 'passed' }, { status: 'skipped', fullName: 'later' }] },
    { name: 'y', status: 'failed', message: 'SyntaxError', assertionResults: [] },
    { name: 'z', status: 'failed', assertionResults: [{ status: 'failed', fullName: 'f', failureMessages: ['m'] }] },
  ] }));
  assert.deepEqual(numbers(counts), [1, 2, 1]);
});

test('a missing or broken report is an error, not zero tests', () => {
  assert.throws(() => parseGtest({ reportFile: join(dir, 'absent.json') }), /before it wrote its report/);
  const reportFile = join(dir, 'broken.json');
  writeFileSync(reportFile, '{');
  assert.throws(() => parseVitest({ reportFile }), /cannot be read/);
  assert.throws(() => parseTap({ output: 'TAP version 13\n' }), /before it reported/);
});

test('the closing line: the last one counts', () => {
  const counts = parseClosingLine({ output: 'kind a: 1 passed, 0 failed, 0 skipped\n3 passed, 1 failed, 2 skipped\n' });
  assert.deepEqual(numbers(counts), [3, 1, 2]);
  assert.deepEqual(numbers(parseClosingLine({ output: 'nothing here' })), [0, 0, 0]);
});

test('TAP: counts, cancelled ones have failed', () => {
  const output = 'ok 1 - a # SKIP no network\nnot ok 2 - b\n  ---\n  error: bad\n  ...\n# tests 4\n# pass 1\n# fail 1\n'
    + '# cancelled 1\n# skipped 1\n# todo 0\n';
  const counts = parseTap({ output });
  assert.deepEqual(numbers(counts), [1, 2, 1]);
  assert.deepEqual(counts.reasons, ['a: no network']);
  assert.match(counts.failures[0], /error: bad/);
});

test('the table sums every suite and says why something was skipped', () => {
  const { lines, total } = closingTable([
    { title: 'a', passed: 3, failed: 0, skipped: 1, reasons: ['S.c: no AVX3'] },
    { title: 'b', passed: 0, failed: 0, skipped: 0, absent: true, reasons: ['no folder'] },
    { title: 'c', passed: 0, failed: 2, skipped: 0 },
  ]);
  assert.equal(total, '3 passed, 2 failed, 1 skipped');
  assert.ok(lines.includes('    skipped: S.c: no AVX3') && lines.includes('    skipped: no folder'));
});

test('a failing program rejects with the end of its output and a cure; a missing one, too', async () => {
  const script = 'console.error("the cause"); process.exit(3)';
  await assert.rejects(run(process.execPath, ['-e', script], { cure: 'the cure' }),
    (error) => error instanceof SetupError && /exit code 3/.test(error.message) && /the cause/.test(error.message)
      && /cure: the cure/.test(error.message));
  await assert.rejects(run('no-such-program-here', []), /cannot start no-such-program-here/);
});

test('versions compare as numbers', () => {
  assert.ok(compareVersions('3.1.6', '3.1.69') < 0);
  assert.ok(compareVersions('6.0.5', '3.1.69') > 0);
  assert.equal(compareVersions('3.1.69', '3.1.69'), 0);
});
