// The compiler of the native builds. Highway leaves its portable target EMU128 out under GCC before 14 (a compiler
// bug), and the tests want it: then Clang is taken, that of the machine or the one that came with Emscripten.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { cacheRoot } from './cache.mjs';
import { ensurePrograms, findProgram } from './debian.mjs';
import { run, say } from './log.mjs';

/** The Clang of a private Emscripten copy, the newest one. */
function privateClang() {
  const found = [];
  const root = cacheRoot();
  for (const entry of existsSync(root) ? readdirSync(root) : []) {
    const lib = join(root, entry, 'usr/lib');
    if (!entry.startsWith('emscripten-') || !existsSync(lib)) continue;
    found.push(...readdirSync(lib).filter((name) => /^llvm-\d+$/.test(name))
      .map((name) => join(lib, name, 'bin/clang++')).filter((path) => existsSync(path)));
  }
  return found.sort().pop();
}

/** True when `cxx` is GCC older than 14. Clang says it is GCC 4 but also defines __clang__. */
async function isOldGcc(cxx) {
  const { status, stdout } = await run(cxx, ['-dM', '-E', '-x', 'c++', '/dev/null'], { allowFailure: true });
  if (status !== 0 || /#define __clang__ /.test(stdout)) return false;
  return Number(/#define __GNUC__ (\d+)/.exec(stdout)?.[1] ?? 99) < 14;
}

/** Returns the C++ compiler for the native tests; CXX, where set, is obeyed. */
export async function nativeCompiler() {
  if (process.env.CXX) return process.env.CXX;
  // Clang needs the headers and the linker that come with GCC here, so there must be a c++ in any case.
  if (!findProgram('c++')) await ensurePrograms({ 'g++': 'g++' }, 'a C++17 compiler for the native build');
  if (!(await isOldGcc('c++'))) return 'c++';
  const clang = findProgram('clang++') ?? privateClang();
  if (!clang) {
    say('build', 'c++ is GCC before 14 and there is no clang++: the native tests run without the EMU128 target');
    return 'c++';
  }
  return clang;
}
