// Runs public conformance cases through Headwise: its JavaScript package, or with --native its C++ library.
//
//   node tests/conformance/run.mjs [--native] [--dir DIR] [--kind KIND]… [--without FEATURE]… [--all] [--verbose]
//
// The last line is `N passed, N failed, N skipped`; the exit code is 0 only if nothing failed, and 2 if the question
// itself was wrong. README.md beside this file says what the cases are.
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { SetupError } from '../../cpp/toolchain/log.mjs';
import { ROOT } from '../../cpp/toolchain/paths.mjs';
import { KINDS } from './lib/kinds.mjs';
import { DEFAULT, makeSelection } from './lib/selection.mjs';

const USAGE = `usage: node tests/conformance/run.mjs [options]
  --native           through the C++ library instead of the JavaScript package
  --dir DIR          folder of cases (default: ../shared/conformance beside the repository)
  --kind KIND        only this kind; repeatable (default: ${DEFAULT.kinds.join(', ')})
  --without FEATURE  leave out cases with this tag; repeatable (default: ${DEFAULT.without.join(', ') || 'none'})
  --all              leave out nothing but what --kind and --without say
  --verbose          say how close each passing case came`;

class UsageError extends Error {}

function parseArguments(args) {
  const options = { kinds: [], without: [] };
  const lists = { '--kind': options.kinds, '--without': options.without };
  for (let i = 0; i < args.length; ++i) {
    const [name, inline] = args[i].split(/=(.*)/s);
    const value = () => {
      const text = inline ?? args[++i];
      if (!text) throw new UsageError(`${name} needs a value`);
      return text;
    };
    if (Object.hasOwn(lists, name)) lists[name].push(...value().split(',').filter(Boolean));
    else if (name === '--dir') options.dir = value();
    else if (inline === undefined && ['--native', '--all', '--verbose', '--help'].includes(name)) {
      options[name.slice(2)] = true;
    } else {
      throw new UsageError(`unknown argument ${args[i]}`);
    }
  }
  // Else everything would be left out, and nothing would have failed.
  const unknown = options.kinds.find((kind) => !KINDS.has(kind));
  if (unknown) {
    throw new UsageError(`--kind ${unknown}: there is no such kind; use one of ${[...KINDS.keys()].join(', ')}`);
  }
  return options;
}

/** The folder of cases, or undefined when the default one is not beside this clone. */
function caseFolder(given) {
  const dir = given === undefined ? join(ROOT, '..', 'shared', 'conformance') : resolve(given);
  if (!existsSync(dir)) {
    if (given === undefined) return undefined;
    throw new UsageError(`--dir ${given}: there is no such folder`);
  }
  if (!statSync(dir).isDirectory() || !readdirSync(dir).some((name) => name.endsWith('.safetensors'))) {
    throw new UsageError(`${given ?? dir} holds no .safetensors file; give a folder of cases`);
  }
  return dir;
}

async function main(args) {
  const options = parseArguments(args);
  if (options.help) {
    console.log(USAGE);
    return 0;
  }
  const dir = caseFolder(options.dir);
  if (dir === undefined) {
    console.log('skipped: the public cases (../shared/conformance) are not beside this clone; see --dir');
    console.log('0 passed, 0 failed, 0 skipped');
    return 0;
  }
  const selection = makeSelection(options);
  if (options.native) {
    const { runNative } = await import('./lib/native.mjs');
    return runNative({ dir, selection, verbose: options.verbose });
  }
  const { loadPackage } = await import('./lib/package.mjs');
  const { runFolder } = await import('./lib/runner.mjs');
  const { builds, parseSafetensors, version } = await loadPackage();
  console.log(`cases of ${dir} through the package ${version}, builds ${builds.map(({ name }) => name).join(', ')}`);
  const { failed } = runFolder({
    dir, selection, builds, parseSafetensors, print: (line) => console.log(line), verbose: options.verbose,
  });
  return failed ? 1 : 0;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (error instanceof UsageError) console.error(`error: ${error.message}\n${USAGE}`);
  else if (error instanceof SetupError) console.error(`error: ${error.message}`);
  else console.error(error);
  process.exitCode = 2;
}
