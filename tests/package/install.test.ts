// The tarball in an empty folder: imported, required, compiled and bundled as users do.
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../../cpp/toolchain/paths.mjs';
import { NODE_VERSIONS, ensureNode, nodeVersionsAbsent } from './node-versions.mjs';
import { packed } from './packed.js';

const execute = promisify(execFile);
const { consumer, tarball } = packed();
const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };

beforeAll(() => cpSync(join(ROOT, 'tests/package/consumer'), consumer, { recursive: true }));

/** What the documentation names (known failure A-16). */
const NAMES = [
  [
    'BlockMask',
    'HeadwiseError',
    'HeadwiseLoadError',
    'HeadwiseMemoryError',
    'HeadwiseRangeError',
    'HeadwiseTypeError',
    'KvCache',
  ],
  ['Linear', 'MultiHeadAttention', 'SafetensorsError', 'StateDictError', 'UseAfterDisposeError', 'alibiSlopes'],
  ['attentionTile', 'detectFeatures', 'headStatistics', 'inspect', 'isHeadwiseError', 'load', 'mergeAttention'],
  ['perScore', 'relativePositionBias', 'rotaryEmbedding', 'scaledDotProductAttention', 'version'],
].flat();
const SAFETENSORS_NAMES = [
  ...['SafetensorsError', 'bfloat16ToFloat32', 'float16ToFloat32', 'float16ToNumber'],
  ...['parseSafetensors', 'serializeSafetensors'],
];

interface Smoke {
  readonly results: Record<
    string,
    { output: number[]; weights: number[]; simdTarget: string; runtimeVersion: string; error: string }
  >;
  readonly best: string;
  readonly names: [string[], string[]];
  readonly version: string;
  readonly wasm: string;
  readonly node: string;
}

function checkSmoke(stdout: string, major: string, flagged = false): void {
  const smoke = JSON.parse(stdout) as Smoke;
  expect(smoke.node.startsWith(`v${major}.`)).toBe(true);
  expect(smoke.names).toEqual([NAMES, SAFETENSORS_NAMES]);
  expect(smoke.version).toBe(version);
  expect(smoke.wasm).toMatch(/headwise\.simd\.wasm$/);
  const relaxed = flagged || Number(major) >= 22;
  expect(Object.keys(smoke.results)).toEqual(relaxed ? ['simd', 'relaxed'] : ['simd']);
  expect(smoke.best).toBe(relaxed ? 'relaxed' : 'simd');
  for (const [variant, { output, weights, simdTarget, runtimeVersion, error }] of Object.entries(smoke.results)) {
    const want = [0.731059, 0.268941, 0.5, 0.5, 0.5, 0.5, 0.017986, 0.982014];
    weights.forEach((weight, i) => expect(weight).toBeCloseTo(want[i]!, 5));
    [0.731059, 1, 0.5, 1.964028].forEach((value, i) => expect(output[i]).toBeCloseTo(value, 5));
    expect(simdTarget).toBe(variant === 'relaxed' ? 'WASM+relaxed' : 'WASM');
    expect(runtimeVersion).toBe(version);
    expect(error).toBe('wrong-shape');
  }
}

describe.each(Object.keys(NODE_VERSIONS))('Node %s', (major) => {
  const absent = process.versions.node.startsWith(`${major}.`) ? undefined : nodeVersionsAbsent();
  test.skipIf(absent)(`imports and requires it${absent ? ` (skipped: ${absent})` : ''}`, async () => {
    const node = await ensureNode(Number(major));
    for (const script of ['smoke.mjs', 'smoke.cjs']) {
      const { stdout, stderr } = await execute(node, [script], { cwd: consumer });
      checkSmoke(stdout, major);
      expect(stderr).toBe('');
    }
  });
});

test.runIf(process.versions.node.startsWith('20.'))('Node 20 runs the relaxed build behind its flag', async () => {
  const { stdout } = await execute(process.execPath, ['--experimental-wasm-relaxed-simd', 'smoke.mjs'], {
    cwd: consumer,
  });
  checkSmoke(stdout, '20', true);
});

