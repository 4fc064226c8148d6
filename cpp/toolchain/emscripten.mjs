// Finds an Emscripten compiler, or lays a private copy of Debian's packages into the user's cache folder.
// Debian 12's own 3.1.6 is never used: its relaxed SIMD opcodes predate the standard and its Embind is too old.
import {
  existsSync, lstatSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, realpathSync, rmSync, symlinkSync,
  writeFileSync,
} from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { cacheRoot, ensureEntry } from './cache.mjs';
import { downloadPackages, findProgram, hasApt, privateApt, removePrivateApt } from './debian.mjs';
import { SetupError, run, say, seconds } from './log.mjs';

export const MINIMUM = '3.1.69';
/** Counts the ways a copy was laid. It is part of the folder's name: clones of several ages share one cache. */
const RECIPE = 4;
const EMSDK_CURE = 'install Emscripten 3.1.69 or later with emsdk '
  + '(https://emscripten.org/docs/getting_started/downloads.html) and put emcc on PATH or set EMSDK';

/** What differs between the machine kinds Debian builds for. */
const MACHINES = {
  x64: { triplet: 'x86_64-linux-gnu', loader: 'ld-linux-x86-64.so.2' },
  arm64: { triplet: 'aarch64-linux-gnu', loader: 'ld-linux-aarch64.so.1' },
};

/** Parts of the dependency closure that emcc never runs: a C tool chain, Node, terminal tools. */
const NOT_NEEDED = new RegExp('^(?:' + [
  'nodejs', 'libnode\\d+', 'node-(?:corepack|undici|cjs-module-lexer)', 'linux-libc-dev', 'libc6-dev', 'libc-dev-bin',
  'lib(?:gcc|stdc\\+\\+|objc)-\\d+-dev', 'binutils.*', 'libbinutils', 'libgprofng\\d*', 'libctf.*', 'tzdata', 'ccache',
  'dpkg', 'tar', 'debconf', 'rpcsvc-proto', 'libcrypt-dev', 'netbase', 'media-types',
  'lib(?:asan|tsan|hwasan|ubsan|lsan|itm|quadmath|objc)\\d+', 'openssl-provider-legacy',
].join('|') + ')$');
/** What emcc and CMake's platform file call, and what one debugs with; the rest of LLVM is removed. */
const LLVM_TOOLS = new RegExp('^(?:clang(?:\\+\\+|-\\d+)?|lld|wasm-ld|ld\\.lld|llvm-(?:ar|nm|objcopy|strip|ranlib'
  + '|objdump|dwarfdump|dwp|cxxfilt|size|readobj|symbolizer|profdata|cov))$');

export function compareVersions(a, b) {
  const [x, y] = [a, b].map((v) => v.split('.').map(Number));
  for (let i = 0; i < 3; ++i) if ((x[i] ?? 0) !== (y[i] ?? 0)) return (x[i] ?? 0) - (y[i] ?? 0);
  return 0;
}

async function versionOf(emcc) {
  const { status, stdout } = await run(emcc, ['--version'], { allowFailure: true, timeoutMs: 60_000 });
  return status === 0 ? /\b(\d+\.\d+\.\d+)/.exec(stdout.split('\n')[0])?.[1] : undefined;
}

/** The folder with cmake/Modules of an installed emcc: beside it, or where its emcmake says. */
async function rootOf(emcc) {
  const platform = 'cmake/Modules/Platform/Emscripten.cmake';
  const beside = dirname(realpathSync(emcc));
  if (existsSync(join(beside, platform))) return beside;
  const { stdout, tail } = await run(join(dirname(emcc), 'emcmake'), ['cmake', '-E', 'echo'], { allowFailure: true });
  const named = new RegExp(`-DCMAKE_TOOLCHAIN_FILE=(.*)/${platform}`).exec(`${stdout}\n${tail}`)?.[1];
  if (named && existsSync(join(named, platform))) return named;
  return undefined;
}

