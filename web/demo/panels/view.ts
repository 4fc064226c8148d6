// What every panel draws from: the last result and the reader's choices.
import type { HeadMap } from '../head-stats.js';
import type { MapStyle } from '../heatmap.js';
import type { AttentionMaps } from '../protocol.js';

export interface View {
  readonly maps: AttentionMaps;
  readonly average: HeadMap;
  /** The pieces as the page writes them. */
  readonly names: readonly string[];
  readonly query: number;
  /** Layer and head of the close-up, from 0. */
  readonly layer: number;
  readonly head: number;
  readonly style: MapStyle;
}
