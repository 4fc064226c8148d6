// The shared cache folder: one layer at a time, nothing half-laid, locks of dead processes taken over.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, utimesSync, writeFileSync }
  from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { cacheRoot, ensureEntry, withLock } from '../../cpp/toolchain/cache.mjs';

const MODULE = fileURLToPath(new URL('../../cpp/toolchain/cache.mjs', import.meta.url));
const before = process.env.XDG_CACHE_HOME;
let dir;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'headwise-cache-'));
  process.env.XDG_CACHE_HOME = dir;
});
afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
  if (before === undefined) delete process.env.XDG_CACHE_HOME;
  else process.env.XDG_CACHE_HOME = before;
});

const fill = (text) => (temp) => {
  writeFileSync(join(temp, 'content'), text);
  return {};
};

test('an entry is laid once and laid anew for another recipe', async () => {
  let laid = 0;
  const lay = (recipe) => ensureEntry('thing', recipe, (temp) => {
    laid += 1;
    return fill(recipe)(temp);
  });
  const path = await lay('one');
  assert.equal(await lay('one'), path);
  assert.equal(laid, 1);
  await lay('two');
  assert.equal(laid, 2);
  assert.equal(readFileSync(join(path, 'content'), 'utf8'), 'two');
});

test('a failed or unverified entry does not count, and its remains are removed', async () => {
  await assert.rejects(ensureEntry('thing', 'r', () => {
    throw new Error('interrupted');
  }), /interrupted/);
  await assert.rejects(ensureEntry('thing', 'r', fill('bad'), () => {
    throw new Error('does not run');
  }), /does not run/);
  mkdirSync(join(cacheRoot(), '.laying-thing-1'), { recursive: true });
  const path = await ensureEntry('thing', 'r', fill('good'));
  assert.equal(readFileSync(join(path, 'content'), 'utf8'), 'good');
  assert.deepEqual(readdirSync(cacheRoot()).sort(), ['locks', 'thing']);
});

test('two processes lay an entry only once', async () => {
  const script = `
    import { ensureEntry } from ${JSON.stringify(MODULE)};
    import { appendFileSync, writeFileSync } from 'node:fs';
    await ensureEntry('thing', 'r', async (temp) => {
      appendFileSync(process.env.XDG_CACHE_HOME + '/count', 'x');
      await new Promise((resolve) => setTimeout(resolve, 800));
      writeFileSync(temp + '/content', 'ok');
    });`;
  const start = () => new Promise((resolve) => {
    spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'ignore' }).on('close', resolve);
  });
  assert.deepEqual(await Promise.all([start(), start()]), [0, 0]);
  assert.equal(readFileSync(join(dir, 'count'), 'utf8'), 'x');
});

test('the lock of a process that is gone is taken over at once', async () => {
  const child = spawn(process.execPath, ['-e', '']);
  await new Promise((resolve) => child.on('close', resolve));
  const lock = join(cacheRoot(), 'locks', 'thing');
  mkdirSync(lock, { recursive: true });
  writeFileSync(join(lock, 'owner'), JSON.stringify({ pid: child.pid, host: hostname() }));
  assert.equal(await withLock('thing', () => 42), 42);
  assert.equal(existsSync(lock), false);
});

test('the lock of another host is taken over when it has stopped beating', async () => {
  const lock = join(cacheRoot(), 'locks', 'thing');
  mkdirSync(lock, { recursive: true });
  const owner = join(lock, 'owner');
  writeFileSync(owner, JSON.stringify({ pid: 1, host: 'elsewhere.invalid' }));
  const longAgo = new Date(Date.now() - 10 * 60_000);
  utimesSync(owner, longAgo, longAgo);
  assert.equal(await withLock('thing', () => 42), 42);
});
