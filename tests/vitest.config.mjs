// Five projects: `web` tests the built package in Node, `models` runs published models on it, `package` tests its
// tarball, `browser` the package in Chromium, and `engines` compares the bits of every engine there is.
// Each is run by `npm test`, or alone: npx vitest run --config tests/vitest.config.mjs --project web
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

const root = fileURLToPath(new URL('..', import.meta.url));
const dist = `${root}web/dist/`;

// (module (func (result v128) … f32x4.relaxed_madd)). Node 20 has relaxed SIMD, but behind a flag.
const RELAXED_PROBE = [
  [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 19, 1, 17, 0],
  [65, 0, 253, 17, 65, 0, 253, 17, 65, 0, 253, 17, 253, 133, 2, 11],
].flat();
const hasRelaxed = WebAssembly.validate(new Uint8Array(RELAXED_PROBE));

const project = (name, include, timeoutMs, more = {}) => ({
  // The package by its name, as users import it; its files are not transformed.
  resolve: {
    alias: [
      { find: /^headwise$/, replacement: `${dist}node.js` },
      { find: /^headwise\/safetensors$/, replacement: `${dist}safetensors.js` },
    ],
  },
  test: {
    name,
    root,
    include,
    environment: 'node',
    testTimeout: timeoutMs,
    hookTimeout: timeoutMs,
    server: { deps: { external: [/\/web\/dist\//] } },
    ...more,
  },
});

const everyBuild = { execArgv: hasRelaxed ? [] : ['--experimental-wasm-relaxed-simd'] };

export default defineConfig({
  root,
  test: {
    // The machine may be small, and one browser or one npm at a time is enough.
    maxWorkers: 2,
    projects: [
      project(
        'web',
        ['tests/web/*.test.ts', 'tests/web/known-failures/*.test.ts', 'tests/web/behaviours/*.test.ts'],
        30_000,
        everyBuild,
      ),
      project('models', ['tests/web/models/*.test.ts'], 30_000, everyBuild),
      project('package', ['tests/package/*.test.ts'], 300_000, {
        fileParallelism: false,
        globalSetup: ['tests/package/setup.mjs'],
      }),
      project('browser', ['tests/web/browser/*.test.ts'], 120_000, { fileParallelism: false }),
      project('engines', ['tests/web/engines/*.test.ts'], 120_000, { fileParallelism: false }),
    ],
  },
});
