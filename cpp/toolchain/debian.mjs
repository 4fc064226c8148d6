// Debian: packages of the system (installed only as root and only what is missing), and a private apt
// configuration that downloads packages of another suite without touching the system.
import { accessSync, constants, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync }
  from 'node:fs';
import { delimiter, join } from 'node:path';
import { SetupError, run, say, seconds } from './log.mjs';

/** Absolute path of a program on PATH, or undefined. */
export function findProgram(name) {
  for (const dir of (process.env.PATH ?? '').split(delimiter)) {
    if (!dir) continue;
    const path = join(dir, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // Not here.
    }
  }
  return undefined;
}

export function osRelease() {
  try {
    const text = readFileSync('/etc/os-release', 'utf8');
    return Object.fromEntries([...text.matchAll(/^(\w+)="?([^"\n]*)"?$/gm)].map((m) => [m[1], m[2]]));
  } catch {
    return {};
  }
}

export const hasApt = () => Boolean(findProgram('apt-get') && findProgram('dpkg'));
const isRoot = () => process.getuid?.() === 0;
/** Whether installPackages() may do it here. */
export const canInstallPackages = () => hasApt() && isRoot();

let listsAreFresh = false;

/**
 * Installs the Debian packages of every missing program: needs is { program: package }.
 * Asks for nothing, takes no recommended extras, refreshes the package lists at most once.
 */
export async function ensurePrograms(needs, why) {
  const missing = Object.entries(needs).filter(([program]) => !findProgram(program));
  if (missing.length === 0) return;
  const programs = missing.map(([program]) => program).join(', ');
  const packages = [...new Set(missing.map(([, name]) => name))];
  await installPackages(packages, `${programs} missing (${why})`);
}

export async function installPackages(packages, cause) {
  const command = `apt-get install -y --no-install-recommends ${packages.join(' ')}`;
  if (!hasApt()) {
    throw new SetupError(cause, `install ${packages.join(', ')} (Debian names) with this system's package manager`);
  }
  if (!isRoot()) throw new SetupError(cause, `sudo apt-get update && sudo ${command}`);
  const begun = Date.now();
  say('system', `${cause}: installing ${packages.join(', ')}`);
  const env = { DEBIAN_FRONTEND: 'noninteractive' };
  const args = ['-q', '-o', 'DPkg::Lock::Timeout=300', 'install', '-y', '--no-install-recommends', ...packages];
  const options = { topic: 'system', title: 'apt-get', env, progress: aptProgress() };
  if (!listsAreFresh) {
    // The lists of the machine may do; they are refreshed only when they do not.
    const known = await run('apt-get', args, { ...options, allowFailure: true });
    if (known.status === 0) {
      say('system', `installed in ${seconds(begun)}`);
      return;
    }
    await run('apt-get', ['-q', '-o', 'DPkg::Lock::Timeout=300', 'update'],
      { ...options, title: 'apt-get update', cure: 'check the network and the apt sources of this machine' });
    listsAreFresh = true;
  }
  await run('apt-get', args, { ...options, cure: `check the network, then: ${command}` });
  say('system', `installed in ${seconds(begun)}`);
}

/** Turns apt's "Get:12 …" and "Unpacking …" lines into a short progress text. */
export function aptProgress(total) {
  return (line) => {
    const get = /^Get:(\d+) .* (\S+) (?:all|amd64|arm64) /.exec(line);
    if (get) return total ? `downloading ${get[1]} of ${total}: ${get[2]}` : `downloading ${get[2]}`;
    const step = /^(Unpacking|Setting up) (\S+)/.exec(line);
    return step ? `${step[1].toLowerCase()} ${step[2]}` : undefined;
  };
}

/** Stanzas of the machine's own apt sources, in both notations, disabled ones left out. */
function machineSources() {
  const stanzas = [];
  const files = ['/etc/apt/sources.list'];
  const parts = '/etc/apt/sources.list.d';
  if (existsSync(parts)) files.push(...readdirSync(parts).sort().map((name) => join(parts, name)));
  for (const file of files) {
    if (!existsSync(file)) continue;
    const text = readFileSync(file, 'utf8').replace(/^\s*#.*\n?/gm, '');
    if (file.endsWith('.sources')) {
      for (const block of text.split(/\n\s*\n/)) {
        const fields = {};
        for (const [, key, value] of block.matchAll(/^([A-Za-z-]+):[ \t]*((?:.*)(?:\n[ \t]+.*)*)/gm)) {
          fields[key.toLowerCase()] = value.trim();
        }
        if (!fields.uris || /^no$/i.test(fields.enabled ?? '')) continue;
        stanzas.push({
          types: fields.types.split(/\s+/), uris: fields.uris.split(/\s+/), suites: fields.suites.split(/\s+/),
          components: (fields.components ?? '').split(/\s+/), signedBy: fields['signed-by'],
        });
      }
    } else if (file.endsWith('.list')) {
      for (const line of text.split('\n')) {
        const m = /^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.+)$/.exec(line.trim());
        if (!m) continue;
        const signedBy = /signed-by=(\S+)/.exec(m[1] ?? '')?.[1];
        stanzas.push({ types: ['deb'], uris: [m[2]], suites: [m[3]], components: m[4].trim().split(/\s+/), signedBy });
      }
    }
  }
  return stanzas;
}

/** The machine's Debian archive with its suite replaced, as deb822 text. */
function sourcesFor(suite) {
  const { VERSION_CODENAME: codename = 'sid' } = osRelease();
  const names = new Set([codename, 'stable', 'testing', 'unstable', 'sid', 'oldstable']);
  const archives = machineSources().filter(
    (s) => s.types.includes('deb') && s.components.includes('main') && s.suites.some((name) => names.has(name)));
  if (archives.length === 0) {
    throw new SetupError(`no Debian archive for suite "${codename}" among this machine's apt sources`,
      'install Emscripten 3.1.69 or later with emsdk (https://emscripten.org/docs/getting_started/downloads.html)'
      + ' and put emcc on PATH');
  }
  return archives.map((s) => [
    'Types: deb deb-src', `URIs: ${s.uris.join(' ')}`, `Suites: ${suite}`, 'Components: main',
    ...(s.signedBy ? [`Signed-By: ${s.signedBy}`] : []), '',
  ].join('\n')).join('\n');
}

/**
 * Prepares a private apt under `dir` for `suite` (own lists, own cache, an empty status file) and returns the
 * arguments that select it. `withSources` also fetches the index of source packages.
 */
export async function privateApt(dir, suite, { withSources = false } = {}) {
  for (const sub of ['lists/partial', 'cache/archives/partial', 'etc']) mkdirSync(join(dir, sub), { recursive: true });
  const sources = sourcesFor(suite);
  writeFileSync(join(dir, 'etc/private.sources'), withSources ? sources : sources.replace(/ deb-src$/gm, ''));
  writeFileSync(join(dir, 'status'), '');
  const arch = (await run('dpkg', ['--print-architecture'])).stdout.trim();
  const config = join(dir, 'etc/apt.conf');
  // Hooks of the machine (PackageKit, image clean-up) have no business here.
  writeFileSync(config, `
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Update::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
#clear Dir::Etc::preferencesparts;
APT::Architecture "${arch}";
APT::Architectures { "${arch}"; };
APT::Sandbox::User "";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::State "${dir}";
Dir::State::lists "${dir}/lists";
Dir::State::status "${dir}/status";
Dir::Cache "${dir}/cache";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "${dir}/etc";
Dir::Etc::preferences "/dev/null";
`);
  const args = ['-q', '-c', config];
  const begun = Date.now();
  await run('apt-get', [...args, 'update'], {
    topic: 'debian', title: `reading the package lists of ${suite}`,
    cure: 'check the network; behind a proxy set http_proxy; or install Emscripten with emsdk and put emcc on PATH',
  });
  say('debian', `package lists of ${suite} read in ${seconds(begun)}`);
  return args;
}

/** Downloads `packages` of the private suite with everything they depend on; returns the .deb files. */
export async function downloadPackages(dir, aptArgs, packages) {
  const base = [...aptArgs, '-y', '--no-install-recommends', '--download-only', 'install', ...packages];
  const plan = await run('apt-get', ['--print-uris', ...base]);
  const files = [...plan.stdout.matchAll(/^'[^']+' (\S+) (\d+)/gm)];
  const megabytes = files.reduce((sum, m) => sum + Number(m[2]), 0) / 1e6;
  const begun = Date.now();
  const names = `${packages.join(', ')} and what it depends on`;
  say('debian', files.length ? `downloading ${names}: ${files.length} packages, ${Math.round(megabytes)} MB`
    : `${names}: downloaded by an earlier run`);
  await run('apt-get', base, {
    topic: 'debian', title: 'download', progress: aptProgress(files.length),
    cure: 'check the network and run again: what was downloaded is kept',
  });
  if (files.length) say('debian', `downloaded in ${seconds(begun)}`);
  const archives = join(dir, 'cache/archives');
  return readdirSync(archives).filter((name) => name.endsWith('.deb')).map((name) => join(archives, name));
}

/** Downloads the upstream archives of source packages into `target` (nothing is unpacked). */
export async function downloadSources(aptArgs, packages, target) {
  mkdirSync(target, { recursive: true });
  await run('apt-get', [...aptArgs, '--download-only', '--tar-only', 'source', ...packages], {
    cwd: target, topic: 'debian', title: `source of ${packages.join(', ')}`,
    cure: 'check the network and run again',
  });
}

export function removePrivateApt(dir) {
  rmSync(dir, { recursive: true, force: true });
}
