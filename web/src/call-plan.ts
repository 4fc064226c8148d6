// What a checked call asks of the core, in the core's terms: numbers, arrays and results by the names of their slots.
import type { PositionMask } from './position-mask.js';
import type { Rope } from './rope-options.js';
import type { AttentionSlot } from './raw.js';
import type { ScoreMod } from './score-mod.js';

/** An input beside query, key and value. Masks are bytes. */
export interface PlannedArray {
  readonly slot: AttentionSlot;
  /** In messages. */
  readonly name: string;
  readonly data: Float32Array | Int32Array | Uint8Array;
  /** Of data, when it was checked. */
  readonly length: number;
}

/** A result beside the output; each has a place of its own in ForwardResult. The last three are of projectHeads(). */
export interface PlannedResult {
  readonly name: 'weights' | 'lse' | 'rowMax' | 'scores' | 'heads' | 'queryHeads' | 'keyHeads' | 'valueHeads';
  readonly slot: AttentionSlot;
  readonly shape: readonly number[];
}

export interface AttentionPlan {
  /** Slots whose value is not 0. */
  readonly numbers: readonly (readonly [AttentionSlot, number])[];
  readonly arrays: readonly PlannedArray[];
  readonly results: readonly PlannedResult[];
  /** Who sees whom, by position. */
  readonly mask: PositionMask | undefined;
  readonly scoreMod: ScoreMod | undefined;
  /** Of a layer whose queries and keys turn. */
  readonly rope: Rope | undefined;
  /** Rows of each entry that count, where not all do. */
  readonly queryLengths: Int32Array | undefined;
  readonly out: Float32Array | undefined;
}
