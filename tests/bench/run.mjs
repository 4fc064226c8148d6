// npm run bench: builds what is measured, measures it in Node 24 (and in Chromium), prints the goals.
//
//   npm run bench                          everything, in Node 24
//   npm run bench -- --browser             and in Chromium
//   npm run bench -- --only masks          some sections
//   npm run bench -- --ids W1,W2           some workloads
//
// A whole run (no --only, no --ids) keeps its figures and writes RESULTS.md. Goals that are not met are no error.
import { say, runMain, seconds } from '../../cpp/toolchain/log.mjs';
import { parseArguments } from './arguments.mjs';
import { bundleSizes } from './bundle.mjs';
import { benchNode, openChromium, openNode } from './engines.mjs';
import { machine } from './machine.mjs';
import { median } from './measure.mjs';
import { benchMarkdown, keepResults } from './results.mjs';
import { SECTIONS } from './sections/index.mjs';
import { buildBench } from './wasm.mjs';
import { WORKLOADS } from './workloads.mjs';

const COLD_STARTS = 11;
const NAMES = [...Object.keys(SECTIONS), 'sizes', 'cold-start'];
const USAGE = `usage: npm run bench -- [--browser] [--only ${NAMES.join(',')}] [--ids W1,…]`;

async function coldStart(engine) {
  const times = [];
  for (let i = 0; i < COLD_STARTS; i += 1) times.push(await engine.coldStart());
  return median(times);
}

async function measureEngine(engine, sections, options, sizes) {
  const figures = {};
  for (const name of sections) {
    const begun = Date.now();
    if (name === 'sizes') figures[name] = sizes;
    else if (name === 'cold-start') figures[name] = await coldStart(engine);
    else figures[name] = await engine.measure(name, options);
    say('bench', `${engine.name}: ${name} in ${seconds(begun)}`);
  }
  return figures;
}

await runMain(async () => {
  const { browser, only, ids } = parseArguments(process.argv.slice(2),
    { flags: ['browser'], lists: { only: NAMES, ids: WORKLOADS.map(({ id }) => id) } }, USAGE);
  const sections = only ?? NAMES;
  await buildBench();
  const result = { machine: machine(), engines: {} };
  const sizes = await bundleSizes();
  for (const open of [async () => openNode(await benchNode()), ...(browser ? [openChromium] : [])]) {
    const engine = await open();
    try {
      result.engines[engine.name] = await measureEngine(engine, sections, { ids }, sizes);
    } finally {
      await engine.close();
    }
  }
  console.log(`\n${benchMarkdown(result)}`);
  if (!only && !ids) {
    const { json, markdown } = keepResults('bench', result);
    console.log(`\n[bench] figures in ${json}, table in ${markdown}`);
  }
});
