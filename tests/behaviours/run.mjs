// npm run coverage:behaviours: every known failure of others, and every behaviour of public test suites, with the
// tests that show it here. A test shows it by carrying its id: in its title or that of its describe(), or in C++ in its
// name or in the comment right above it. Ids of lines are in lines.mjs, the issues that are done in issues.mjs.
//
//   --shared DIR   where the two lists are; default ../shared
//   --tests DIR    where the tests are; default tests
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { checkBehaviours } from './check.mjs';
import { LINES } from './lines.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const { values } = parseArgs({ options: { shared: { type: 'string' }, tests: { type: 'string' } } });
const { text, faults } = checkBehaviours({
  shared: resolve(values.shared ?? join(root, '../shared')),
  tests: resolve(values.tests ?? join(root, 'tests')),
  table: LINES,
});
console.log(text);
process.exitCode = faults.length > 0 ? 1 : 0;
