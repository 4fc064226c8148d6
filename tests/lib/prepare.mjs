// What suites need before they run. Each thing is made once per run, whoever asks first; a failure is remembered, so
// that every suite that needs it fails with the same cause.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { WASM_VARIANTS, buildNative, buildWasm } from '../../cpp/toolchain/build.mjs';
import { SetupError, run, say, seconds } from '../../cpp/toolchain/log.mjs';
import { ensureNodeModules } from '../../cpp/toolchain/node-modules.mjs';
import { ROOT } from '../../cpp/toolchain/paths.mjs';
import { ensureChromium, ensureFirefox, ensureWebKit, firefoxAbsent, webKitAbsent } from '../web/browsers.mjs';

async function nodeScript(path, topic) {
  const script = join(ROOT, path);
  if (!existsSync(script)) throw new SetupError(`${path} is missing`, 'restore it from git');
  const begun = Date.now();
  await run(process.execPath, [script], { cwd: ROOT, topic, title: path, cure: `run node ${path} to see more` });
  say(topic, `${path}: done in ${seconds(begun)}`);
}

const STEPS = {
  nodeModules: () => ensureNodeModules(),
  native: () => buildNative(),
  ...Object.fromEntries(WASM_VARIANTS.map((variant) => [`wasm-${variant}`, () => buildWasm(variant)])),
  // The package is built by its own script, which builds the WASM modules it ships.
  package: async () => {
    await need('nodeModules');
    await nodeScript('web/build.mjs', 'package');
  },
  demo: async () => {
    await need('package');
    const { buildDemo } = await import('../../web/demo/build.mjs');
    await buildDemo();
  },
  chromium: async () => {
    process.env.HEADWISE_CHROMIUM = await ensureChromium();
  },
  // Where these cannot be had, their tests are skipped and say why.
  firefox: async () => {
    if (!firefoxAbsent()) process.env.HEADWISE_FIREFOX = await ensureFirefox();
  },
  webkit: async () => {
    if (!webKitAbsent()) process.env.HEADWISE_WEBKIT = (await ensureWebKit()).browser;
  },
};

const made = new Map();

/** Makes `name`, one of the keys above, unless this run has made it already. */
export function need(name) {
  if (!Object.hasOwn(STEPS, name)) throw new Error(`no such need: ${name}`);
  if (!made.has(name)) {
    const promise = STEPS[name]();
    promise.catch(() => {});
    made.set(name, promise);
  }
  return made.get(name);
}
