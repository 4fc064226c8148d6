// Finds the browsers the tests drive, or installs them where that is possible (Debian, as root).
import { existsSync } from 'node:fs';
import { findProgram, installPackages } from '../../cpp/toolchain/debian.mjs';
import { SetupError } from '../../cpp/toolchain/log.mjs';

const CHROMIUM_NAMES = ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome', 'chrome'];
const CHROMIUM_PLACES = [
  '/usr/lib/chromium/chromium',
  '/snap/bin/chromium',
  '/opt/google/chrome/chrome',
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
  '/Applications/Chromium.app/Contents/MacOS/Chromium',
];

/** Path of a Chromium or Chrome, or undefined. HEADWISE_CHROMIUM names one; naming a missing one is an error. */
export function findChromium() {
  const named = process.env.HEADWISE_CHROMIUM;
  if (named) {
    const path = existsSync(named) ? named : findProgram(named);
    if (!path) {
      throw new SetupError(`HEADWISE_CHROMIUM names ${named}, which is not there`,
        'set it to the path of a Chromium or Chrome, or unset it');
    }
    return path;
  }
  for (const name of CHROMIUM_NAMES) {
    const path = findProgram(name);
    if (path) return path;
  }
  return CHROMIUM_PLACES.find((path) => existsSync(path));
}

/** Path of a Chromium or Chrome; installs Debian's chromium when there is none. */
export async function ensureChromium() {
  const found = findChromium();
  if (found) return found;
  try {
    await installPackages(['chromium'], 'no Chromium or Chrome was found for the browser tests');
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    throw new SetupError(`${error.message}`, 'or set HEADWISE_CHROMIUM to the path of a Chromium or Chrome');
  }
  const installed = findChromium();
  if (!installed) throw new SetupError('chromium was installed but is not on PATH', 'set HEADWISE_CHROMIUM to its path');
  return installed;
}
