// Judges cases, wherever their bytes come from: nothing here is Node's, and pages run it, too.
import { Case, CaseError } from './case-file.mjs';
import { compare } from './compare.mjs';
import { KINDS } from './kinds.mjs';
import { leftOut } from './selection.mjs';

const PREFIX_ORDER = ['out', 'ref64', 'ref32', 'grad'];

/** Runs a case through one build: { worst }, or throws CaseError with what is wrong. */
function judge(testCase, api) {
  const adapter = KINDS.get(testCase.kind);
  if (!adapter) throw new CaseError(`there is no adapter for kind ${testCase.kind}`);
  const { tolerance } = testCase;
  const wanted = testCase.wanted();
  const results = adapter(testCase, api);
  const untouched = testCase.untouched();
  if (untouched.length) throw new CaseError(`the adapter does not handle ${untouched.join(', ')}`);
  let worst = 0;
  const problems = [];
  for (const { name, result, tensor } of wanted.sort(byPrefix)) {
    if (!Object.hasOwn(results, result)) throw new CaseError(`the adapter does not make ${name}`);
    const verdict = compare(results[result], tensor, tolerance);
    worst = Math.max(worst, verdict.worst);
    if (verdict.problem) problems.push(`${name}: ${verdict.problem}`);
  }
  if (problems.length) throw new CaseError(problems.join('\n'));
  return { worst };
}

function byPrefix(a, b) {
  const order = ({ name }) => PREFIX_ORDER.indexOf(name.split('.')[0]);
  return order(a) - order(b) || (a.name < b.name ? -1 : 1);
}

/**
 * Runs every selected case through every build; a case passes when it passes in each.
 * @param files  names of the cases
 * @param problems [{ file, problem }] of cases that cannot be run
 * @param read   (file) => its bytes
 * @param builds [{ name, api }]; api is the package, with parseSafetensors and with the `options` that choose the build
 * @param print  receives lines
 */
export function runCases({ files, problems, read, selection, builds, parseSafetensors, print, verbose = false }) {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  const skipped = new Map();
  const fail = (file, kind, text) => {
    counts.failed += 1;
    print(`FAILED ${file}${kind ? ` (${kind})` : ''}: ${text.replace(/\n/g, '\n    ')}`);
  };
  for (const { file, problem } of problems) fail(file, undefined, problem);
  for (const file of files) {
    let kind;
    try {
      let testCase = Case.read(file, read, parseSafetensors);
      ({ kind } = testCase);
      const reason = leftOut(selection, testCase);
      if (reason) {
        counts.skipped += 1;
        skipped.set(reason, (skipped.get(reason) ?? 0) + 1);
        continue;
      }
      const lines = [];
      let worst = 0;
      for (const { name, api } of builds) {
        try {
          worst = Math.max(worst, judge(testCase, api).worst);
        } catch (error) {
          // Whatever an unseen case makes the package or an adapter do, the others still run.
          lines.push(`[${name}] ${error instanceof CaseError ? error.message : describe(error)}`);
        }
        testCase = Case.read(file, read, parseSafetensors);
      }
      if (lines.length) {
        fail(file, kind, lines.join('\n'));
      } else {
        counts.passed += 1;
        if (verbose) {
          print(`passed ${file} (${kind}): worst element at ${(100 * worst).toFixed(1)} % of what is allowed`);
        }
      }
    } catch (error) {
      fail(file, kind, error instanceof CaseError ? error.message : describe(error));
    }
  }
  for (const [reason, count] of [...skipped].sort(([, a], [, b]) => b - a)) print(`skipped ${count}: ${reason}`);
  print(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
  return counts;
}

function describe(error) {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
