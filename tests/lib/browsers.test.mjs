// Which browsers are taken, and what is said where there are none.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { SetupError } from '../../cpp/toolchain/log.mjs';
import { ensureWebKit, findChromium, findFirefox, firefoxAbsent, webKitAbsent } from '../web/browsers.mjs';

const VARIABLES = ['PATH', 'HEADWISE_CHROMIUM', 'HEADWISE_FIREFOX', 'HEADWISE_WEBKIT'];
const saved = Object.fromEntries(VARIABLES.map((name) => [name, process.env[name]]));
let dir;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'headwise-browsers-'));
  for (const name of VARIABLES) delete process.env[name];
  // Neither browsers nor apt-get.
  process.env.PATH = join(dir, 'bin');
  mkdirSync(process.env.PATH);
});
afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
  for (const [name, value] of Object.entries(saved)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
});

function program(name) {
  const path = join(process.env.PATH, name);
  writeFileSync(path, '#!/bin/sh\n', { mode: 0o755 });
  return path;
}

test('a variable names a browser, by path or by a name on PATH', () => {
  const path = program('my-browser');
  process.env.HEADWISE_FIREFOX = path;
  process.env.HEADWISE_CHROMIUM = 'my-browser';
  assert.deepEqual([findFirefox(), findChromium()], [path, path]);
  assert.equal(firefoxAbsent(), undefined);
});

test('one that is not there is an error, not a reason to skip', () => {
  process.env.HEADWISE_FIREFOX = join(dir, 'nothing');
  process.env.HEADWISE_WEBKIT = join(dir, 'nothing');
  const complaint = (variable) => (error) => error instanceof SetupError
    && new RegExp(`${variable} names .*nothing, which is not there\\n  cure: .* or unset it`).test(error.message);
  assert.throws(() => firefoxAbsent(), complaint('HEADWISE_FIREFOX'));
  assert.throws(() => webKitAbsent(), complaint('HEADWISE_WEBKIT'));
});

test('what is on PATH comes before places of the system, Debian\'s name first', () => {
  const firefox = program('firefox');
  assert.equal(findFirefox(), firefox);
  assert.equal(program('firefox-esr'), findFirefox());
});

test('where nothing can be installed, the reason names what is missing', async () => {
  process.env.HEADWISE_WEBKIT = program('MiniBrowser');
  program('Xvfb');
  assert.match(webKitAbsent(), /^WebKitWebDriver not found, and only Debian as root installs it/);
  await assert.rejects(ensureWebKit(), (error) => error instanceof SetupError && /install webkit2gtk-driver, xvfb/
    .test(error.message));
  const driver = program('WebKitWebDriver');
  assert.equal(webKitAbsent(), undefined);
  assert.deepEqual(await ensureWebKit(),
    { browser: process.env.HEADWISE_WEBKIT, driver, display: join(process.env.PATH, 'Xvfb') });
});