/** An emcc the user already has: on PATH, or under EMSDK. One that cannot be used is named and passed over. */
export async function findInstalled() {
  const candidates = [findProgram('emcc')];
  if (process.env.EMSDK) candidates.push(join(process.env.EMSDK, 'upstream/emscripten/emcc'));
  for (const emcc of new Set(candidates.filter((path) => path && existsSync(path)))) {
    const version = await versionOf(emcc);
    if (!version || compareVersions(version, MINIMUM) < 0) {
      say('emscripten', `${emcc} is ${version ?? 'not working'}, ${MINIMUM} or later is needed: not used`);
      continue;
    }
    const root = await rootOf(emcc);
    if (root) return { emcc, version, root };
    say('emscripten', `${emcc} has no CMake platform file beside it: not used`);
  }
  return undefined;
}

async function inParallel(items, work) {
  const queue = [...items];
  const workers = Array.from({ length: Math.min(4, cpus().length) }, async () => {
    while (queue.length) await work(queue.shift());
  });
  await Promise.all(workers);
}

function isElf(path) {
  const stat = lstatSync(path);
  return stat.isFile() && stat.size > 64 && readFileSync(path).subarray(0, 4).toString('latin1') === '\x7fELF';
}

/** Points the unpacked programs at the unpacked loader and libraries, so that the system's do not matter. */
async function relink(temp, final, llvmDir, machine) {
  const lib = `usr/lib/${machine.triplet}`;
  const loader = join(temp, lib, machine.loader);
  const finalLoader = join(final, lib, machine.loader);
  const rpath = `${join(final, lib)}:${join(final, llvmDir, 'lib')}`;
  // patchelf itself runs through the unpacked loader: nothing has to be installed.
  const patchelf = (args) => run(loader, ['--library-path', join(temp, lib), join(temp, 'usr/bin/patchelf'), ...args]);
  const bins = join(temp, llvmDir, 'bin');
  const programs = [
    ...readdirSync(bins).map((name) => join(bins, name)),
    ...readdirSync(join(temp, 'usr/bin')).filter((name) => name.startsWith('wasm'))
      .map((name) => join(temp, 'usr/bin', name)),
  ].filter(isElf);
  await inParallel(programs, (path) =>
    patchelf(['--set-interpreter', finalLoader, '--force-rpath', '--set-rpath', rpath, path]));
  // A library with a search path of its own ignores that of the program: give it ours.
  const libraries = [];
  for (const dir of [lib, `${llvmDir}/lib`]) {
    if (!existsSync(join(temp, dir))) continue;
    for (const name of readdirSync(join(temp, dir))) {
      const path = join(temp, dir, name);
      if (/^lib(?:LLVM|clang|lld|binaryen)/i.test(name) && name.includes('.so') && isElf(path)) libraries.push(path);
    }
  }
  await inParallel(libraries, (path) => patchelf(['--force-rpath', '--set-rpath', rpath, path]));
  say('emscripten', `${programs.length} programs and ${libraries.length} libraries point at the private copy`);
}

/** Not unpacked: documentation, and flavours of system libraries that nothing here links (emcc makes any it misses). */
const LEFT_OUT = [
  './usr/share/doc', './usr/share/man', './usr/share/info', './usr/share/locale', './usr/share/lintian',
  './usr/share/emscripten/test', '*/wasm32-emscripten/lto', '*/wasm32-emscripten/lto-pic', '*/wasm32-emscripten/pic',
  '*/wasm32-emscripten/libwasmfs*', '*/wasm32-emscripten/libGL-*', '*/wasm32-emscripten/*-ww*',
].map((pattern) => `--exclude=${pattern}`);

/**
 * A launcher that starts Python through the unpacked loader: its program has fixed addresses, and patchelf breaks such.
 * --argv0 makes Python find its standard library, and start itself again, through the launcher.
 */
