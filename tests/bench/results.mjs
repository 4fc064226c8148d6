// Keeps the figures of the last whole runs, and writes RESULTS.md from them.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BUILD, ROOT } from '../../cpp/toolchain/paths.mjs';
import { goalsOf } from './goals.mjs';
import { machineLine } from './machine.mjs';
import { peerGoals, peerTables } from './peers/tables.mjs';
import { goalTable, sectionTables } from './tables.mjs';

const FOLDER = join(BUILD, 'bench');
const RESULTS = join(ROOT, 'tests/bench/RESULTS.md');
const path = (name) => join(FOLDER, `${name}.json`);
const read = (name) => (existsSync(path(name)) ? JSON.parse(readFileSync(path(name), 'utf8')) : undefined);

/** Markdown of a run of `npm run bench`: { machine, engines: { name: figures } }. */
export const benchMarkdown = ({ machine, engines }) => [
  machineLine(machine),
  ...Object.entries(engines).flatMap(([engine, figures]) => [`### ${engine}`, ...sectionTables(figures), 'Goals:',
    goalTable(goalsOf(engine, figures))]),
].join('\n\n');

/** Markdown of a run of `npm run bench:peers`. */
export const peersMarkdown = ({ machine, versions, engines }) => [
  machineLine(machine),
  `Versions: ${Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(', ')}.`,
  ...Object.entries(engines).flatMap(([engine, figures]) => [`### ${engine}, one thread`, ...peerTables(figures),
    'Goals:', goalTable(peerGoals(engine, figures))]),
].join('\n\n');

/** Keeps `figures` as the last whole run of `name` ('bench' or 'peers'), as JSON, and writes RESULTS.md. */
export function keepResults(name, figures) {
  mkdirSync(FOLDER, { recursive: true });
  writeFileSync(path(name), JSON.stringify(figures, null, 2));
  const [bench, peers] = [read('bench'), read('peers')];
  writeFileSync(RESULTS, `${[
    '# Results',
    'Written by `npm run bench -- --browser` and `npm run bench:peers`; ratios within one run count, milliseconds are of'
      + ' this machine. GFLOP/s are 2·m·n·k of every matrix product, causal counted as full.',
    ...(bench ? ['## Headwise and the engine', benchMarkdown(bench)] : []),
    ...(peers ? ['## Beside peers', peersMarkdown(peers)] : []),
  ].join('\n\n')}\n`);
  return { json: path(name), markdown: RESULTS };
}
