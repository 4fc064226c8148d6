// Runs the cases of a folder and judges them.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { runCases } from './cases.mjs';

/** Files of cases, and those that index.json lists but the folder lacks. */
export function listCases(dir) {
  const files = readdirSync(dir).filter((name) => name.endsWith('.safetensors')).sort();
  const index = join(dir, 'index.json');
  if (!existsSync(index)) return { files, problems: [] };
  try {
    const listed = JSON.parse(readFileSync(index, 'utf8')).map((entry) => String(entry.file));
    const present = new Set(files);
    return {
      files,
      problems: listed.filter((name) => !present.has(name))
        .map((name) => ({ file: name, problem: 'is listed in index.json, but missing' })),
    };
  } catch (error) {
    return { files, problems: [{ file: 'index.json', problem: `cannot be read: ${error.message}` }] };
  }
}

/** Runs every selected case of `dir`; the other options are those of runCases(). */
export function runFolder({ dir, ...options }) {
  return runCases({ ...listCases(dir), read: (file) => new Uint8Array(readFileSync(join(dir, file))), ...options });
}