function launchPython(temp, final, machine) {
  const bin = join(temp, 'usr/bin');
  const python = readdirSync(bin).find((name) => /^python3\.\d+$/.test(name));
  const lib = join(final, 'usr/lib', machine.triplet);
  rmSync(join(bin, 'python3'), { force: true });
  writeFileSync(join(bin, 'python3'), `#!/bin/sh
exec '${join(lib, machine.loader)}' --library-path '${lib}' --argv0 '${join(final, 'usr/bin/python3')}' \\
  '${join(final, 'usr/bin', python)}' "$@"
`, { mode: 0o755 });
}

/** The configuration beside emcc, and entry scripts that start the private Python. */
function configure(temp, final, llvmDir) {
  const home = join(temp, 'usr/share/emscripten');
  const q = (...parts) => JSON.stringify(join(final, ...parts));
  writeFileSync(join(home, '.emscripten'), [
    `LLVM_ROOT = ${q(llvmDir, 'bin')}`,
    `BINARYEN_ROOT = ${q('usr')}`,
    'NODE_JS = \'node\'',
    `CACHE = ${q('usr/share/emscripten/cache')}`,
    '# A variant of a system library that the packages lack is built at its first use.',
    'FROZEN_CACHE = False',
    '',
  ].join('\n'));
  // Debian's Node finds its packages by a path of its own; any other Node finds them here (the optimiser's acorn).
  symlinkSync('nodejs', join(temp, 'usr/share/node_modules'));
  const python = join(final, 'usr/bin/python3');
  for (const name of readdirSync(home)) {
    const path = join(home, name);
    if (!/^em[\w+-]*$/.test(name) || !lstatSync(path).isFile()) continue;
    const text = readFileSync(path, 'utf8');
    if (!text.startsWith('#!/bin/sh')) continue;
    writeFileSync(path, text.replace(/^#!\/bin\/sh\n/, `#!/bin/sh\nPYTHON='${python}'\n`));
  }
  const bin = join(temp, 'entry');
  mkdirSync(bin);
  for (const name of ['emcc', 'em++', 'emar', 'emranlib', 'emnm', 'emcmake']) {
    writeFileSync(join(bin, name), `#!/bin/sh
unset PYTHON EMSDK_PYTHON
export EM_CONFIG='${join(final, 'usr/share/emscripten/.emscripten')}'
exec '${join(final, 'usr/share/emscripten', name)}' "$@"
`, { mode: 0o755 });
  }
}

/** Unpacks the packages and makes them run from where they lie. */
async function lay(temp, final, suite, machine) {
  const begun = Date.now();
  const aptDir = join(cacheRoot(), `apt-${suite}-emscripten`);
  const apt = await privateApt(aptDir, suite);
  const debs = (await downloadPackages(aptDir, apt, ['emscripten', 'patchelf']))
    .filter((path) => !NOT_NEEDED.test(basename(path).split('_')[0]));
  const unpackBegun = Date.now();
  say('emscripten', `unpacking ${debs.length} packages`);
  // Older packages still carry /lib and /lib64 beside /usr; one tree keeps the loader and the libraries together.
  mkdirSync(join(temp, 'usr/lib'), { recursive: true });
  for (const name of ['lib', 'bin', 'sbin']) {
    mkdirSync(join(temp, 'usr', name), { recursive: true });
    symlinkSync(`usr/${name}`, join(temp, name));
  }
  await inParallel(debs, async (deb) => {
    // dpkg -x would replace the links above by directories; tar keeps them.
    await run('sh', ['-c', 'dpkg-deb --fsys-tarfile "$0" | tar -x --keep-directory-symlink -C "$@"', deb, temp,
      ...LEFT_OUT],
      { topic: 'emscripten', title: `unpacking ${basename(deb)}`, cure: 'free disk space (3 GB) and run again' });
  });
  say('emscripten', `unpacked in ${seconds(unpackBegun)}`);
  const llvm = readdirSync(join(temp, 'usr/lib')).filter((name) => /^llvm-\d+$/.test(name)).sort().pop();
  if (!llvm) throw new SetupError(`suite ${suite} brought no LLVM`, EMSDK_CURE);
  const llvmDir = `usr/lib/${llvm}`;
  const tools = join(temp, llvmDir, 'bin');
  for (const name of readdirSync(tools)) if (!LLVM_TOOLS.test(name)) rmSync(join(tools, name));
  await relink(temp, final, llvmDir, machine);
  launchPython(temp, final, machine);
  configure(temp, final, llvmDir);
  say('emscripten', `laid in ${seconds(begun)}`);
  return { suite, llvm };
}

const PROBE = `#include <emscripten/bind.h>
#include <wasm_simd128.h>
int Sum(int a) {
  v128_t v = wasm_i32x4_splat(a);
  return wasm_i32x4_extract_lane(wasm_i32x4_add(v, v), 3);
}
EMSCRIPTEN_BINDINGS(probe) { emscripten::function("sum", &Sum); }
`;

/** Compiles and runs a SIMD128 Embind module: a copy that cannot do this is of no use. */
async function verify(emcc) {
  const begun = Date.now();
  const dir = mkdtempSync(join(tmpdir(), 'headwise-emcc-'));
  try {
    writeFileSync(join(dir, 'probe.cc'), PROBE);
    await run(emcc, ['-O3', '-msimd128', '-lembind', '-sMODULARIZE', '-sEXPORT_ES6', '-sENVIRONMENT=node',
      join(dir, 'probe.cc'), '-o', join(dir, 'probe.mjs')],
    { topic: 'emscripten', title: 'trial compilation (builds missing system libraries once)', cure: EMSDK_CURE });
    const script = `const m = await (await import(process.argv[1])).default();
      process.stdout.write(String(m.sum(21)));`;
    const out = await run(process.execPath, ['--input-type=module', '-e', script, join(dir, 'probe.mjs')]);
    if (out.stdout !== '42') throw new SetupError(`the trial module answered ${out.stdout}, not 42`, EMSDK_CURE);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
  say('emscripten', `trial module compiled and ran in ${seconds(begun)}`);
}

/**
 * Returns { emcc, root, version, env }: the compiler, its folder (for CMake's platform file), and the environment
 * that builds must run with. HEADWISE_EMSCRIPTEN_SUITE=sid|trixie forces the private copy of that Debian suite.
 */
export async function ensureEmscripten() {
  const forced = process.env.HEADWISE_EMSCRIPTEN_SUITE;
  if (!forced) {
    const found = await findInstalled();
    if (found) {
      say('emscripten', `using ${found.emcc} (${found.version})`);
      return { ...found, env: {} };
    }
  }
  const suite = forced || 'trixie';
  const machine = MACHINES[process.arch];
  if (process.platform !== 'linux' || !machine || !hasApt()) {
    throw new SetupError(`no emcc ${MINIMUM} or later on PATH or under EMSDK`
      + ' (a private copy can be laid on Debian for x86-64 and arm64 only)', EMSDK_CURE);
  }
  const name = `emscripten-${suite}-${RECIPE}`;
  const dir = await ensureEntry(name, String(RECIPE), (temp, final) => {
    say('emscripten', `no emcc ${MINIMUM} or later here: laying a private copy into ${join(cacheRoot(), name)}`);
    return lay(temp, final, suite, machine);
  }, async (final) => {
    await verify(join(final, 'entry/emcc'));
    removePrivateApt(join(cacheRoot(), `apt-${suite}-emscripten`));
  });
  const root = join(dir, 'usr/share/emscripten');
  const version = readFileSync(join(root, 'emscripten-version.txt'), 'utf8').replace(/[^\d.]/g, '');
  return { emcc: join(dir, 'entry/emcc'), root, version, env: { EM_CONFIG: join(root, '.emscripten') } };
}
