// Third-party C++ sources at pinned versions and hashes, laid once per machine in the cache folder and handed to
// CMake's FetchContent. They come from the projects' own archives; where the network reaches only Debian's archive,
// the same versions come from there.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { cacheRoot, ensureEntry } from './cache.mjs';
import { downloadSources, hasApt, privateApt, removePrivateApt } from './debian.mjs';
import { SetupError, run, say } from './log.mjs';

const { comment: _, ...PINS } = JSON.parse(readFileSync(new URL('./pins.json', import.meta.url), 'utf8'));
const SUITE = 'trixie';
const CONNECT_MS = 10_000;
const DOWNLOAD_MS = 300_000;

const sha256 = (path) => createHash('sha256').update(readFileSync(path)).digest('hex');

function checkHash(path, wanted, from) {
  const got = sha256(path);
  if (got === wanted) return;
  throw new SetupError(`${from}: sha256 is ${got}, pinned is ${wanted}`,
    'do not build from it; try again, and if it stays so report it as an issue');
}

/**
 * Downloads an upstream archive. Returns why not when the network does not let us, else an empty string; a wrong hash
 * is an error, never a reason for a detour.
 */
async function fetchUpstream(pin, path) {
  const stop = new AbortController();
  let timer = setTimeout(() => stop.abort(), CONNECT_MS);
  try {
    const answer = await fetch(pin.url, { signal: stop.signal });
    if (!answer.ok) return `HTTP status ${answer.status}`;
    clearTimeout(timer);
    timer = setTimeout(() => stop.abort(), DOWNLOAD_MS);
    writeFileSync(path, Buffer.from(await answer.arrayBuffer()));
  } catch (error) {
    return stop.signal.aborted ? 'no answer in time' : error.cause?.code ?? error.message;
  } finally {
    clearTimeout(timer);
  }
  checkHash(path, pin.sha256, pin.url);
  return '';
}

async function fetchDebian(names, target) {
  const aptDir = join(cacheRoot(), `apt-${SUITE}-sources`);
  const apt = await privateApt(aptDir, SUITE, { withSources: true });
  await downloadSources(apt, names.map((name) => `${PINS[name].debian.package}/${SUITE}`), target);
  removePrivateApt(aptDir);
  const found = {};
  for (const name of names) {
    const { version, debian } = PINS[name];
    const file = readdirSync(target).find((f) => f.startsWith(`${debian.package}_${version}.orig.tar`));
    if (!file) {
      throw new SetupError(`Debian ${SUITE} has ${debian.package} in another version than ${version}`,
        'open the network to the addresses in cpp/toolchain/pins.json');
    }
    found[name] = join(target, file);
    checkHash(found[name], debian.sha256, `${debian.package} of Debian ${SUITE}`);
  }
  return found;
}

async function lay(temp) {
  const archives = join(temp, 'archives');
  mkdirSync(archives);
  const files = {};
  const missing = [];
  let reason = '';
  for (const [name, pin] of Object.entries(PINS)) {
    const path = join(archives, `${name}.tar.gz`);
    // One refusal is enough: the other archives live at the same host.
    reason ||= await fetchUpstream(pin, path);
    if (reason) missing.push(name);
    else files[name] = path;
  }
  if (missing.length) {
    if (!hasApt()) {
      throw new SetupError(`cannot download ${PINS[missing[0]].url}: ${reason}`,
        'check the network or the proxy settings and run again');
    }
    say('sources', `upstream is out of reach (${reason}): taking ${missing.join(', ')} from Debian ${SUITE}`);
    Object.assign(files, await fetchDebian(missing, archives));
  }
  for (const [name, path] of Object.entries(files)) {
    const dir = join(temp, name);
    mkdirSync(dir);
    await run('tar', ['-xzf', path, '-C', dir, '--strip-components=1', '--no-same-owner'],
      { topic: 'sources', title: `unpacking ${name}`, cure: 'install tar and gzip, or free disk space' });
    say('sources', `${name} ${PINS[name].version} checked and unpacked`);
  }
  rmSync(archives, { recursive: true, force: true });
  return {};
}

/** Returns { highway, googletest, json }: folders with the pinned sources. */
export async function ensureSources() {
  const recipe = createHash('sha256').update(JSON.stringify(PINS)).digest('hex').slice(0, 8);
  const dir = await ensureEntry(`sources-${recipe}`, recipe, lay);
  return Object.fromEntries(Object.keys(PINS).map((name) => [name, join(dir, name)]));
}
