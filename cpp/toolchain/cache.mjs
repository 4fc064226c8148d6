// The user's cache folder, shared by all clones: entries are laid in a temporary folder and renamed, under a lock,
// so that an interrupted or a concurrent run never leaves a half entry that looks whole.
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, statSync, utimesSync, writeFileSync }
  from 'node:fs';
import { homedir, hostname } from 'node:os';
import { dirname, join } from 'node:path';
import { SetupError, say } from './log.mjs';

const STAMP = '.headwise-ready.json';
const STALE_MS = 60_000;
const BEAT_MS = 5_000;

export function cacheRoot() {
  const base = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
  return join(base, 'headwise');
}

export function readStamp(dir) {
  try {
    return JSON.parse(readFileSync(join(dir, STAMP), 'utf8'));
  } catch {
    return undefined;
  }
}

function ownerIsGone(lockDir) {
  let age;
  try {
    age = Date.now() - statSync(join(lockDir, 'owner')).mtimeMs;
  } catch {
    // No owner file: either between mkdir and write, or a crash just there.
    try {
      return Date.now() - statSync(lockDir).mtimeMs > STALE_MS;
    } catch {
      return false;
    }
  }
  try {
    const owner = JSON.parse(readFileSync(join(lockDir, 'owner'), 'utf8'));
    if (owner.host === hostname()) {
      try {
        process.kill(owner.pid, 0);
      } catch (error) {
        if (error.code === 'ESRCH') return true;
      }
    }
  } catch {
    // An unreadable owner file is judged by its age alone.
  }
  return age > STALE_MS;
}

/** Runs work() while this process alone holds the lock of cache entry `name`. */
export function withLock(name, work) {
  return lockFolder(join(cacheRoot(), 'locks', name), name, work);
}

/** Runs work() while this process alone holds the folder lockDir. A lock of a dead owner is taken over. */
export async function lockFolder(lockDir, name, work) {
  for (let told = false; ;) {
    try {
      mkdirSync(dirname(lockDir), { recursive: true });
      mkdirSync(lockDir);
      break;
    } catch (error) {
      if (error.code !== 'EEXIST') {
        throw new SetupError(`cannot make ${lockDir}: ${error.message}`,
          'make its folder writable (for the cache, XDG_CACHE_HOME may name another)');
      }
    }
    if (ownerIsGone(lockDir)) {
      // Renaming first makes one taker win when several find the same stale lock.
      const grave = `${lockDir}.stale-${process.pid}-${Date.now()}`;
      try {
        renameSync(lockDir, grave);
        if (ownerIsGone(grave)) {
          rmSync(grave, { recursive: true, force: true });
          say('cache', `took over the lock of ${name}: its process is gone`);
        } else {
          // Another taker was faster and this is its new lock: give it back.
          renameSync(grave, lockDir);
        }
      } catch {
        // Somebody else took it.
      }
      continue;
    }
    if (!told) say('cache', `waiting for another run that works on ${name}`);
    told = true;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  const owner = join(lockDir, 'owner');
  writeFileSync(owner, JSON.stringify({ pid: process.pid, host: hostname() }));
  const beat = setInterval(() => {
    try {
      utimesSync(owner, new Date(), new Date());
    } catch {
      // The cache was removed below us; the work itself will tell.
    }
  }, BEAT_MS);
  try {
    return await work();
  } finally {
    clearInterval(beat);
    rmSync(lockDir, { recursive: true, force: true });
  }
}

function removeLeftovers(name) {
  const root = cacheRoot();
  for (const entry of readdirSync(root)) {
    if (entry.startsWith(`.laying-${name}-`)) {
      // Children of a process that was killed may still be writing.
      rmSync(join(root, entry), { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    }
  }
}

/**
 * Returns the folder of cache entry `name`, laying it with fill(tempDir, finalDir) when it is absent or was made by
 * another `recipe`. `verify(finalDir)` runs once in the final place, before the entry counts as whole.
 */
export async function ensureEntry(name, recipe, fill, verify) {
  const dir = join(cacheRoot(), name);
  if (readStamp(dir)?.recipe === recipe) return dir;
  return withLock(name, async () => {
    if (readStamp(dir)?.recipe === recipe) return dir;
    removeLeftovers(name);
    const temp = join(cacheRoot(), `.laying-${name}-${process.pid}`);
    mkdirSync(temp, { recursive: true });
    try {
      const facts = await fill(temp, dir);
      rmSync(dir, { recursive: true, force: true });
      renameSync(temp, dir);
      await verify?.(dir);
      writeFileSync(join(dir, STAMP), JSON.stringify({ recipe, ...facts }, null, 2));
      return dir;
    } finally {
      if (existsSync(temp)) rmSync(temp, { recursive: true, force: true });
    }
  });
}
