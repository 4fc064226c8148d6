// npm ci, when node_modules is absent or was made from another lock file.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { SetupError, run, say, seconds } from './log.mjs';
import { ROOT } from './paths.mjs';

const STAMP = '.headwise-lock-hash';

/** Makes node_modules of `dir` (the repository by default) match its package-lock.json. */
export async function ensureNodeModules(dir = ROOT) {
  const name = relative(ROOT, dir) || 'the package';
  const lock = join(dir, 'package-lock.json');
  if (!existsSync(lock)) {
    throw new SetupError(`package-lock.json of ${name} is missing`,
      `run npm install in ${dir} and commit the lock file`);
  }
  // The Node version counts: native parts of tools are chosen by it.
  const hash = createHash('sha256').update(readFileSync(lock)).update(process.version.split('.')[0]).digest('hex');
  const stamp = join(dir, 'node_modules', STAMP);
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === hash) return;
  const begun = Date.now();
  say('npm', `node_modules of ${name} is ${existsSync(join(dir, 'node_modules')) ? 'of another lock file' : 'absent'}:`
    + ' installing');
  await run('npm', ['ci', '--no-audit', '--no-fund'], {
    cwd: dir, topic: 'npm', title: `npm ci for ${name}`,
    cure: 'check the network and the npm registry settings (npm config get registry), then run again',
  });
  writeFileSync(stamp, hash);
  say('npm', `installed in ${seconds(begun)}`);
}
