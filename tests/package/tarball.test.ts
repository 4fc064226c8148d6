// The published thing itself: what is in it, how large it is, what its files may not contain.
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { packed } from './packed.js';
import { LIMITS, measure, overLimits } from './size.mjs';
import { countOpcodes } from './wasm-opcodes.js';

const { files, bytes, consumer } = packed();
const root = join(consumer, 'node_modules/headwise');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');
interface Manifest {
  readonly exports: unknown;
  readonly main: string;
  readonly module: string;
  readonly types: string;
  readonly dependencies?: object;
}
const manifest = JSON.parse(read('package.json')) as Manifest;

test('holds the built files, the licence and the readme, and nothing else', () => {
  for (const path of files) {
    expect(path).toMatch(/^(package\.json|README\.md|LICENSE|web\/dist\/.+\.(js|d\.ts|wasm|json))$/);
  }
  expect(files).toEqual(expect.arrayContaining(['LICENSE', 'package.json', 'README.md']));
  expect(files.filter((path) => path.endsWith('.wasm'))).toEqual([
    'web/dist/wasm/headwise.relaxed.wasm',
    'web/dist/wasm/headwise.simd.wasm',
  ]);
  expect(manifest.dependencies).toBeUndefined();
});

test('every target of exports exists', () => {
  const targets: string[] = [manifest.main, manifest.module, manifest.types];
  const collect = (node: unknown): void => {
    if (typeof node === 'string') targets.push(node);
    else Object.values(node as object).forEach(collect);
  };
  collect(manifest.exports);
  expect(targets.length).toBeGreaterThan(10);
  for (const target of targets) {
    if (target.endsWith('*')) expect(existsSync(join(root, dirname(target)))).toBe(true);
    else expect(existsSync(join(root, target)), target).toBe(true);
  }
});

test('sizes are within the limits, and the limits would be noticed', () => {
  const rows = measure([...files]);
  expect(overLimits(rows, bytes)).toEqual([]);
  expect(
    overLimits([{ path: 'a.wasm', raw: 0, gzip: 0, brotli: LIMITS.wasmBrotli + 1 }], LIMITS.tarball + 1).length,
  ).toBe(2);
});

/** Files that a browser can reach from `entry` by static imports. */
function reachable(entry: string, found = new Set<string>()): Set<string> {
  if (found.has(entry)) return found;
  found.add(entry);
  for (const [, specifier] of read(entry).matchAll(/(?:from|import)\s*\(?\s*['"]([^'"]+)['"]/g)) {
    if (!specifier!.startsWith('.')) expect.fail(`${entry} imports ${specifier}`);
    reachable(join(dirname(entry), specifier!), found);
  }
  return found;
}

describe('files for browsers (known failures L-04, L-06)', () => {
  const entries = ['web/dist/index.js', 'web/dist/safetensors.js'];
  test('import nothing but each other: nothing of Node, nothing by name', () => {
    const found = entries.flatMap((entry) => [...reachable(entry)]);
    expect(found).toContain('web/dist/glue.js');
    expect(found).not.toContain('web/dist/node.js');
    for (const path of found) expect(read(path), path).not.toMatch(/['"]node:/);
  });
  test('make no code from text, fetch nothing from elsewhere', () => {
    for (const path of files.filter((name) => name.endsWith('.js'))) {
      const text = read(path);
      expect(text, path).not.toMatch(/\beval\s*\(|\bnew\s+Function\b|\bFunction\s*\(/);
      expect(text, path).not.toMatch(/https?:\/\/(?!www\.w3\.org)/);
    }
  });
  test('name the .wasm files as bundlers look for them', () => {
    const text = read('web/dist/asset-urls.js');
    for (const variant of ['simd', 'relaxed']) {
      expect(text).toContain(`new URL('./wasm/headwise.${variant}.wasm', import.meta.url)`);
    }
  });
});

describe('declarations', () => {
  test('hold no type that older TypeScript cannot read', () => {
    for (const path of files.filter((name) => name.endsWith('.d.ts'))) {
      expect(read(path), path).not.toMatch(/Array<ArrayBuffer/);
    }
  });
});

describe('instructions of the .wasm files (known failure L-17)', () => {
  const count = (variant: string) => countOpcodes(readFileSync(join(root, `web/dist/wasm/headwise.${variant}.wasm`)));
  test('simd: 128-bit SIMD, and not one relaxed instruction, which Safari would refuse', () => {
    const { instructions, simd, relaxed, atomic } = count('simd');
    expect(instructions).toBeGreaterThan(10_000);
    expect(simd).toBeGreaterThan(1000);
    expect([relaxed, atomic]).toEqual([0, 0]);
  });
  test('relaxed: has them', () => {
    const { simd, relaxed, atomic } = count('relaxed');
    expect(simd).toBeGreaterThan(1000);
    expect(relaxed).toBeGreaterThan(10);
    expect(atomic).toBe(0);
  });
  // An engine cannot replace its first, quick code of a function while that runs. A linker that merges kernels and the
  // loops around them into one function makes a first call several times slower than the next.
  test.each(['simd', 'relaxed'])('%s: the kernels are functions of their own', (variant) => {
    const { simd, simdOfOne } = count(variant);
    expect(simdOfOne).toBeGreaterThan(100);
    expect(simdOfOne).toBeLessThan(simd / 5);
  });
  test('the counter counts: one splat, three with one relaxed_madd', () => {
    const module = (...instructions: number[]): Uint8Array => {
      const body = [0, ...instructions, 0x0b];
      const head = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0];
      return Uint8Array.from([...head, 10, body.length + 2, 1, body.length, ...body]);
    };
    const splat = [0x41, 0, 0xfd, 0x11];
    expect(countOpcodes(module(...splat))).toEqual({ instructions: 3, simd: 1, relaxed: 0, atomic: 0, simdOfOne: 1 });
    const madd = countOpcodes(module(...splat, ...splat, ...splat, 0xfd, 0x85, 0x02));
    expect(madd).toEqual({ instructions: 8, simd: 4, relaxed: 1, atomic: 0, simdOfOne: 4 });
    // The bytes of relaxed_madd inside a number are no instruction.
    expect(countOpcodes(module(0xfd, 0x0c, ...Array<number>(13).fill(0), 0xfd, 0x85, 0x02)).relaxed).toBe(0);
  });
});
