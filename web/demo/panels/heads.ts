// Panel 2: one tile per head. The map is a canvas; what it says for the asking word stands below it as text, and in
// full as a table.
import { byId, make, percent } from '../dom.js';
import {
  headMap,
  inOrder,
  RELATION_NAMES,
  relationShares,
  RELATIONS,
  row,
  spread,
  type HeadMap,
} from '../head-stats.js';
import { cellAt, drawTile } from '../heatmap.js';
import { rowTable } from './row-table.js';
import type { View } from './view.js';

/** A relation is worth a label from here on; below it the head does mostly something else. */
const LABEL_FROM = 0.25;

/** A second target this strong is worth telling; many heads rest on [CLS] and look elsewhere with what remains. */
const SECOND_FROM = 0.1;

export const quoted = (names: readonly string[], query: number, key: number): string => {
  if (key === query) return 'itself';
  const name = names[key]!;
  return name.startsWith('[') ? name : `“${name}”`;
};

/** "“bank” looks at “had”, 62 %, and “strong”, 16 %" */
export function sees(names: readonly string[], query: number, keys: readonly number[], shares: Float32Array): string {
  const targets = keys.map((key) => `${quoted(names, query, key)}, ${percent(shares[key]!)}`);
  return `“${names[query]}” looks at ${targets.join(', then ')}`;
}

/** The labels of a head: relations it mostly follows, strongest first; how evenly it spreads if there are none. */
function labels(map: HeadMap): string[] {
  const shares = relationShares(map);
  const found = RELATIONS.filter((relation) => shares[relation] >= LABEL_FROM).sort((a, b) => shares[b] - shares[a]);
  if (found.length === 0) return [`spread out ${spread(map).toFixed(2)}`];
  return found.slice(0, 2).map((relation) => `${RELATION_NAMES[relation]} ${shares[relation].toFixed(2)}`);
}

export class HeadTile {
  readonly element: HTMLElement;
  readonly #canvas = make('canvas', { 'aria-hidden': 'true' });
  readonly #text = make('p', { className: 'sees' });
  readonly #labels = make('ul', { className: 'labels' });
  readonly #table = make('details', {}, make('summary', {}, 'Whole row'));
  readonly #name: string;
  #map: HeadMap | undefined;
  #view: View | undefined;

  constructor(title: HTMLElement, name: string, onQuery: (query: number) => void) {
    this.#name = name;
    this.element = make('article', { className: 'tile', 'aria-label': name });
    this.element.append(title, this.#canvas, this.#text, this.#labels, this.#table);
    this.#table.addEventListener('toggle', () => this.#fillTable());
    // A convenience for the mouse: the same facts stand in the table, and the same choice in the chips.
    this.#canvas.addEventListener('pointermove', (event) => {
      if (!this.#map) return;
      const { query, key } = cellAt(this.#canvas, this.#map.length, event);
      this.#say(query, [key]);
    });
    this.#canvas.addEventListener('pointerleave', () => this.#sayStrongest());
    this.#canvas.addEventListener('click', (event) => {
      if (this.#map) onQuery(cellAt(this.#canvas, this.#map.length, event).query);
    });
  }

  show(map: HeadMap, view: View): void {
    this.#map = map;
    this.#view = view;
    drawTile(this.#canvas, map, view.style);
    this.#labels.replaceChildren(...labels(map).map((label) => make('li', {}, label)));
    this.#sayStrongest();
    this.#fillTable();
  }

  openTable(open: boolean): void {
    this.#table.open = open;
  }

  #sayStrongest(): void {
    if (!this.#map || !this.#view) return;
    const [first, second] = inOrder(row(this.#map, this.#view.query));
    const shares = row(this.#map, this.#view.query);
    this.#say(this.#view.query, second !== undefined && shares[second]! >= SECOND_FROM ? [first!, second] : [first!]);
  }

  #say(query: number, keys: readonly number[]): void {
    if (!this.#map || !this.#view) return;
    this.#text.textContent = sees(this.#view.names, query, keys, row(this.#map, query));
  }

  #fillTable(): void {
    this.#table.querySelector('table')?.remove();
    if (!this.#table.open || !this.#map || !this.#view) return;
    const { names, query } = this.#view;
    this.#table.append(rowTable(`${this.#name}: where “${names[query]}” looks`, names, row(this.#map, query)));
  }
}

export interface HeadsEvents {
  onQuery(query: number): void;
  onHead(layer: number, head: number): void;
}

export class HeadsPanel {
  readonly #events: HeadsEvents;
  readonly #container = byId('heads', HTMLDivElement);
  readonly #allTables = byId('all-tables', HTMLInputElement);
  #tiles: HeadTile[][] = [];
  #buttons: HTMLButtonElement[][] = [];

  constructor(events: HeadsEvents) {
    this.#events = events;
    this.#allTables.addEventListener('change', () => {
      for (const tile of this.#tiles.flat()) tile.openTable(this.#allTables.checked);
    });
  }

  show(view: View): void {
    const { maps } = view;
    if (this.#tiles.length !== maps.layers || this.#tiles[0]?.length !== maps.heads)
      this.#build(maps.layers, maps.heads);
    this.#tiles.forEach((tiles, layer) => {
      tiles.forEach((tile, head) => {
        tile.show(headMap(maps, layer, head), view);
        const chosen = layer === view.layer && head === view.head;
        this.#buttons[layer]![head]!.setAttribute('aria-pressed', String(chosen));
      });
    });
  }

  #build(layers: number, heads: number): void {
    this.#buttons = [];
    this.#tiles = Array.from({ length: layers }, (_, layer) => {
      const buttons: HTMLButtonElement[] = [];
      this.#buttons.push(buttons);
      return Array.from({ length: heads }, (_, head) => {
        const name = `Layer ${layer + 1}, head ${head + 1}`;
        const button = make('button', { type: 'button', className: 'head-name' }, `Head ${head + 1}`);
        button.setAttribute('aria-label', `Head ${head + 1} of layer ${layer + 1}, close up`);
        button.addEventListener('click', () => this.#events.onHead(layer, head));
        buttons.push(button);
        return new HeadTile(button, name, (query) => this.#events.onQuery(query));
      });
    });
    this.#container.replaceChildren(
      ...this.#tiles.map((tiles, layer) =>
        make(
          'section',
          { className: 'layer', 'aria-label': `Layer ${layer + 1}` },
          make('h3', {}, `Layer ${layer + 1}`),
          make('div', { className: 'tiles' }, ...tiles.map((tile) => tile.element)),
        ),
      ),
    );
  }
}
