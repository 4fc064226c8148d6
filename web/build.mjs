// Builds web/dist, the published files: ESM and types by tsc, CommonJS by esbuild, the glue and the .wasm by the
// toolchain. Nothing is bundled, so what a stack trace names is a file of web/src.
//
//   node web/build.mjs [--no-wasm]     --no-wasm takes the WASM modules as they lie in build/
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { WASM_VARIANTS, buildModules } from '../cpp/toolchain/build.mjs';
import { lockFolder } from '../cpp/toolchain/cache.mjs';
import { SetupError, run, runMain, say, seconds } from '../cpp/toolchain/log.mjs';
import { ensureNodeModules } from '../cpp/toolchain/node-modules.mjs';
import { BUILD, ROOT, buildDir } from '../cpp/toolchain/paths.mjs';

const SOURCE = join(ROOT, 'web/src');
const DIST = join(ROOT, 'web/dist');
/** Built here, then renamed: a test that runs beside a build never sees half a package. */
const FRESH = join(BUILD, 'dist-fresh');
/** What DIST was made from: nothing is done when that has not changed. */
const STAMP = join(BUILD, 'dist-inputs');

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));

/** The modules as an earlier build left them. */
function builtModules() {
  const wasm = Object.fromEntries(
    WASM_VARIANTS.map((variant) => [variant, join(buildDir(`wasm-${variant}`), 'module/headwise.wasm')]),
  );
  const glue = join(buildDir(`wasm-${WASM_VARIANTS[0]}`), 'module/headwise.mjs');
  for (const path of [glue, ...Object.values(wasm)]) {
    if (!existsSync(path)) throw new SetupError(`${path} is missing`, 'run node web/build.mjs without --no-wasm');
  }
  return { glue, wasm };
}

function inputsHash({ glue, wasm }) {
  const files = [
    ...readdirSync(SOURCE, { recursive: true }).sort().map((name) => join(SOURCE, name)),
    ...['package.json', 'package-lock.json', 'tsconfig.json', 'tsconfig.base.json', 'web/build.mjs'].map((name) =>
      join(ROOT, name)),
    glue, ...Object.values(wasm),
  ].filter((path) => statSync(path).isFile());
  const hash = createHash('sha256');
  for (const path of files) hash.update(`${path} `).update(readFileSync(path));
  return hash.digest('hex');
}

async function buildEsm(glue) {
  await run(process.execPath, [
    join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', join(ROOT, 'tsconfig.json'),
    '--noEmit', 'false', '--outDir', FRESH,
  ], { cwd: ROOT, topic: 'package', title: 'tsc', cure: 'mend the type errors above' });
  // These two have types in TypeScript only. The glue's are for this package alone.
  cpSync(glue, join(FRESH, 'glue.js'));
  cpSync(join(SOURCE, 'version.d.ts'), join(FRESH, 'version.d.ts'));
  writeFileSync(join(FRESH, 'version.js'), `export const VERSION = ${JSON.stringify(version)};\n`);
}

/** The same files as CommonJS, with the same types, in a folder that says so. */
async function buildCommonJs() {
  const esbuild = createRequire(join(ROOT, 'package.json'))('esbuild');
  const cjs = join(FRESH, 'cjs');
  mkdirSync(cjs);
  for (const name of readdirSync(FRESH)) {
    if (name.endsWith('.d.ts')) cpSync(join(FRESH, name), join(cjs, name));
    if (!name.endsWith('.js')) continue;
    const text = readFileSync(join(FRESH, name), 'utf8');
    const usesUrl = text.includes('import.meta.url');
    const { code, warnings } = await esbuild.transform(text, {
      format: 'cjs', target: 'es2022', sourcefile: name,
      define: { 'import.meta.url': 'moduleUrl' },
      // The .wasm files lie beside the ESM files, one folder up.
      banner: usesUrl
        ? 'const moduleUrl = require("node:url").pathToFileURL(require("node:path").join(__dirname, "../x.js")).href;'
        : '',
    });
    if (warnings.length > 0) throw new SetupError(`${name}: ${warnings[0].text}`, 'write it so that CommonJS can have it');
    writeFileSync(join(cjs, name), code);
  }
  writeFileSync(join(cjs, 'package.json'), '{ "type": "commonjs" }\n');
}

export async function buildPackage({ wasm: withWasm = true } = {}) {
  const begun = Date.now();
  await ensureNodeModules();
  const modules = withWasm ? await buildModules() : builtModules();
  await lockFolder(join(BUILD, '.package-lock'), 'the package', async () => {
    const inputs = inputsHash(modules);
    if (existsSync(DIST) && existsSync(STAMP) && readFileSync(STAMP, 'utf8') === inputs) return;
    rmSync(STAMP, { force: true });
    rmSync(FRESH, { recursive: true, force: true });
    mkdirSync(join(FRESH, 'wasm'), { recursive: true });
    await buildEsm(modules.glue);
    await buildCommonJs();
    for (const [variant, path] of Object.entries(modules.wasm)) {
      cpSync(path, join(FRESH, 'wasm', `headwise.${variant}.wasm`));
    }
    rmSync(DIST, { recursive: true, force: true });
    renameSync(FRESH, DIST);
    writeFileSync(STAMP, inputs);
  });
  say('package', `web/dist of ${version}: ready in ${seconds(begun)}`);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  await runMain(async () => {
    await buildPackage({ wasm: !process.argv.includes('--no-wasm') });
  });
}
