// Panel 1: the sentence, its pieces as radio buttons, and what the model puts into blanks.
import { byId, make, percent, pieceName } from '../dom.js';
import type { Encoding } from '../models/tokenizer.js';
import type { Fill } from '../protocol.js';

const EXAMPLES = [
  'The bank had strong currents',
  'they fished from the bank of the stream',
  'the bank raised its interest rates',
  'he deposited money in the __',
];

export interface SentenceEvents {
  onText(text: string): void;
  onQuery(query: number): void;
}

export class SentencePanel {
  readonly #text = byId('text', HTMLInputElement);
  readonly #chips = byId('chips', HTMLDivElement);
  readonly #cut = byId('cut', HTMLParagraphElement);
  readonly #fills = byId('fills', HTMLDivElement);
  /** The pieces that the chips show; typing that changes nothing keeps them, and the focus with them. */
  #shown = '';

  constructor(events: SentenceEvents) {
    this.#text.addEventListener('input', () => events.onText(this.#text.value));
    this.#chips.addEventListener('change', (event) => events.onQuery(Number((event.target as HTMLInputElement).value)));
    for (const example of EXAMPLES) {
      const button = make('button', { type: 'button', className: 'example' }, example);
      button.addEventListener('click', () => {
        this.#text.value = example;
        events.onText(example);
      });
      byId('examples', HTMLDivElement).append(button);
    }
  }

  setText(text: string): void {
    this.#text.value = text;
  }

  showPieces(encoding: Encoding, query: number, limit: number): void {
    const { pieces, words, dropped } = encoding;
    const shown = JSON.stringify([pieces, words]);
    if (shown !== this.#shown) {
      this.#shown = shown;
      this.#chips.replaceChildren(
        ...words.map(({ text, start, end }) => {
          const chips = pieces.slice(start, end).map((piece, i) => chip(piece, start + i));
          if (end - start === 1) return make('span', { className: 'word' }, ...chips);
          const row = make('span', { className: 'joined' }, ...chips);
          return make('span', { className: 'word' }, row, make('span', { className: 'whole' }, text));
        }),
      );
    }
    for (const input of this.#chips.querySelectorAll('input')) input.checked = Number(input.value) === query;
    this.#cut.hidden = dropped === '';
    this.#cut.textContent =
      dropped === ''
        ? ''
        : `The model reads ${limit} pieces at most, [CLS] and [SEP] included. Left out: “${shorten(dropped)}”`;
  }

  showFills(fills: readonly Fill[]): void {
    this.#fills.hidden = fills.length === 0;
    this.#fills.replaceChildren(
      ...fills.map(({ words }, i) => {
        const title = fills.length > 1 ? `Blank ${i + 1}: the model’s guesses` : 'The model’s guesses for the blank';
        return make(
          'div',
          { className: 'fill' },
          make('p', { className: 'fill-title' }, title),
          make(
            'ol',
            {},
            ...words.map(({ text, probability }) =>
              make('li', {}, pieceName(text), ' ', make('span', { className: 'number' }, percent(probability, 1))),
            ),
          ),
        );
      }),
    );
  }
}

const shorten = (text: string): string => (text.length > 60 ? `${text.slice(0, 60)}…` : text);

function chip(piece: string, position: number): HTMLLabelElement {
  const special = piece.startsWith('[') && piece.length > 1;
  return make(
    'label',
    { className: special ? 'chip special' : 'chip' },
    make('input', { type: 'radio', name: 'query', value: String(position) }),
    make('span', {}, pieceName(piece)),
  );
}
