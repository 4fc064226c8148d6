// npm run bench:peers: our package beside others, in Node 24 and in Chromium, one thread. They are installed into
// tests/bench/peers, each is verified against the float64 reference, and they take turns.
//
//   npm run bench:peers                        everything
//   npm run bench:peers -- --only node         one engine: node or chromium
//   npm run bench:peers -- --ids W1,W8         some workloads
//   npm run bench:peers -- --peers jax-js      some peers, beside us
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { runMain, say, seconds } from '../../cpp/toolchain/log.mjs';
import { ensureNodeModules } from '../../cpp/toolchain/node-modules.mjs';
import { ROOT } from '../../cpp/toolchain/paths.mjs';
import { parseArguments } from './arguments.mjs';
import { benchNode } from './engines.mjs';
import { machine } from './machine.mjs';
import { PEERS } from './peers/index.mjs';
import { keepResults, peersMarkdown } from './results.mjs';
import { contest } from './seats/contest.mjs';
import { chromiumHall, nodeHall } from './seats/halls.mjs';
import { SlowPeers } from './seats/slow.mjs';
import { buildBench } from './wasm.mjs';
import { WORKLOADS, flop } from './workloads.mjs';

const FOLDER = join(ROOT, 'tests/bench/peers');
const OURS = 'headwise';
const USAGE = 'usage: npm run bench:peers -- [--only node,chromium] [--ids W1,…] [--peers NAME,…]';
/** In all. What is left when an engine's share is over is not measured, and the run says so. */
const MOST_MS = 19 * 60_000;

async function openNodeHall() {
  const node = await benchNode();
  return nodeHall(node, `Node ${execFileSync(node.path, ['--version'], { encoding: 'utf8' }).trim().slice(1)}`);
}

const HALLS = { node: openNodeHall, chromium: chromiumHall };

const versions = () => Object.fromEntries(Object.keys(JSON.parse(readFileSync(join(FOLDER, 'package.json'))).dependencies)
  .map((name) => [name, JSON.parse(readFileSync(join(FOLDER, 'node_modules', name, 'package.json'))).version]));

async function measureHall(hall, names, workloads, until) {
  const figures = {};
  const slow = new SlowPeers();
  // From small to large: who is far too slow on a small one is not asked for more.
  for (const { id } of [...workloads].sort((a, b) => flop(a) - flop(b))) {
    if (Date.now() > until) {
      say('peers', `${hall.name}: no time left for ${id}`);
      continue;
    }
    const begun = Date.now();
    figures[id] = await contest(hall, names, id, slow);
    const line = Object.entries(figures[id]).map(([name, { ms, why, variant }]) =>
      (ms === undefined ? `${name}: ${why}` : `${name} ${ms.toPrecision(3)} ms (${variant})`)).join('; ');
    say('peers', `${hall.name}, ${id} in ${seconds(begun)}: ${line}`);
  }
  return figures;
}

await runMain(async () => {
  const { only = Object.keys(HALLS), ids, peers } = parseArguments(process.argv.slice(2), {
    lists: { only: Object.keys(HALLS), ids: WORKLOADS.map(({ id }) => id), peers: Object.keys(PEERS) },
  }, USAGE);
  await buildBench();
  await ensureNodeModules(FOLDER);
  const names = peers ? [...new Set([OURS, ...peers])] : Object.keys(PEERS);
  const workloads = WORKLOADS.filter(({ id }) => !ids || ids.includes(id));
  const result = { machine: machine(), versions: versions(), engines: {} };
  const end = Date.now() + MOST_MS;
  for (const [i, engine] of only.entries()) {
    const hall = await HALLS[engine]();
    const until = Date.now() + (end - Date.now()) / (only.length - i);
    try {
      result.engines[hall.name] = await measureHall(hall, names, workloads, until);
    } finally {
      await hall.close();
    }
  }
  console.log(`\n${peersMarkdown(result)}`);
  if (!ids && !peers && only.length === Object.keys(HALLS).length) {
    const { json, markdown } = keepResults('peers', result);
    console.log(`\n[peers] figures in ${json}, table in ${markdown}`);
  }
});
