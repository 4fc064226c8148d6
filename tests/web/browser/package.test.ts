// The packed files in Chromium: under a strict Content-Security-Policy, without isolation headers and without a
// bundler, they compute the numbers of Node. And the example with a worker, bundled.
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import * as headwise from 'headwise';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { packAndInstall } from '../../package/pack.mjs';
import { type PageServer, launchChromium, servePage } from './demo-harness.mjs';
import { compute } from './package-page/compute.js';

const execute = promisify(execFile);
const root = fileURLToPath(new URL('../../..', import.meta.url));
let packed: Awaited<ReturnType<typeof packAndInstall>>;
let browser: Browser;

beforeAll(async () => {
  [packed, browser] = await Promise.all([packAndInstall(), launchChromium()]);
});
afterAll(async () => {
  await browser?.close();
  packed?.remove();
});

/** Opens the page served from `folder`; collects complaints of the page and all requests. */
async function open(folder: string, use: (page: Page, requests: string[]) => Promise<void>): Promise<void> {
  const server: PageServer = await servePage(folder);
  const page = await browser.newPage();
  const [complaints, requests]: [string[], string[]] = [[], []];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
  page.on('request', (request) => requests.push(request.url()));
  try {
    await page.goto(server.url);
    await use(page, requests);
    // One is meant: the policy's own word on eval, and a 404 that was asked for.
    const unexpected = complaints.filter((text) => !/unsafe-eval|status of 404/.test(text));
    expect(unexpected).toEqual([]);
    expect(requests.filter((url) => !url.startsWith(server.origin) && !url.startsWith('data:'))).toEqual([]);
  } finally {
    await page.close();
    await server.close();
  }
}

interface PageResult {
  readonly error?: string;
  readonly variants: Record<'simd' | 'relaxed', { numbers: string[]; target: string }>;
  readonly report: headwise.RuntimeReport;
  readonly isolated: boolean;
  readonly missing: string;
  readonly html: string;
  readonly tensors: number[];
  readonly evalError: string;
}

test('Chromium computes what Node computes, under a policy without eval (L-06)', async () => {
  const folder = join(packed.consumer, 'page');
  cpSync(join(root, 'tests/web/browser/package-page'), folder, { recursive: true });
  cpSync(join(packed.consumer, 'node_modules/headwise'), join(folder, 'headwise'), { recursive: true });
  await open(folder, async (page, requests) => {
    await page.waitForFunction(() => 'result' in globalThis, undefined, { timeout: 60_000 });
    const result = await page.evaluate(() => (globalThis as unknown as { result: PageResult }).result);
    expect(result.error).toBeUndefined();
    expect([result.isolated, result.evalError]).toEqual([false, 'EvalError']);
    expect(result.report).toMatchObject({
      variant: 'relaxed',
      threads: 1,
      features: { simd: true, relaxedSimd: true },
    });
    expect(
      requests
        .filter((url) => url.endsWith('.wasm'))
        .map((url) => url.split('/').at(-1))
        .sort(),
    ).toEqual(['headwise.relaxed.wasm', 'headwise.simd.wasm', 'nothing.wasm']);
    expect(result.missing).toMatch(/^fetch: load\(\): .*nothing\.wasm answered status 404/);
    expect(result.html).toMatch(/^fetch: load\(\): .*index\.html answered status 200 with a page of HTML/);
    expect(result.tensors).toEqual([1, 2]);

    const want = compute(headwise, await headwise.load({ variant: 'simd' }));
    expect(want.length).toBeGreaterThan(50_000);
    expect(want.every((text) => text !== 'NaN')).toBe(true);
    // The simd build gives the same bits in every engine; relaxed SIMD rounds once where simd rounds twice.
    expect(result.variants.simd.target).toBe('WASM');
    expect(result.variants.simd.numbers.findIndex((text, i) => text !== want[i])).toBe(-1);
    expect(result.variants.relaxed.target).toBe('WASM+relaxed');
    const relaxed = result.variants.relaxed.numbers;
    expect(relaxed.length).toBe(want.length);
    const far = relaxed.findIndex((text, i) => text !== want[i] && !(Math.abs(Number(text) - Number(want[i])) < 1e-5));
    expect(far, `${relaxed[far]} against ${want[far]}`).toBe(-1);
  });
});

test('the example with a worker keeps the page going', async () => {
  const example = join(packed.consumer, 'worker');
  mkdirSync(example);
  cpSync(join(root, 'web/examples/worker'), example, { recursive: true });
  await execute(process.execPath, [join(root, 'node_modules/vite/bin/vite.js'), 'build', example, '--base', './']);
  await open(join(example, 'dist'), async (page) => {
    await page.waitForFunction(() => /begins/.test(document.getElementById('result')!.textContent!), undefined, {
      timeout: 60_000,
    });
    expect(await page.textContent('#result')).toMatch(
      /^attention of 4096 × 64 in \d+ ms, begins (-?\d\.\d{4}(, )?){3}; a wrong shape gives wrong-shape$/,
    );
    expect(Number(await page.textContent('#frames'))).toBeGreaterThan(2);
  });
});
