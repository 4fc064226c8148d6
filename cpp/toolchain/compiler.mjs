// The compiler of the native builds. Highway leaves its portable target EMU128 out under GCC before 14 (a compiler
// bug), and the tests want it: then Clang is taken, that of the machine or the one that came with Emscripten.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { cacheRoot } from './cache.mjs';
import { ensurePrograms, findProgram } from './debian.mjs';
import { run, say } from './log.mjs';

function privateClang() {
  for (const suite of ['trixie', 'sid']) {
    const lib = join(cacheRoot(), `emscripten-${suite}`, 'usr/lib');
    if (!existsSync(lib)) continue;
    for (const name of readdirSync(lib).filter((n) => /^llvm-\d+$/.test(n))) {
      const path = join(lib, name, 'bin/clang++');
      if (existsSync(path)) return path;
    }
  }
  return undefined;
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
