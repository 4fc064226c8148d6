// Text → word pieces of wordnet-nano's vocabulary.
//
// The text is lower-cased and split into runs of [a-z0-9] and single other characters; white space only separates.
// Each word is then read greedily, longest piece first; pieces that continue a word carry "##" in the vocabulary.

export interface Word {
  /** As the text has it, lower-cased. */
  readonly text: string;
  /** Its pieces are ids[start … end − 1]. */
  readonly start: number;
  readonly end: number;
}

export interface Encoding {
  readonly ids: readonly number[];
  /** The pieces as the vocabulary spells them, "##" included. */
  readonly pieces: readonly string[];
  readonly words: readonly Word[];
  /** Text that did not fit and was left out; empty when all of it fits. */
  readonly dropped: string;
}

const CLS = '[CLS]';
const SEP = '[SEP]';
const MASK = '[MASK]';
const UNKNOWN = '[UNK]';

// A run of underscores is how people write a blank; the model's own name for it is [MASK].
const WORD = /\[mask\]|_{2,}|[a-z0-9]+|[^\sa-z0-9]/gu;

export class Tokenizer {
  readonly #ids: ReadonlyMap<string, number>;
  readonly #pieces: readonly string[];
  readonly #longest: number;

  /** `vocabulary`: one piece per line; the line number is the id. */
  constructor(vocabulary: string) {
    this.#pieces = vocabulary.split(/\r?\n/u).filter((piece) => piece !== '');
    this.#ids = new Map(this.#pieces.map((piece, id) => [piece, id]));
    this.#longest = Math.max(...this.#pieces.map((piece) => piece.length));
    for (const piece of [CLS, SEP, MASK, UNKNOWN]) {
      if (!this.#ids.has(piece)) {
        throw new Error(`the vocabulary has ${this.#pieces.length} pieces, but ${piece} is not among them`);
      }
    }
  }

  get size(): number {
    return this.#pieces.length;
  }

  get maskId(): number {
    return this.#id(MASK);
  }

  piece(id: number): string {
    const piece = this.#pieces[id];
    if (piece === undefined) throw new RangeError(`piece(): id ${id} is not below ${this.#pieces.length}`);
    return piece;
  }

  /** `[CLS] … [SEP]`, at most `limit` pieces; whole words that do not fit are dropped. */
  encode(text: string, limit: number): Encoding {
    const pieces = [CLS];
    const words: Word[] = [{ text: CLS, start: 0, end: 1 }];
    const lower = text.toLowerCase();
    let dropped = '';
    for (const match of lower.matchAll(WORD)) {
      const word = match[0];
      const parts = this.#split(word);
      if (pieces.length + parts.length > limit - 1) {
        dropped = lower.slice(match.index).trim();
        break;
      }
      const start = pieces.length;
      pieces.push(...parts);
      words.push({ text: parts[0] === MASK ? MASK : word, start, end: pieces.length });
    }
    words.push({ text: SEP, start: pieces.length, end: pieces.length + 1 });
    pieces.push(SEP);
    return { ids: pieces.map((piece) => this.#id(piece)), pieces, words, dropped };
  }

  #split(word: string): string[] {
    if (word === '[mask]' || word.startsWith('__')) return [MASK];
    const parts: string[] = [];
    for (let at = 0; at < word.length;) {
      const prefix = at === 0 ? '' : '##';
      let end = Math.min(word.length, at + this.#longest);
      while (end > at && !this.#ids.has(prefix + word.slice(at, end))) --end;
      // One unreadable letter makes the whole word unknown: half a word would be a different word.
      if (end === at) return [UNKNOWN];
      parts.push(prefix + word.slice(at, end));
      at = end;
    }
    return parts;
  }

  #id(piece: string): number {
    const id = this.#ids.get(piece);
    if (id === undefined) throw new Error(`the vocabulary has no ${piece}`);
    return id;
  }
}
