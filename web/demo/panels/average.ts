// Panel 4: the average of all heads, and in numbers what it hides.
import { byId, listed, make, percent } from '../dom.js';
import { compareHeads, headMap, RELATION_NAMES, relationShares, RELATIONS } from '../head-stats.js';
import { HeadTile, quoted } from './heads.js';
import type { View } from './view.js';

export class AveragePanel {
  readonly #text = byId('average-text', HTMLParagraphElement);
  readonly #rows = byId('coverage', HTMLTableElement).tBodies[0]!;
  readonly #tile: HeadTile;

  constructor(onQuery: (query: number) => void) {
    this.#tile = new HeadTile(
      make('p', { className: 'head-name' }, 'Average of all heads'),
      'Average of all heads',
      onQuery,
    );
    byId('average-tile', HTMLDivElement).append(this.#tile.element);
  }

  show(view: View): void {
    const { maps, average, names, query } = view;
    const count = maps.layers * maps.heads;
    const comparison = compareHeads(maps, average, query);
    const targets = comparison.targets.map((key) => quoted(names, query, key));
    const agree = comparison.targets.length === 1;
    this.#text.replaceChildren(
      `Asked about “${names[query]}”, the ${count} heads `,
      agree
        ? `all look most at ${targets[0]}. `
        : `look most at ${comparison.targets.length} different places: ${listed(targets)}. `,
      `Their average can name one: ${quoted(names, query, comparison.averageTarget)}, `,
      `at ${percent(comparison.averageShare)}. Over the whole sentence the heads differ by `,
      make('strong', {}, `${comparison.differenceBits.toFixed(2)} bits`),
      ` (0 if all were alike, ${comparison.mostBits.toFixed(2)} if no two shared a word).`,
    );
    this.#tile.show(average, view);
    this.#showCoverage(view);
  }

  #showCoverage({ maps, average }: View): void {
    const averageShares = relationShares(average);
    const heads = Array.from({ length: maps.layers * maps.heads }, (_, i) => ({
      name: `layer\u00a0${Math.floor(i / maps.heads) + 1}, head\u00a0${(i % maps.heads) + 1}`,
      shares: relationShares(headMap(maps, 0, i)),
    }));
    this.#rows.replaceChildren(
      ...RELATIONS.map((relation) => {
        const best = heads.reduce((a, b) => (b.shares[relation] > a.shares[relation] ? b : a));
        return make(
          'tr',
          {},
          make('th', { scope: 'row' }, RELATION_NAMES[relation]),
          make('td', {}, best.name),
          make('td', { className: 'number' }, best.shares[relation].toFixed(2)),
          make('td', { className: 'number' }, averageShares[relation].toFixed(2)),
        );
      }),
    );
  }
}
