// A text file with one letter or mark on each line; the line is the id.
import { utf8 } from './shared-models.js';

export class Vocabulary {
  readonly #entries: readonly string[];

  constructor(bytes: Uint8Array) {
    this.#entries = utf8(bytes).replace(/\n$/, '').split('\n');
  }

  /** The model has one row more, for what is not in the file. */
  get size(): number {
    return this.#entries.length + 1;
  }

  id(entry: string): number {
    const id = this.#entries.indexOf(entry);
    return id < 0 ? this.#entries.length : id;
  }

  entry(id: number): string {
    return this.#entries[id] ?? '?';
  }
}