describe('types, in strict mode (known failure A-09)', () => {
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
  const cases: [module: string, resolution: string, extension: string, more: object][] = [
    ['Node16', 'Node16', 'mts', {}],
    ['Node16', 'Node16', 'cts', {}],
    ['NodeNext', 'NodeNext', 'mts', {}],
    ['NodeNext', 'NodeNext', 'cts', {}],
    ['ESNext', 'Bundler', 'ts', {}],
    ['ESNext', 'Bundler', 'ts', { exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true }],
    ['CommonJS', 'Node10', 'ts', {}],
    // Without the DOM, as Node projects do it.
    ['NodeNext', 'NodeNext', 'mts', { lib: ['ES2022'], types: ['node'] }],
  ];
  test.each(cases)('module %s, resolution %s, .%s, %o', async (module, moduleResolution, extension, more) => {
    const dir = join(consumer, `types-${module}-${moduleResolution}-${extension}-${Object.keys(more).join('-')}`);
    mkdirSync(dir, { recursive: true });
    cpSync(join(consumer, 'types.ts'), join(dir, `use.${extension}`));
    // Of the packages for tests, a consumer has these types at most.
    const types = join(consumer, 'node_modules/@types');
    if (!existsSync(types)) symlinkSync(join(ROOT, 'node_modules/@types'), types);
    const compilerOptions = {
      ...{ module, moduleResolution, strict: true, noEmit: true, skipLibCheck: false, target: 'ES2022', types: [] },
      ...more,
    };
    writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: [`use.${extension}`] }));
    const { stdout } = await execute(process.execPath, [tsc, '-p', dir]).catch((error: { stdout: string }) => error);
    expect(stdout).toBe('');
  });
});

test('publint finds nothing', async () => {
  const { stdout } = await execute(process.execPath, [
    join(ROOT, 'node_modules/publint/src/cli.js'),
    tarball,
    '--strict',
  ]);
  expect(stdout).toContain('All good!');
});

test('are the types wrong? They are not', async () => {
  const cli = join(ROOT, 'node_modules/@arethetypeswrong/cli/dist/index.js');
  // Only the .wasm files have no types, and need none.
  const args = [cli, tarball, '--format', 'json', '--exclude-entrypoints', './wasm/*'];
  const { stdout } = await execute(process.execPath, args, { maxBuffer: 1 << 26 }).catch(
    (error: { stdout: string }) => error,
  );
  const { problems, analysis } = JSON.parse(stdout) as { problems?: object; analysis: { problems: object[] } };
  expect([problems ?? {}, analysis.problems]).toEqual([{}, []]);
});

test('Vite bundles it: both .wasm files are emitted, nothing is warned about', async () => {
  const app = join(consumer, 'app');
  mkdirSync(app);
  writeFileSync(join(app, 'index.html'), '<!doctype html><script type="module" src="main.js"></script>');
  writeFileSync(
    join(app, 'main.js'),
    "import { load } from 'headwise';\nimport { parseSafetensors } from 'headwise/safetensors';\nload().then(parseSafetensors);\n",
  );
  const { stdout, stderr } = await execute(process.execPath, [
    join(ROOT, 'node_modules/vite/bin/vite.js'),
    'build',
    app,
  ]);
  const assets = readdirSync(join(app, 'dist/assets'));
  expect(
    assets
      .filter((name) => name.endsWith('.wasm'))
      .map((name) => name.split('-')[0])
      .sort(),
  ).toEqual(['headwise.relaxed', 'headwise.simd']);
  expect(`${stdout}${stderr}`).not.toMatch(/warn|externalized/i);
});

test('esbuild bundles it for browsers without a word, and finds nothing of Node', async () => {
  const entry = join(consumer, 'bundled.js');
  writeFileSync(entry, "import { load } from 'headwise';\nload({ wasmUrl: './wasm/' });\n");
  const { warnings, errors, metafile } = await build({
    entryPoints: [entry],
    bundle: true,
    format: 'esm',
    platform: 'browser',
    metafile: true,
    write: false,
    logLevel: 'silent',
  });
  expect([warnings, errors]).toEqual([[], []]);
  expect(Object.keys(metafile.inputs).some((path) => path.endsWith('web/dist/index.js'))).toBe(true);
  expect(Object.keys(metafile.inputs).some((path) => path.endsWith('web/dist/node.js'))).toBe(false);
});
