// Pictures of the built page, for people to look at: node web/demo/screenshots.mjs [FOLDER of the built page]
// They go to build/screenshots, which git ignores.
import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { BUILD } from '../../cpp/toolchain/paths.mjs';
import { launchChromium, servePage } from '../../tests/web/browser/demo-harness.mjs';
import { DEMO } from './build.mjs';

const SHOTS = [
  { name: 'light', width: 1180, scheme: 'light' },
  { name: 'dark', width: 1180, scheme: 'dark' },
  { name: 'narrow', width: 320, scheme: 'light' },
  { name: 'narrow-dark', width: 390, scheme: 'dark', hash: '#t=he+deposited+money+in+the+__&q=5' },
  { name: 'forced-colors', width: 800, scheme: 'dark', forced: true },
  {
    name: 'long',
    width: 1180,
    scheme: 'light',
    hash: '#t=they+fished+from+the+bank+of+the+stream+while+the+bank+in+the+city+raised+its+interest+rates+and+the+river'
      + '+rose+over+the+stones+of+the+old+bridge+near+the+mill+and+nobody+saw+it+coming+before+the+night+fell&q=5',
  },
];

const folder = resolve(process.argv[2] ?? join(DEMO, 'dist'));
const out = join(BUILD, 'screenshots');
mkdirSync(out, { recursive: true });
const server = await servePage(folder);
const browser = await launchChromium();
try {
  for (const { name, width, scheme, forced, hash = '' } of SHOTS) {
    const page = await browser.newPage({
      viewport: { width, height: 900 },
      colorScheme: scheme,
      forcedColors: forced ? 'active' : 'none',
      deviceScaleFactor: width < 500 ? 2 : 1,
    });
    page.on('console', (message) => console.log(`${name}: ${message.type()}: ${message.text()}`));
    await page.goto(server.url + hash);
    await page.locator('.tile .labels li').first().waitFor();
    // As tall as the page, so that the strip at the foot of the window stands at the foot of the picture.
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    await page.setViewportSize({ width, height });
    await page.screenshot({ path: join(out, `${name}.png`) });
    await page.close();
    console.log(`${name}.png`);
  }
} finally {
  await browser.close();
  await server.close();
}
