// The packed files in a browser extension of manifest version 3 (known failure L-06): its pages and its service worker
// run under a policy that forbids making code from strings, and nothing can relax it.
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { packAndInstall } from '../../package/pack.mjs';
import { chromiumOptions } from './demo-harness.mjs';

let packed: Awaited<ReturnType<typeof packAndInstall>>;

beforeAll(async () => {
  packed = await packAndInstall();
});
afterAll(() => packed?.remove());

/** Chromium names an unpacked extension after the path of its folder. */
function extensionId(folder: string): string {
  const digest = createHash('sha256').update(folder).digest('hex').slice(0, 32);
  return [...digest].map((digit) => 'abcdefghijklmnop'[parseInt(digit, 16)]).join('');
}

test('an extension page and its service worker compute attention (L-06)', async () => {
  const folder = join(packed.consumer, 'extension');
  cpSync(fileURLToPath(new URL('extension', import.meta.url)), folder, { recursive: true });
  mkdirSync(join(folder, 'headwise'));
  cpSync(join(packed.consumer, 'node_modules/headwise'), join(folder, 'headwise'), { recursive: true });
  const options = await chromiumOptions();
  const context = await chromium.launchPersistentContext(join(packed.consumer, 'profile'), {
    ...options,
    args: [...options.args, `--disable-extensions-except=${folder}`, `--load-extension=${folder}`],
  });
  try {
    const page = await context.newPage();
    const complaints: string[] = [];
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
    await page.goto(`chrome-extension://${extensionId(folder)}/page.html`);
    await page.waitForFunction(() => document.getElementById('worker')!.textContent !== '');
    for (const place of ['page', 'worker']) {
      const weights = JSON.parse((await page.textContent(`#${place}`))!) as number[];
      expect(Array.isArray(weights), `${place}: ${String(weights)}`).toBe(true);
      [0.731059, 0.268941, 0.5, 0.5, 0.5, 0.5, 0.017986, 0.982014].forEach((want, i) =>
        expect(weights[i], place).toBeCloseTo(want, 5),
      );
    }
    expect(complaints).toEqual([]);
  } finally {
    await context.close();
  }
});
