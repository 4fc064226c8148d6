// Prints raw, gzip and brotli sizes of every file in the packed tarball, and fails when they pass the limits.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { ROOT } from '../../cpp/toolchain/paths.mjs';
import { pack } from './pack.mjs';

export const LIMITS = { wasmBrotli: 100 * 1024, tarball: 1024 * 1024 };

/** [{ path, raw, gzip, brotli }] of files inside the package. */
export function measure(files) {
  return files.map((path) => {
    const bytes = readFileSync(join(ROOT, path));
    return {
      path,
      raw: bytes.length,
      gzip: gzipSync(bytes, { level: 9 }).length,
      brotli: brotliCompressSync(bytes).length,
    };
  });
}

/** Sentences for what is too large. */
export function overLimits(rows, tarballBytes) {
  const over = rows
    .filter(({ path, brotli }) => path.endsWith('.wasm') && brotli > LIMITS.wasmBrotli)
    .map(({ path, brotli }) => `${path} is ${brotli} bytes with brotli; at most ${LIMITS.wasmBrotli} are wanted`);
  if (tarballBytes > LIMITS.tarball) {
    over.push(`the tarball is ${tarballBytes} bytes; at most ${LIMITS.tarball} are wanted`);
  }
  return over;
}

async function main() {
  const temp = mkdtempSync(join(tmpdir(), 'headwise-size-'));
  try {
    const { files, bytes } = await pack(temp);
    const rows = measure(files);
    const line = (path, ...sizes) => `${path.padEnd(52)}${sizes.map((size) => String(size).padStart(9)).join('')}`;
    console.log(line('file', 'raw', 'gzip', 'brotli'));
    for (const { path, raw, gzip, brotli } of rows) console.log(line(path, raw, gzip, brotli));
    const sum = (key) => rows.reduce((total, row) => total + row[key], 0);
    console.log(line(`${rows.length} files`, sum('raw'), sum('gzip'), sum('brotli')));
    console.log(`tarball: ${bytes} bytes`);
    const over = overLimits(rows, bytes);
    for (const sentence of over) console.error(`error: ${sentence}`);
    return over.length > 0 ? 1 : 0;
  } finally {
    rmSync(temp, { recursive: true, force: true });
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) process.exitCode = await main();
