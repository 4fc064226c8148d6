// Builds the demo into web/demo/dist, from the package as it was built: nothing is done when neither has changed.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { SetupError, run, runMain, say, seconds } from '../../cpp/toolchain/log.mjs';
import { ensureNodeModules } from '../../cpp/toolchain/node-modules.mjs';
import { ROOT } from '../../cpp/toolchain/paths.mjs';

export const DEMO = join(ROOT, 'web/demo');
const DIST = join(DEMO, 'dist');
const STAMP = join(DIST, '.headwise-inputs');
const NOT_INPUTS = new Set(['node_modules', 'dist']);

function* filesBelow(dir) {
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    if (entry.isFile()) yield path;
    else if (entry.isDirectory() && !NOT_INPUTS.has(entry.name)) yield* filesBelow(path);
  }
}

function inputsHash() {
  const hash = createHash('sha256');
  for (const dir of [DEMO, join(ROOT, 'web/dist')]) {
    if (!existsSync(dir)) throw new SetupError(`${dir} is missing`, 'run npm run build first');
    for (const path of [...filesBelow(dir)].sort()) {
      const { size, mtimeMs } = statSync(path);
      hash.update(`${path} ${size} ${mtimeMs}\n`);
    }
  }
  return hash.digest('hex');
}

/** The Vite of the demo (or of the package, when the demo has none of its own). */
export function vitePath() {
  const require = createRequire(join(DEMO, 'package.json'));
  try {
    return dirname(require.resolve('vite/package.json'));
  } catch {
    throw new SetupError('Vite is not installed', 'delete node_modules and web/demo/node_modules and run again');
  }
}

export async function buildDemo() {
  if (existsSync(join(DEMO, 'package-lock.json'))) await ensureNodeModules(DEMO);
  const inputs = inputsHash();
  if (existsSync(STAMP) && readFileSync(STAMP, 'utf8') === inputs) return DIST;
  const begun = Date.now();
  await run(process.execPath, [join(vitePath(), 'bin/vite.js'), 'build'], {
    cwd: DEMO, topic: 'demo', title: 'vite build', cure: 'mend the error above',
  });
  writeFileSync(STAMP, inputs);
  say('demo', `built in ${seconds(begun)}`);
  return DIST;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  await runMain(async () => {
    await buildDemo();
  });
}
