// The asking word's row as a real table: what the canvas shows to the eye, for everyone.
import { make, percent } from '../dom.js';

/** A table of one row of attention, in the order of the sentence. */
export function rowTable(caption: string, names: readonly string[], shares: Float32Array): HTMLTableElement {
  return make(
    'table',
    { className: 'row-table' },
    make('caption', { className: 'unseen' }, caption),
    make(
      'thead',
      {},
      make(
        'tr',
        {},
        make('th', { scope: 'col' }, 'Looks at'),
        make('th', { scope: 'col', className: 'number' }, 'Share'),
      ),
    ),
    make(
      'tbody',
      {},
      ...names.map((name, key) =>
        make(
          'tr',
          {},
          make('th', { scope: 'row' }, name),
          make('td', { className: 'number' }, percent(shares[key]!, 2)),
        ),
      ),
    ),
  );
}
