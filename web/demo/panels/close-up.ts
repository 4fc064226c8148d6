// Panel 3: one head large, with the words on both sides, and the asking word's strongest targets as a list.
import { byId, make, percent } from '../dom.js';
import { headMap, inOrder, RELATION_NAMES, relationShares, RELATIONS, row, spread } from '../head-stats.js';
import { drawCloseUp } from '../heatmap.js';
import type { View } from './view.js';

const LISTED = 5;

export class CloseUpPanel {
  readonly #text = byId('close-text', HTMLParagraphElement);
  readonly #canvas = byId('close-map', HTMLCanvasElement);
  readonly #list = byId('close-list', HTMLDivElement);

  show(view: View): void {
    const { maps, names, query, layer, head } = view;
    const map = headMap(maps, layer, head);
    const shares = row(map, query);
    const order = inOrder(shares).slice(0, LISTED);
    this.#text.replaceChildren(
      make('strong', {}, `Layer ${layer + 1}, head ${head + 1}.`),
      ` In each row the shares add up to 100\u202f%: how much the row’s word takes from each column’s word.`,
    );
    const relations = relationShares(map);
    this.#list.replaceChildren(
      make('h3', {}, `“${names[query]}” looks at`),
      make(
        'ol',
        { className: 'top-keys' },
        ...order.map((key) =>
          make(
            'li',
            {},
            make('span', { className: 'key-name' }, names[key]!),
            make('meter', { min: 0, max: 1, value: shares[key]!, 'aria-hidden': 'true' }),
            make('span', { className: 'number' }, percent(shares[key]!, 1)),
          ),
        ),
      ),
      make('h3', {}, 'Over the whole sentence'),
      make(
        'dl',
        { className: 'measures' },
        ...RELATIONS.flatMap((relation) => [
          make('dt', {}, RELATION_NAMES[relation]),
          make('dd', { className: 'number' }, relations[relation].toFixed(2)),
        ]),
        make('dt', {}, 'spread out (1 = evenly)'),
        make('dd', { className: 'number' }, spread(map).toFixed(2)),
      ),
    );
    const style = getComputedStyle(this.#canvas);
    drawCloseUp(this.#canvas, map, names, { ...view.style, ink: style.color, font: style.fontFamily });
  }
}
