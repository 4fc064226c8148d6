// npm test: sets up what is missing, runs every suite, closes with a table of counts.
//
//   npm test                          everything
//   npm test -- --only native,wasm    some suites
//   npm test -- --list                their names
//
// The exit code is 0 only if nothing failed and every suite that can run here ran something.
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SetupError, run, runMain, say, seconds, sinceStart } from '../cpp/toolchain/log.mjs';
import { ROOT } from '../cpp/toolchain/paths.mjs';
import { need } from './lib/prepare.mjs';
import { SUITES } from './lib/suites.mjs';
import { closingTable } from './lib/table.mjs';

const SUITE_TIMEOUT_MS = 30 * 60_000;
const SHOWN_FAILURES = 20;
const USAGE = 'usage: npm test -- [--only ID[,ID…]] [--list]';

function selectSuites(args) {
  const wanted = new Set();
  for (let i = 0; i < args.length; ++i) {
    const [flag, inline] = args[i].split(/=(.*)/s);
    if (flag !== '--only') throw new SetupError(`unknown argument ${args[i]}`, USAGE);
    const value = inline ?? args[++i];
    if (!value) throw new SetupError('--only names no suite', USAGE);
    for (const id of value.split(',')) {
      if (!SUITES.some((suite) => suite.id === id)) {
        throw new SetupError(`there is no suite "${id}"`, `use one of ${SUITES.map((s) => s.id).join(', ')}`);
      }
      wanted.add(id);
    }
  }
  return wanted.size ? SUITES.filter(({ id }) => wanted.has(id)) : SUITES;
}

const nothing = { passed: 0, failed: 0, skipped: 0, failures: [], reasons: [] };
const failure = (text) => ({ ...nothing, failed: 1, failures: [text] });

async function runSuite(suite, scratch) {
  const missing = suite.absent?.();
  if (missing) return { ...nothing, absent: true, reasons: [missing], note: 'not run' };
  for (const name of suite.needs) await need(name);
  const reportFile = join(scratch, `${suite.id}.json`);
  const [program, ...args] = suite.command(reportFile);
  const begun = Date.now();
  const { status, stdout, tail } = await run(program, args, {
    cwd: ROOT, env: { NO_COLOR: '1' }, topic: 'test', title: suite.title, allowFailure: true,
    timeoutMs: SUITE_TIMEOUT_MS,
    progress: suite.progress,
  });
  let counts;
  try {
    counts = suite.parse({ reportFile, output: stdout });
  } catch (error) {
    return failure(`${suite.title}: ${error.message} (exit code ${status}); its last lines:\n${tail}`);
  }
  counts.note = seconds(begun);
  if (counts.failed === 0 && status !== 0) {
    counts.failed = 1;
    counts.failures.push(`exit code ${status} although no test failed; its last lines:\n${tail}`);
  } else if (counts.passed + counts.failed === 0) {
    counts.failed = 1;
    counts.failures.push(`nothing ran; its last lines:\n${tail}`);
  }
  return counts;
}

async function main(args) {
  if (args.includes('--list')) {
    for (const { id, title } of SUITES) console.log(`${id.padEnd(20)} ${title}`);
    return 0;
  }
  const suites = selectSuites(args);
  const scratch = mkdtempSync(join(tmpdir(), 'headwise-test-'));
  mkdirSync(scratch, { recursive: true });
  const results = [];
  try {
    for (const suite of suites) {
      let counts;
      try {
        counts = await runSuite(suite, scratch);
      } catch (error) {
        counts = failure(error instanceof SetupError ? `cannot run: ${error.message}` : String(error.stack));
      }
      results.push({ title: suite.title, ...counts });
      say('test', `${suite.title}: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
      for (const text of counts.failures.slice(0, SHOWN_FAILURES)) console.log(text.replace(/^/gm, '    '));
      if (counts.failures.length > SHOWN_FAILURES) {
        console.log(`    … and ${counts.failures.length - SHOWN_FAILURES} more failures`);
      }
    }
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  const { lines, sum, total } = closingTable(results);
  console.log(`\n${lines.join('\n')}\n\nafter ${sinceStart()} in all:\n${total}`);
  return sum.failed || sum.passed === 0 ? 1 : 0;
}

await runMain(() => main(process.argv.slice(2)));
