// The WASM modules as they were built: what a wrong flag would change without any test of results noticing.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { brotliCompressSync } from 'node:zlib';
import { buildModules } from '../../cpp/toolchain/build.mjs';
import { relaxedSimdFlags } from './relaxed-simd.mjs';

const MAX_BROTLI_BYTES = 100 * 1024;
const { glue, wasm } = await buildModules();
const bytes = Object.fromEntries(Object.entries(wasm).map(([variant, path]) => [variant, readFileSync(path)]));

/** How often an opcode's bytes occur; data may hold them by chance, so small numbers mean nothing. */
function occurrences(buffer, ...opcode) {
  const wanted = Buffer.from(opcode);
  let count = 0;
  for (let at = buffer.indexOf(wanted); at >= 0; at = buffer.indexOf(wanted, at + 1)) count += 1;
  return count;
}

test('the relaxed build fuses multiply and add, the plain one does not', () => {
  const relaxedMadd = [0xfd, 0x85, 0x02];
  assert.ok(occurrences(bytes.relaxed, ...relaxedMadd) >= 20);
  assert.ok(occurrences(bytes.simd, ...relaxedMadd) < 3);
});

test('both builds compute with vectors (B-01)', () => {
  const vectorLoad = [0xfd, 0x00];
  for (const variant of Object.keys(bytes)) assert.ok(occurrences(bytes[variant], ...vectorLoad) > 50, variant);
});

test('imports and exports are the same, so that one glue serves both', () => {
  const script = `
    const module = new WebAssembly.Module(require('fs').readFileSync(process.argv[1]));
    console.log(JSON.stringify([WebAssembly.Module.imports(module), WebAssembly.Module.exports(module)]));`;
  const shape = (path) => execFileSync(process.execPath, [...relaxedSimdFlags, '-e', script, path],
    { encoding: 'utf8' });
  assert.match(shape(wasm.simd), /memory/);
  assert.equal(shape(wasm.relaxed), shape(wasm.simd));
});

test('no eval in the glue, nothing of Node, no path to the .wasm', () => {
  const text = readFileSync(glue, 'utf8');
  for (const word of ['eval(', 'new Function', 'import.meta', 'require(', 'process.']) {
    assert.ok(!text.includes(word), word);
  }
});

test('no function that engines may round differently reaches the module', () => {
  // It brings its own; what the glue handed in would be the engine's.
  assert.deepEqual(readFileSync(glue, 'utf8').match(/Math\.(?:a?(?:sin|cos|tan)h?|exp|log|pow)\w*/g), null);
});

test('each module is at most 100 KB after brotli', () => {
  for (const [variant, buffer] of Object.entries(bytes)) {
    const size = brotliCompressSync(buffer).length;
    assert.ok(size <= MAX_BROTLI_BYTES, `${variant}: ${size} bytes`);
  }
});
