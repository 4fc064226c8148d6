// Packs the package as `npm publish` would, and installs the tarball in an empty folder.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../../cpp/toolchain/paths.mjs';

const execute = promisify(execFile);

/** { tarball, bytes, files } of a fresh tarball in `dir`. */
export async function pack(dir) {
  const { stdout } = await execute('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', dir], {
    cwd: ROOT,
    maxBuffer: 1 << 26,
  });
  // npm 12 gives an object by package name, earlier ones an array.
  const answer = JSON.parse(stdout);
  const packed = Array.isArray(answer) ? answer[0] : Object.values(answer)[0];
  return {
    tarball: join(dir, packed.filename),
    bytes: packed.size,
    files: packed.files.map(({ path }) => path),
  };
}

/** Makes an empty project in `dir` with the tarball as its only dependency; needs no network. */
export async function install(tarball, dir) {
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, 'package.json'), '{ "name": "consumer", "private": true }\n');
  await execute('npm', ['install', '--offline', '--no-audit', '--no-fund', '--ignore-scripts', tarball], { cwd: dir });
}

/** Packs and installs below a temporary folder; `remove()` when done. */
export async function packAndInstall() {
  const temp = mkdtempSync(join(tmpdir(), 'headwise-package-'));
  const packed = await pack(temp);
  const consumer = join(temp, 'consumer');
  await install(packed.tarball, consumer);
  return { ...packed, consumer, remove: () => rmSync(temp, { recursive: true, force: true }) };
}
