// The models are data of other projects, read where they lie: in ../shared/models beside the clone, or not at all.
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { describe, test } from 'vitest';

const FOLDER = new URL('../../../../shared/models/', import.meta.url);

/** A file of one model, by name. */
export type ReadModelFile = (name: string) => Promise<Uint8Array>;

/** Tests of a model; where its folder is absent, one skipped test that says so. */
export function describeModel(name: string, body: (read: ReadModelFile) => void): void {
  const folder = new URL(`${name}/`, FOLDER);
  if (existsSync(folder)) {
    describe(name, () => body((file) => readFile(new URL(file, folder))));
  } else {
    test.skip(`${name}: ../shared/models/${name} is not beside this clone`);
  }
}

export const utf8 = (bytes: Uint8Array): string => new TextDecoder('utf-8', { fatal: true }).decode(bytes);

export function float32(bytes: Uint8Array): Float32Array {
  // Of a copy: a view must begin at a multiple of four, and the bytes of a file need not. (slice() of a Node Buffer
  // copies nothing.)
  return new Float32Array(new Uint8Array(bytes).buffer);
}
