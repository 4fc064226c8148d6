// Configures and builds one of the CMake builds: native, sanitize, wasm-simd, wasm-relaxed. Incremental: CMake is
// configured again only when what it was configured with has changed, ninja does the rest.
//
//   node cpp/toolchain/build.mjs [native] [wasm-simd] [wasm-relaxed] [sanitize]     default: the two WASM builds
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { lockFolder } from './cache.mjs';
import { nativeCompiler } from './compiler.mjs';
import { ensurePrograms } from './debian.mjs';
import { ensureEmscripten } from './emscripten.mjs';
import { SetupError, run, runMain, say, seconds } from './log.mjs';
import { ROOT, buildDir } from './paths.mjs';
import { ensureSources } from './sources.mjs';

export const WASM_VARIANTS = ['simd', 'relaxed'];
export const NATIVE_BUILDS = ['native', 'sanitize'];

export async function ensureBuildTools() {
  await ensurePrograms({ cmake: 'cmake', ninja: 'ninja-build' }, 'they build the C++ core');
}

function sourceArguments(sources) {
  return Object.entries(sources).map(([name, dir]) => `-DFETCHCONTENT_SOURCE_DIR_${name.toUpperCase()}=${dir}`);
}

/** Runs CMake when needed and builds `targets`; returns the build folder. */
async function build(preset, args, env, targets) {
  const dir = buildDir(preset);
  mkdirSync(dir, { recursive: true });
  return lockFolder(join(dir, '.headwise-lock'), `the build ${preset}`, async () => {
    const begun = Date.now();
    const stampFile = join(dir, '.headwise-configured');
    const stamp = createHash('sha256').update(JSON.stringify([args, env]))
      .update(readFileSync(join(ROOT, 'CMakePresets.json'))).digest('hex');
    const known = existsSync(stampFile) ? readFileSync(stampFile, 'utf8') : '';
    if (known !== stamp || !existsSync(join(dir, 'build.ninja'))) {
      // Another compiler or other sources: CMake cannot change those in place.
      rmSync(join(dir, 'CMakeCache.txt'), { force: true });
      rmSync(join(dir, 'CMakeFiles'), { recursive: true, force: true });
      rmSync(stampFile, { force: true });
      say('build', `${preset}: configuring`);
      await run('cmake', ['--preset', preset, '--no-warn-unused-cli', ...args], {
        cwd: ROOT, env, topic: 'build', title: `configuring ${preset}`,
        cure: 'read the message above; CMake 3.25 or later, Ninja and a C++17 compiler are needed',
      });
      writeFileSync(stampFile, stamp);
    }
    await run('cmake', ['--build', dir, '--parallel', String(availableParallelism()), ...targets.flatMap((t) =>
      ['--target', t])], {
      cwd: ROOT, env, topic: 'build', title: `building ${preset}`,
      progress: (line) => /^\[(\d+\/\d+)\]/.exec(line)?.[1],
      cure: `mend the error above; if it is not in the sources, delete ${dir} and run again`,
    });
    say('build', `${preset}: ready in ${seconds(begun)}`);
    return dir;
  });
}

/** Builds the native library, tests and the conformance runner into build/native (or build/sanitize). */
export async function buildNative({ preset = 'native', targets = [] } = {}) {
  await ensureBuildTools();
  const sources = await ensureSources();
  const cxx = await nativeCompiler();
  return build(preset, [`-DCMAKE_CXX_COMPILER=${cxx}`, ...sourceArguments(sources)], {}, targets);
}

/** Builds build/wasm-<variant>: the module (in module/) and, with all targets, the tests. */
export async function buildWasm(variant, { targets = [] } = {}) {
  if (!WASM_VARIANTS.includes(variant)) {
    throw new SetupError(`there is no WASM build "${variant}"`, `use one of ${WASM_VARIANTS.join(', ')}`);
  }
  await ensureBuildTools();
  const [emscripten, sources] = [await ensureEmscripten(), await ensureSources()];
  const toolchain = join(emscripten.root, 'cmake/Modules/Platform/Emscripten.cmake');
  if (!existsSync(toolchain)) {
    throw new SetupError(`${toolchain} is missing`, 'use a whole Emscripten installation, such as emsdk makes');
  }
  return build(`wasm-${variant}`, [`-DCMAKE_TOOLCHAIN_FILE=${toolchain}`, ...sourceArguments(sources)],
    emscripten.env, targets);
}

/**
 * Builds the WASM modules of the package and returns { glue, wasm: { simd, relaxed } }, paths.
 * The package imports one glue file for all of them: builds whose glue differs must not be shipped together.
 */
export async function buildModules() {
  const wasm = {};
  let glue;
  for (const variant of WASM_VARIANTS) {
    const dir = join(await buildWasm(variant, { targets: ['headwise_wasm'] }), 'module');
    const path = join(dir, 'headwise.mjs');
    if (glue === undefined) {
      glue = path;
    } else if (!readFileSync(glue).equals(readFileSync(path))) {
      throw new SetupError(`the JavaScript glue of ${variant} (${path}) differs from that of ${WASM_VARIANTS[0]}`,
        'make the imports and exports of the builds the same: compare the two files, then cpp/bindings and Wasm.cmake');
    }
    wasm[variant] = join(dir, 'headwise.wasm');
  }
  const text = readFileSync(glue, 'utf8');
  for (const [word, why] of [['import.meta', 'bundlers and CommonJS trip over it'], ['eval(', 'CSP forbids it'],
    ['new Function', 'CSP forbids it']]) {
    if (text.includes(word)) {
      throw new SetupError(`the JavaScript glue contains ${word}: ${why}`, 'set the flag that avoids it in Wasm.cmake');
    }
  }
  return { glue, wasm };
}

async function main(names) {
  if (names.length === 0) {
    await buildModules();
    return;
  }
  for (const name of names) {
    if (NATIVE_BUILDS.includes(name)) await buildNative({ preset: name });
    else if (name.startsWith('wasm-')) await buildWasm(name.slice('wasm-'.length));
    else {
      throw new SetupError(`there is no build "${name}"`,
        `use one of ${[...NATIVE_BUILDS, ...WASM_VARIANTS.map((v) => `wasm-${v}`)].join(', ')}`);
    }
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await runMain(() => main(process.argv.slice(2)));
