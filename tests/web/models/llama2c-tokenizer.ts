// The tokenizer of llama2.c: pieces with scores, joined pair by pair, the best score first.
import { ByteReader } from './byte-reader.js';
import { utf8 } from './shared-models.js';

const START = 1;
/** The id of byte 0: every byte has a piece of its own, for what no other piece covers. */
const FIRST_BYTE = 3;

export class LlamaTokenizer {
  readonly #pieces: readonly { readonly text: string; readonly score: number }[];
  readonly #ids = new Map<string, number>();

  constructor(bytes: Uint8Array, count: number) {
    const reader = new ByteReader(bytes);
    reader.i32(); // The longest piece, which only a program with fixed buffers needs.
    this.#pieces = Array.from({ length: count }, () => {
      const score = reader.f32();
      return { score, text: utf8(reader.bytes(reader.i32())) };
    });
    if (reader.left !== 0) throw new RangeError(`${reader.left} bytes follow the last piece`);
    this.#pieces.forEach(({ text }, id) => {
      if (!this.#ids.has(text)) this.#ids.set(text, id);
    });
  }

  encode(text: string): number[] {
    if (text === '') return [START];
    const ids = [...` ${text}`].flatMap((character) => this.#ofCharacter(character));
    for (;;) {
      let best = { at: -1, id: -1, score: -Infinity };
      for (let at = 0; at + 1 < ids.length; ++at) {
        const id = this.#ids.get(this.#text(ids[at]!) + this.#text(ids[at + 1]!));
        if (id === undefined || this.#pieces[id]!.score <= best.score) continue;
        best = { at, id, score: this.#pieces[id]!.score };
      }
      if (best.at < 0) return [START, ...ids];
      ids.splice(best.at, 2, best.id);
    }
  }

  decode(ids: readonly number[]): string {
    return ids
      .filter((id) => id !== START)
      .map((id) => this.#text(id))
      .join('');
  }

  #text(id: number): string {
    return this.#pieces[id]!.text;
  }

  #ofCharacter(character: string): number[] {
    const id = this.#ids.get(character);
    return id !== undefined ? [id] : Array.from(new TextEncoder().encode(character), (byte) => byte + FIRST_BYTE);
  }
}
