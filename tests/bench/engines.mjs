// Engines that sections run in: { name, measure(section, options), coldStart(), close() }.
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { say } from '../../cpp/toolchain/log.mjs';
import { ROOT } from '../../cpp/toolchain/paths.mjs';
import { ensureNode, nodeVersionsAbsent } from '../package/node-versions.mjs';
import { relaxedSimdFlags } from '../lib/relaxed-simd.mjs';
import { launchChromium, servePage } from '../web/browser/demo-harness.mjs';

const execute = promisify(execFile);
const BENCH = join(ROOT, 'tests/bench');
/** Modules compile, peers make functions and workers of text. */
export const PAGE_POLICY = "default-src 'self' blob: data: 'unsafe-eval' 'unsafe-inline'";

/** Node 24, or the running one where that cannot be had: { path, flags }. */
export async function benchNode() {
  const absent = nodeVersionsAbsent();
  if (!absent) return { path: await ensureNode(24), flags: [] };
  say('bench', `${absent}; measuring in Node ${process.versions.node}`);
  return runningNode();
}

export const runningNode = () => ({ path: process.execPath, flags: relaxedSimdFlags });

export async function openNode({ path, flags }) {
  const { stdout: version } = await execute(path, ['--version']);
  const json = async (script, args) => {
    const { stdout } = await execute(path, [...flags, join(BENCH, script), ...args], { maxBuffer: 1 << 26 });
    return JSON.parse(stdout);
  };
  return {
    name: `Node ${version.trim().slice(1)}`,
    measure: (section, options) => json('engine-node.mjs', [section, JSON.stringify(options)]),
    coldStart: async () => (await json('cold-start.mjs', [])).ms,
    close: async () => {},
  };
}

export async function openChromium() {
  const [browser, server] = [await launchChromium(), await servePage(ROOT, PAGE_POLICY)];
  const inPage = async (file, use) => {
    // A context of its own: nothing is compiled or cached yet.
    const context = await browser.newContext();
    try {
      const page = await context.newPage();
      await page.goto(`${server.url}tests/bench/page/${file}`);
      return await use(page);
    } finally {
      await context.close();
    }
  };
  return {
    name: `Chromium ${browser.version()}`,
    measure: (section, options) => inPage('index.html', async (page) => {
      await page.waitForFunction(() => 'measure' in globalThis);
      return page.evaluate(([name, more]) => globalThis.measure(name, more), [section, options]);
    }),
    coldStart: () => inPage('cold-start.html', async (page) => {
      await page.waitForFunction(() => 'coldStart' in globalThis);
      return page.evaluate(() => globalThis.coldStart);
    }),
    async close() {
      await browser.close();
      await server.close();
    },
  };
}
