// The state of the page in its address, so that a link shows what its sender saw: #t=The+bank…&q=2&l=1&h=4, only what
// differs from the start.

export interface PageState {
  text: string;
  /** The asking piece. */
  query: number;
  /** Layer and head of the close-up, from 0 (from 1 in the address, as the page counts). */
  layer: number;
  head: number;
}

export const START: Readonly<PageState> = { text: 'The bank had strong currents', query: 2, layer: 0, head: 3 };
const LONGEST = 600;

function whole(value: string | null, least: number, fallback: number): number {
  const number = value === null ? Number.NaN : Number(value);
  return Number.isInteger(number) && number >= least && number < 1000 ? number - least : fallback;
}

/** Reads an address; what is missing or broken falls back to the start. */
export function readState(hash: string): PageState {
  const parameters = new URLSearchParams(hash.replace(/^#/u, ''));
  return {
    text: (parameters.get('t') ?? START.text).slice(0, LONGEST),
    query: whole(parameters.get('q'), 0, START.query),
    layer: whole(parameters.get('l'), 1, START.layer),
    head: whole(parameters.get('h'), 1, START.head),
  };
}

/** Whether an address speaks of the state; `#sentence` only names a place in the page. */
export function isState(hash: string): boolean {
  const parameters = new URLSearchParams(hash.replace(/^#/u, ''));
  return [...parameters].length === 0 || ['t', 'q', 'l', 'h'].some((name) => parameters.has(name));
}

export function writeState(state: Readonly<PageState>): string {
  const parameters = new URLSearchParams();
  if (state.text !== START.text) parameters.set('t', state.text);
  if (state.query !== START.query) parameters.set('q', String(state.query));
  if (state.layer !== START.layer) parameters.set('l', String(state.layer + 1));
  if (state.head !== START.head) parameters.set('h', String(state.head + 1));
  const text = parameters.toString();
  return text === '' ? '' : `#${text}`;
}
