// The C++ runner: built when it is out of date, then run with the selection spelt out, so that the default selection
// is written once.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { buildNative } from '../../../cpp/toolchain/build.mjs';
import { SetupError } from '../../../cpp/toolchain/log.mjs';
import { KINDS } from './kinds.mjs';

const TARGET = 'headwise_conformance';

async function program() {
  const dir = await buildNative({ targets: [TARGET] });
  const path = ['tests/cpp', 'tests/conformance', 'bin', '.'].map((folder) => join(dir, folder, TARGET))
    .find((candidate) => existsSync(candidate));
  if (!path) {
    throw new SetupError(`${TARGET} was built, but is not where it should be in ${dir}`,
      'see where tests/cpp/CMakeLists.txt puts it');
  }
  return path;
}

/** Resolves to the runner's exit code. */
export async function runNative({ dir, selection, verbose }) {
  const path = await program();
  const args = ['--dir', dir];
  for (const kind of selection.kinds) args.push('--kind', kind);
  for (const kind of KINDS.keys()) args.push('--known-kind', kind);
  if (selection.unknownKindsFail) args.push('--unknown-kinds-fail');
  for (const feature of selection.without) args.push('--without', feature);
  if (verbose) args.push('--verbose');
  return new Promise((resolve, reject) => {
    const child = spawn(path, args, { stdio: 'inherit' });
    child.on('error', (error) => reject(new SetupError(`cannot start ${path}: ${error.message}`, 'build it anew')));
    child.on('close', (code, signal) => {
      if (signal) console.error(`error: ${path} was ended by ${signal}`);
      resolve(code ?? 1);
    });
  });
}
