// Every suite of `npm test`, in order. To add one, add an entry:
//   id        for --only
//   title     the line in the closing table
//   needs     what prepare.mjs makes first
//   command   (reportFile) => [program, ...arguments]
//   parse     one of parsers.mjs, called with { reportFile, output }
//   absent    optional: () => a sentence when the suite cannot run here (its subject is not in this clone)
//   progress  optional: turns an output line into a short progress text
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { BUILD, ROOT } from '../../cpp/toolchain/paths.mjs';
import { parseClosingLine, parseGtest, parseTap, parseVitest } from './parsers.mjs';
import { relaxedSimdFlags } from './relaxed-simd.mjs';

const node = process.execPath;
/** For `absent`: data that stands beside the clone and is not part of it. */
const absentWithout = (name, what) => () => existsSync(join(ROOT, '..', 'shared', name)) ? undefined
  : `${what} (../shared/${name}) are not beside this clone`;

const gtestProgress = (line) => /^\[ RUN +\] (.*)/.exec(line)?.[1];

function gtest(id, title, build, program, { flags = [] } = {}) {
  const path = join(BUILD, build, 'tests/cpp', program);
  return {
    id,
    title,
    needs: [build],
    command: (reportFile) =>
      [...(program.endsWith('.js') ? [node, ...flags] : []), path, `--gtest_output=json:${reportFile}`],
    parse: parseGtest,
    progress: gtestProgress,
  };
}

function vitest(id, title, project, needs, more = {}) {
  return {
    id,
    title,
    needs,
    command: (reportFile) => [node, join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--config',
      'tests/vitest.config.mjs', '--project', project, '--reporter=default', '--reporter=json',
      `--outputFile.json=${reportFile}`],
    parse: parseVitest,
    progress: (line) => /^\s*[✓❯×] (.*)/u.exec(line)?.[1],
    ...more,
  };
}

function conformance(id, title, needs, flags) {
  return {
    id,
    title,
    needs,
    absent: absentWithout('conformance', 'the public cases'),
    // Every build that the engine has, behind a flag or not.
    command: () => [node, ...relaxedSimdFlags, join(ROOT, 'tests/conformance/run.mjs'), ...flags],
    parse: parseClosingLine,
  };
}

/** Whether every known failure and every demanded behaviour has a test. */
const behaviours = {
  id: 'behaviours',
  title: 'known failures that have a test',
  needs: ['nodeModules'],
  absent: absentWithout('known-failures.md', 'the lists of behaviours'),
  command: () => [node, join(ROOT, 'tests/behaviours/run.mjs')],
  parse: parseClosingLine,
};

/** A suite of Node's own test runner: every *.test.mjs of a folder. */
function nodeTests(id, title, folder, needs) {
  return {
    id,
    title,
    needs,
    command: () => [node, '--test', '--test-reporter=tap', ...readdirSync(join(ROOT, folder)).sort()
      .filter((name) => name.endsWith('.test.mjs')).map((name) => join(ROOT, folder, name))],
    parse: parseTap,
    progress: (line) => /^\s*# Subtest: (.*)/.exec(line)?.[1],
  };
}

export const SUITES = [
  nodeTests('setup', 'set-up and build tests', 'tests/lib', ['native', 'wasm-simd', 'wasm-relaxed', 'package']),
  gtest('native', 'native tests', 'native', 'headwise_tests'),
  gtest('wasm', 'WASM tests, shipped archive', 'wasm-simd', 'headwise_tests.js'),
  gtest('wasm-all-targets', 'WASM tests, every target', 'wasm-simd', 'headwise_tests_all_targets.js'),
  gtest('wasm-relaxed', 'WASM tests, relaxed SIMD', 'wasm-relaxed', 'headwise_tests.js', { flags: relaxedSimdFlags }),
  nodeTests('conformance-runner', 'conformance runner tests', 'tests/conformance', ['package', 'native']),
  conformance('conformance', 'conformance, JavaScript', ['package'], []),
  conformance('conformance-native', 'conformance, native', ['native'], ['--native']),
  nodeTests('behaviours-script', 'coverage script tests', 'tests/behaviours', ['nodeModules']),
  behaviours,
  vitest('web', 'package tests, sources', 'web', ['package']),
  vitest('models', 'package tests, published models', 'models', ['package'], {
    absent: absentWithout('models', 'the models'),
  }),
  vitest('package', 'package tests, tarball', 'package', ['package']),
  vitest('browser', 'browser tests', 'browser', ['package', 'demo', 'chromium']),
  vitest('engines', 'the same bits in every engine', 'engines', ['package', 'chromium', 'firefox', 'webkit']),
];
