// Which tests carry which ids.
import { readFileSync, readdirSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { idsOfName, testsOfCc } from './cc-tests.mjs';
import { titlesOfJs } from './js-tests.mjs';

/** Ids of rows (N-05) and of lines (masks/broadcast) in a title or a comment. */
const idsOfText = (text) => text.match(/(?<![\w/-])(?:[A-Z]-\d{2}|[a-z-]+\/[a-z-]+)(?![\w/-])/g) ?? [];

/** Every test file below a folder, as the suites name theirs. */
export function testFiles(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /(?:\.test\.(?:ts|mjs)|_test\.cc)$/.test(entry.name))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .filter((path) => !path.includes(`${sep}node_modules${sep}`))
    .sort();
}

function idsOfFile(path) {
  const source = readFileSync(path, 'utf8');
  if (!path.endsWith('.cc')) return titlesOfJs(source, path).flatMap(idsOfText);
  return testsOfCc(source).flatMap(({ name, comment }) => [...idsOfName(name), ...idsOfText(comment)]);
}

/** id → files whose tests carry it, their paths relative to `root`. */
export function carriedIds(files, root) {
  const carried = new Map();
  for (const path of files) {
    const name = relative(root, path).replaceAll(sep, '/');
    for (const id of new Set(idsOfFile(path))) carried.set(id, [...(carried.get(id) ?? []), name]);
  }
  return carried;
}
