// Reads what test programs leave behind. Every parser returns
//   { passed, failed, skipped, failures: [text], reasons: [text] }
// or throws when there is nothing to read: a program that ended before it reported has failed, whatever its exit code.
import { existsSync, readFileSync } from 'node:fs';

const empty = () => ({ passed: 0, failed: 0, skipped: 0, failures: [], reasons: [] });

function readJson(path) {
  if (!existsSync(path)) throw new Error('it ended before it wrote its report');
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new Error(`its report cannot be read: ${error.message}`);
  }
}

/** GoogleTest's --gtest_output=json. */
export function parseGtest({ reportFile }) {
  const counts = empty();
  for (const suite of readJson(reportFile).testsuites ?? []) {
    for (const test of suite.testsuite ?? []) {
      const name = `${suite.name}.${test.name}`;
      if (test.failures?.length) {
        counts.failed += 1;
        counts.failures.push(`${name}\n${test.failures.map((f) => f.failure).join('\n')}`);
      } else if (test.status !== 'RUN' || test.result === 'SKIPPED') {
        counts.skipped += 1;
        const why = test.skipped?.map((s) => s.message.trim().split('\n').pop()).join(' ') || 'disabled';
        counts.reasons.push(`${name}: ${why}`);
      } else if (test.result === 'COMPLETED') {
        counts.passed += 1;
      } else {
        counts.failed += 1;
        counts.failures.push(`${name}: ended as ${test.result}`);
      }
    }
  }
  return counts;
}

/** Vitest's --reporter=json --outputFile. */
export function parseVitest({ reportFile }) {
  const counts = empty();
  for (const file of readJson(reportFile).testResults ?? []) {
    const tests = file.assertionResults ?? [];
    for (const test of tests) {
      if (test.status === 'passed') {
        counts.passed += 1;
      } else if (test.status === 'failed') {
        counts.failed += 1;
        counts.failures.push(`${test.fullName}\n${(test.failureMessages ?? []).join('\n')}`);
      } else {
        counts.skipped += 1;
        counts.reasons.push(`${test.fullName}: ${test.status}`);
      }
    }
    // A file that did not load has no tests to fail.
    if (file.status === 'failed' && !tests.some((test) => test.status === 'failed')) {
      counts.failed += 1;
      counts.failures.push(`${file.name}\n${file.message ?? ''}`);
    }
  }
  return counts;
}

/** The closing line `N passed, N failed, N skipped`; one that says why nothing ran counts as a reason. */
export function parseClosingLine({ output }) {
  const lines = output.trimEnd().split('\n');
  const matches = [...output.matchAll(/^.*?(\d+) passed, (\d+) failed, (\d+) skipped.*$/gm)];
  const counts = empty();
  if (matches.length === 0) {
    counts.reasons.push(lines.pop() || 'it said nothing');
    return counts;
  }
  const [, passed, failed, skipped] = matches.pop();
  Object.assign(counts, { passed: Number(passed), failed: Number(failed), skipped: Number(skipped) });
  counts.reasons.push(...lines.filter((line) => /^\s*skipped\b/i.test(line)).map((line) => line.trim()));
  if (counts.failed) counts.failures.push(lines.slice(-60).join('\n'));
  return counts;
}

/** The TAP report of Node's own test runner. */
export function parseTap({ output }) {
  const counts = empty();
  const sum = (word) => Number(new RegExp(`^# ${word} (\\d+)$`, 'm').exec(output)?.[1] ?? NaN);
  const [passed, failed, cancelled, skipped, todo] = ['pass', 'fail', 'cancelled', 'skipped', 'todo'].map(sum);
  if (Number.isNaN(passed) || Number.isNaN(failed)) throw new Error('it ended before it reported');
  Object.assign(counts, { passed, failed: failed + (cancelled || 0), skipped: (skipped || 0) + (todo || 0) });
  for (const [, name, why] of output.matchAll(/^\s*ok \d+ - (.*?) # SKIP ?(.*)$/gm)) {
    counts.reasons.push(`${name}: ${why || 'skipped'}`);
  }
  for (const [block] of output.matchAll(/^\s*not ok \d+ - [\s\S]*?^\s*\.\.\.$/gm)) counts.failures.push(block);
  return counts;
}
