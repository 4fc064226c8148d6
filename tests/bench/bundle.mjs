// The package as a page would ship it: one minified file and the .wasm beside it. And what that weighs.
import { copyFileSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync } from 'node:zlib';
import { build } from 'esbuild';
import { BUILD, ROOT } from '../../cpp/toolchain/paths.mjs';

const DIST = join(ROOT, 'web/dist');
const BUNDLE = join(BUILD, 'bench/bundle');

/** Lays the bundle and returns { build: bytes of its JavaScript and its one .wasm, brotli }. */
export async function bundleSizes() {
  mkdirSync(join(BUNDLE, 'wasm'), { recursive: true });
  await build({
    entryPoints: [join(DIST, 'index.js')], outfile: join(BUNDLE, 'headwise.js'), bundle: true, minify: true,
    format: 'esm', logLevel: 'error',
  });
  const brotli = (path) => brotliCompressSync(readFileSync(path)).length;
  const script = brotli(join(BUNDLE, 'headwise.js'));
  const sizes = {};
  for (const file of readdirSync(join(DIST, 'wasm')).filter((name) => name.endsWith('.wasm'))) {
    copyFileSync(join(DIST, 'wasm', file), join(BUNDLE, 'wasm', file));
    sizes[file.split('.').at(-2)] = script + brotli(join(DIST, 'wasm', file));
  }
  return sizes;
}
