// Every engine the package is compared in: { name, isPage, absent(), open() }. `absent` says why it cannot be had here.
// What open() gives has run(job, url), which resolves to the result of that job of page/jobs.js, and close().
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import puppeteer from 'puppeteer-core';
import { relaxedSimdFlags } from '../../lib/relaxed-simd.mjs';
import { NODE_VERSIONS, ensureNode, nodeVersionsAbsent } from '../../package/node-versions.mjs';
import { launchChromium } from '../browser/demo-harness.mjs';
import { ensureFirefox, firefoxAbsent, webKitAbsent } from '../browsers.mjs';
import { launchWebKit } from './webkit.mjs';

const execute = promisify(execFile);
const JOB_MS = 90_000;

const isRunning = (major) => process.versions.node.startsWith(`${major}.`);

const node = (major) => ({
  name: `Node ${major}`,
  isPage: false,
  absent: () => (isRunning(major) ? undefined : nodeVersionsAbsent()),
  async open() {
    const path = await ensureNode(Number(major));
    // Flags of the running version; the others have none for WebAssembly that they would need.
    const flags = isRunning(major) ? relaxedSimdFlags : [];
    const script = fileURLToPath(new URL('page/node.mjs', import.meta.url));
    return {
      async run(job) {
        const { stdout } = await execute(path, [...flags, script, job], { maxBuffer: 1 << 26, timeout: JOB_MS });
        return JSON.parse(stdout);
      },
      close: async () => {},
    };
  },
});

/** Asks the page until it has a result: each browser has waiting of its own, and all have this. */
async function resultOf(evaluate) {
  for (const end = Date.now() + JOB_MS; Date.now() < end;) {
    const text = await evaluate('JSON.stringify(globalThis.result ?? null)');
    if (text !== 'null') return JSON.parse(text);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`the page gave no result in ${JOB_MS / 1000} s`);
}

const address = (url, job) => `${url}tests/web/engines/page/index.html?${job}`;

/** A browser that opens pages, whichever library drives it. */
const pagesOf = (browser) => ({
  async run(job, url) {
    const page = await browser.newPage();
    await page.goto(address(url, job));
    const result = await resultOf((expression) => page.evaluate(expression));
    await page.close();
    return result;
  },
  close: () => browser.close(),
});

const chromium = {
  name: 'Chromium',
  isPage: true,
  // The browser tests cannot do without it.
  absent: () => undefined,
  async open() {
    const browser = await launchChromium();
    return pagesOf(browser);
  },
};

const firefox = {
  name: 'Firefox',
  isPage: true,
  absent: firefoxAbsent,
  async open() {
    const executablePath = await ensureFirefox();
    const browser = await puppeteer.launch({ browser: 'firefox', executablePath, headless: true });
    return pagesOf(browser);
  },
};

const webKit = {
  name: 'WebKitGTK',
  isPage: true,
  absent: webKitAbsent,
  async open() {
    const browser = await launchWebKit();
    return {
      async run(job, url) {
        await browser.goTo(address(url, job));
        return resultOf((expression) => browser.evaluate(`return ${expression}`));
      },
      close: () => browser.close(),
    };
  },
};

export const ENGINES = [...Object.keys(NODE_VERSIONS).map(node), chromium, firefox, webKit];
