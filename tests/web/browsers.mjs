// Finds the browsers the tests drive, or installs them where that is possible (Debian, as root). Chromium must be
// there; of the others, absence is a reason to skip their tests, unless this machine could have installed them.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { canInstallPackages, findProgram, installPackages, osRelease } from '../../cpp/toolchain/debian.mjs';
import { SetupError } from '../../cpp/toolchain/log.mjs';

const CHROMIUM = {
  title: 'Chromium or Chrome',
  variable: 'HEADWISE_CHROMIUM',
  packages: ['chromium'],
  names: ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome', 'chrome'],
  places: () => [
    '/usr/lib/chromium/chromium',
    '/snap/bin/chromium',
    '/opt/google/chrome/chrome',
    '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
    '/Applications/Chromium.app/Contents/MacOS/Chromium',
  ],
};

const FIREFOX = {
  title: 'Firefox',
  variable: 'HEADWISE_FIREFOX',
  packages: ['firefox-esr'],
  names: ['firefox-esr', 'firefox'],
  places: () => [
    '/usr/lib/firefox-esr/firefox-esr',
    '/usr/lib/firefox/firefox',
    '/Applications/Firefox.app/Contents/MacOS/firefox',
  ],
};

// WebKitGTK stands in for Safari. Its browser for tests is no program on PATH, and each version of its interface has a
// folder: the newest one counts.
const LIBRARIES = ['/usr/lib/x86_64-linux-gnu', '/usr/lib/aarch64-linux-gnu', '/usr/lib64', '/usr/libexec', '/usr/lib'];
const WEBKIT = {
  title: 'MiniBrowser of WebKitGTK',
  variable: 'HEADWISE_WEBKIT',
  packages: ['webkit2gtk-driver', 'xvfb'],
  names: [],
  places: () => LIBRARIES.filter((dir) => existsSync(dir)).flatMap((dir) => readdirSync(dir)
    .filter((name) => /^webkit2?gtk-\d/.test(name)).sort().reverse().map((name) => join(dir, name, 'MiniBrowser'))),
};
const WEBKIT_HELPERS = ['WebKitWebDriver', 'Xvfb'];

/** Path of the browser, or undefined. Its variable names one; naming a missing one is an error. */
function find({ title, variable, names, places }) {
  const named = process.env[variable];
  if (named) {
    const path = existsSync(named) ? named : findProgram(named);
    if (!path) {
      throw new SetupError(`${variable} names ${named}, which is not there`,
        `set it to the path of ${title}, or unset it`);
    }
    return path;
  }
  for (const name of names) {
    const path = findProgram(name);
    if (path) return path;
  }
  return places().find((path) => existsSync(path));
}

async function install({ title, variable, packages }, missing = title) {
  try {
    await installPackages(packages, `${missing} not found, which the browser tests need`);
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    throw new SetupError(error.message, `or set ${variable} to the path of ${title}`);
  }
}

async function ensure(browser) {
  const found = find(browser);
  if (found) return found;
  await install(browser);
  const installed = find(browser);
  if (installed) return installed;
  throw new SetupError(`${browser.packages[0]} was installed, but ${browser.title} was not found`,
    `set ${browser.variable} to its path`);
}

/** The packages have these names on Debian itself; elsewhere whoever wants the tests installs the browser. */
const installable = () => osRelease().ID === 'debian' && canInstallPackages();

/** Why the browser's tests are skipped: it is not here, and cannot be installed here. Undefined: they run. */
function absent(browser, missing) {
  if (missing.length === 0 || installable()) return undefined;
  return `${missing.join(' and ')} not found, and only Debian as root installs it; ${browser.variable} names a browser`;
}

/** Path of a Chromium or Chrome, or undefined. */
export const findChromium = () => find(CHROMIUM);
/** Path of a Chromium or Chrome; installs Debian's chromium when there is none. */
export const ensureChromium = () => ensure(CHROMIUM);

export const findFirefox = () => find(FIREFOX);
export const firefoxAbsent = () => absent(FIREFOX, findFirefox() ? [] : [FIREFOX.title]);
/** Path of a Firefox; installs Debian's firefox-esr when there is none. */
export const ensureFirefox = () => ensure(FIREFOX);

/** What is missing of MiniBrowser, its driver and the display it draws on. */
const missingOfWebKit = () =>
  [...(find(WEBKIT) ? [] : [WEBKIT.title]), ...WEBKIT_HELPERS.filter((name) => !findProgram(name))];
export const webKitAbsent = () => absent(WEBKIT, missingOfWebKit());

/** Paths of { browser, driver, display }; installs Debian's packages when one of them is missing. */
export async function ensureWebKit() {
  const before = missingOfWebKit();
  if (before.length > 0) await install(WEBKIT, before.join(' and '));
  const missing = missingOfWebKit();
  if (missing.length > 0) {
    throw new SetupError(`${missing.join(' and ')} not found after ${WEBKIT.packages.join(' and ')} were installed`,
      `set ${WEBKIT.variable} to the path of MiniBrowser, and PATH to where ${WEBKIT_HELPERS.join(' and ')} are`);
  }
  const [driver, display] = WEBKIT_HELPERS.map((name) => findProgram(name));
  return { browser: find(WEBKIT), driver, display };
}
