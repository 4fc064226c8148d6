// The whole of it: lists and tests in, text and the number of faults out.
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { carriedIds, testFiles } from './carried.mjs';
import { coverage } from './coverage.mjs';
import { ISSUES, ISSUE_OF_LINES } from './issues.mjs';
import { readLines, readRows } from './lists.mjs';
import { reportLines } from './report.mjs';

/** Folders of the lists and of the tests, and our table of lines. Gives { text, faults }. */
export function checkBehaviours({ shared, tests, table }) {
  const lists = [join(shared, 'known-failures.md'), join(shared, 'conformance/BEHAVIOURS.md')];
  const missing = lists.filter((path) => !existsSync(path));
  if (missing.length === lists.length) {
    const why = 'not run: the lists of behaviours (../shared) are not beside this clone';
    return { text: `${why}\n0 passed, 0 failed, 0 skipped`, faults: [] };
  }
  if (missing.length > 0) throw new Error(`${missing[0]} is missing, although the other list is there`);
  const [rows, lines] = [readRows, readLines].map((read, i) => read(readFileSync(lists[i], 'utf8')));
  if (rows.length === 0 || lines.length === 0) throw new Error(`nothing to read in ${lists.join(' or ')}`);
  const carried = carriedIds(testFiles(tests), dirname(tests));
  const result = coverage({ rows, lines, table, carried, issues: ISSUES, issueOfLines: ISSUE_OF_LINES });
  return { text: reportLines(result, table).join('\n'), faults: result.faults };
}
