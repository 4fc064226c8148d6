// The options that all attention calls share: checked here, once, before anything is touched in WASM memory.
import { checkBoolean, checkChoice, checkFinite, checkOptions } from './arguments.js';
import type { CacheFacts } from './cache-options.js';
import { checkCacheConflicts } from './cache-options.js';
import type { AttentionPlan, PlannedArray, PlannedResult } from './call-plan.js';
import type { BlockMask } from './block-mask.js';
import { describe } from './describe.js';
import { rangeError, typeError } from './errors.js';
import {
  type AttentionSizes,
  type Broadcast,
  checkPerBatch,
  planAttendMask,
  planBias,
  planPadding,
} from './mask-options.js';
import type { MaskMod } from './mask-mod.js';
import { lengthOf, planPacked } from './packed-options.js';
import { type PositionSpan, planPositionMask } from './position-mask.js';
import type { AttentionSlot } from './raw.js';
import type { Rope } from './rope-options.js';
import { type ScoreMod, checkScoreMod } from './score-mod.js';
import { type Window, checkAlibi, checkChunk, checkPerHead, checkSoftcap, checkWindow } from './score-options.js';
import { type MaskInput, type MaskTensor, type Tensor, MAX_SIZE } from './tensor.js';
import { trueLength, typedArrayName } from './typed-arrays.js';

/** One whole number for all batch entries, or one for each. */
export type PerBatch = number | readonly number[] | Int32Array;

/**
 * Options of an attention call. B batch, H heads, L query length, S key length; a size of 1 is repeated. All masks
 * compose: a key is seen only if every one of them lets it. Query i stands at position queryOffset + i (with causal:
 * 'end' at S - L + i, with a cache behind the tokens it held before), key j at position j, both counted from the start
 * of their sequence. The order is: scale · q·k → softcap → scoreMod → + ALiBi and attnBias → masks → softmax with sink
 * → · V.
 */
export interface ForwardOptions {
  /** 1 = may attend. [L, S], or [B, H, L, S]; unbatched also [H, L, S]. */
  readonly attendMask?: MaskTensor | undefined;
  /** 1 = padding, as PyTorch names it. [B, S]; unbatched [S]. */
  readonly keyPaddingMask?: MaskTensor | undefined;
  /** Added to the scores; shapes as attendMask. -Infinity masks. */
  readonly attnBias?: Tensor | undefined;
  /** Keys at and after the length are hidden; 0 to S. */
  readonly keyLengths?: PerBatch | undefined;
  /** Queries at and after the length see nothing; 0 to L. */
  readonly queryLengths?: PerBatch | undefined;
  /**
   * Hides later keys. true or 'start': query i sees keys 0 to i (PyTorch, Keras, ONNX). 'end': the last query sees
   * the last key (FlashAttention). Default false.
   */
  readonly causal?: boolean | 'start' | 'end' | undefined;
  /** With causal: keys before this length are seen by every query (prefix-LM); 0 to S. */
  readonly prefixLengths?: PerBatch | undefined;
  /**
   * Where the queries stand: query i at position queryOffset + i. Counts for causal: true, window, alibi,
   * attentionChunk, blockMask, maskMod, scoreMod and rope. Default 0. Not to be given with causal: 'end', which has
   * keyLengths (or S) - queryLengths (or L), nor with a cache, which has the tokens held before.
   */
  readonly queryOffset?: PerBatch | undefined;
  /**
   * [left, right]: neighbours of a query's position that it sees on each side, its own position not counted; -1 is
   * unlimited. A window of n tokens that counts the query itself, as a cache's `window`, is [n - 1, 0]: [1, 0] and a
   * cache with window 2 see the same.
   */
  readonly window?: Window | undefined;
  /** Only keys in the query's own chunk of this many positions are seen (Llama 4). 0, the default: off. */
  readonly attentionChunk?: number | undefined;
  /** Who sees whom by position, kept by blocks: block-sparse and document masks. It must know the call's positions. */
  readonly blockMask?: BlockMask | undefined;
  /**
   * A function that says who sees whom: (b, h, i, j) => whether the query at position i sees the key at position j. It
   * is asked once about each, and the answers of the last 8 functions are kept for later calls with the same function,
   * as long as they cover them; BlockMask.fromFunction() can share them over entries and heads.
   */
  readonly maskMod?: MaskMod | undefined;
  /** Changes scores, tile by tile, before biases and masks; perScore() makes one from a function of one score. */
  readonly scoreMod?: ScoreMod | undefined;
  /**
   * Sequences of different lengths one behind the other, B = 1 or unbatched: sequence n has the queries from the n-th
   * of these numbers up to the next, and sees no others (FlashAttention's cu_seqlens_q). [0, 3, 7] is a sequence of 3
   * and one of 4. What is said for each entry elsewhere, such as keyLengths, is said for each sequence then.
   */
  readonly cumulativeQueryLengths?: readonly number[] | Int32Array | undefined;
  /** The same of the keys. Default: as the queries. */
  readonly cumulativeKeyLengths?: readonly number[] | Int32Array | undefined;
  /** softcap · tanh(score / softcap), before bias and masks (Gemma 2). 0: off. */
  readonly softcap?: number | undefined;
  /** Adds -slope · |query position - key position|. true: the slopes of alibiSlopes(H); or own ones, [H]. */
  readonly alibi?: boolean | Float32Array | undefined;
  /**
   * A score for each head, [H], that joins every softmax without a value, so that a row can attend to nothing.
   * -Infinity: none.
   */
  readonly sinks?: Float32Array | undefined;
  /** Factor of each head's output, [H]: 0 switches a head off. */
  readonly headMask?: Float32Array | undefined;
  /** Return the attention weights: their mean over the heads, or each head's. Default false. */
  readonly needWeights?: false | 'averaged' | 'perHead' | undefined;
  /**
   * Return the scores of each head, [B, H, L, S]: 'raw', scale · q·k at every key, whatever is hidden; 'capped', the
   * same after softcap; 'biased', what the softmax gets, -Infinity where hidden. Default false.
   */
  readonly needScores?: false | 'raw' | 'capped' | 'biased' | undefined;
  /** Return the log of the sum of exp(score) of each row, [B, H, L]. Default false. */
  readonly returnLse?: boolean | undefined;
  /** Return the largest score of each row, or its sink, [B, H, L]. Default false. */
  readonly returnMax?: boolean | undefined;
  /** Factor of the scores. Default 1 / sqrt(D). */
  readonly scale?: number | undefined;
  /** What a query that sees no key gives: 0, or NaN as PyTorch. Default 'zero'. */
  readonly emptyRows?: 'zero' | 'nan' | undefined;
  /** Where to write the output; result.output.data is this array. Its length must be the output's. */
  readonly out?: Float32Array | undefined;
}

/** The part of the options that says, for the types, that there will be weights. */
export interface NeedsWeights {
  readonly needWeights: 'averaged' | 'perHead';
}

/** Shapes of the results, which depend on the inputs' layout. */
export interface ResultShapes {
  readonly outputSize: number;
  readonly averagedShape: readonly number[];
  readonly perHeadShape: readonly number[];
  readonly lseShape: readonly number[];
}

/** What shapes scores, and what hides keys. */
export const SCORE_NAMES = [
  'attendMask',
  'keyPaddingMask',
  'attnBias',
  'keyLengths',
  'queryLengths',
  'causal',
  'prefixLengths',
  'queryOffset',
  'window',
  'attentionChunk',
  'blockMask',
  'maskMod',
  'scoreMod',
  'cumulativeQueryLengths',
  'cumulativeKeyLengths',
  'softcap',
  'alibi',
  'sinks',
  'scale',
] as const satisfies readonly (keyof ForwardOptions)[];

export const FORWARD_OPTION_NAMES = [
  ...SCORE_NAMES,
  'headMask',
  'needWeights',
  'needScores',
  'returnLse',
  'returnMax',
  'emptyRows',
  'out',
] as const satisfies readonly (keyof ForwardOptions)[];

/** What the constructor decided and a call may override. */
export interface CallDefaults {
  /** NaN: the core's default. */
  readonly scale: number;
  readonly emptyRows: 'zero' | 'nan';
  readonly softcap: number;
  readonly alibi: Float32Array | undefined;
  readonly sinks: Float32Array | undefined;
  readonly window: Window | undefined;
  /** Queries and keys turn with their positions. */
  readonly rope: Rope | undefined;
}
export const PLAIN: CallDefaults = {
  scale: NaN,
  emptyRows: 'zero',
  softcap: 0,
  alibi: undefined,
  sinks: undefined,
  window: undefined,
  rope: undefined,
};

export interface PlanContext {
  readonly known: ReadonlySet<string>;
  readonly defaults: CallDefaults;
  readonly cache?: CacheFacts | undefined;
}

const WEIGHTS = { averaged: 1, perHead: 2 } as const;
const SCORES = { raw: 1, capped: 2, biased: 3 } as const;

export function planOptions(
  call: string,
  value: unknown,
  sizes: AttentionSizes,
  shapes: ResultShapes,
  { known, defaults, cache }: PlanContext,
): AttentionPlan {
  const o = checkOptions<ForwardOptions>(call, value, known);
  const numbers: [AttentionSlot, number][] = [];
  const arrays: PlannedArray[] = [];
  const results: PlannedResult[] = [];
  const addNumber = (slot: AttentionSlot, x: number): void => void numbers.push([slot, x]);
  const add = (
    slot: AttentionSlot,
    name: string,
    input: Pick<MaskInput, 'length'> & { data: PlannedArray['data'] },
  ): void => void arrays.push({ slot, name, data: input.data, length: input.length });
  // What is a copy of ours, or an array that was measured.
  const addArray = (slot: AttentionSlot, name: string, data: PlannedArray['data'] | undefined): void => {
    if (data !== undefined) add(slot, name, { data, length: trueLength(data) });
  };
  const { queryLength, keyLength, numHeads } = sizes;

  const causal = o.causal === undefined ? false : checkChoice(call, 'causal', o.causal, [true, false, 'start', 'end']);
  const needWeights =
    o.needWeights === undefined
      ? false
      : checkChoice(
          call,
          'needWeights',
          o.needWeights,
          [false, 'averaged', 'perHead'] as const,
          "'averaged' is PyTorch's default",
        );
  const needScores =
    o.needScores === undefined
      ? false
      : checkChoice(call, 'needScores', o.needScores, [false, 'raw', 'capped', 'biased'] as const);
  const flag = (name: 'returnLse' | 'returnMax'): boolean =>
    o[name] === undefined ? false : checkBoolean(call, name, o[name]);
  const emptyRows = o.emptyRows === undefined ? defaults.emptyRows : checkEmptyRows(call, o.emptyRows);
  const scale = o.scale === undefined ? defaults.scale : checkFinite(call, 'scale', o.scale);
  const softcap = o.softcap === undefined ? defaults.softcap : checkSoftcap(call, o.softcap);
  const alibi = o.alibi === undefined ? defaults.alibi : checkAlibi(call, o.alibi, numHeads);
  const sinks = o.sinks === undefined ? defaults.sinks : checkPerHead(call, 'sinks', o.sinks, numHeads, true);
  const headMask = o.headMask === undefined ? undefined : checkPerHead(call, 'headMask', o.headMask, numHeads);
  const window = o.window === undefined ? defaults.window : checkWindow(call, o.window);
  const chunk = o.attentionChunk === undefined ? 0 : checkChunk(call, o.attentionChunk);
  const attendMask = o.attendMask === undefined ? undefined : planAttendMask(call, o.attendMask, sizes);
  const attnBias = o.attnBias === undefined ? undefined : planBias(call, o.attnBias, sizes);
  const padding = o.keyPaddingMask === undefined ? undefined : planPadding(call, o.keyPaddingMask, sizes);
  const packed = planPacked(call, o.cumulativeQueryLengths, o.cumulativeKeyLengths, sizes);
  const sequences = packed === undefined ? sizes : { batch: packed.sequences };
  const mostQueries = (n: number): number => (packed === undefined ? queryLength : lengthOf(packed.queries, n));
  const mostKeys = (n: number): number => (packed === undefined ? keyLength : lengthOf(packed.keys, n));
  const keyLengths = checkPerBatch(call, 'keyLengths', o.keyLengths, sequences, 0, mostKeys);
  const queryLengths = checkPerBatch(call, 'queryLengths', o.queryLengths, sequences, 0, mostQueries);
  const prefixLengths = checkPerBatch(call, 'prefixLengths', o.prefixLengths, sequences, 0, mostKeys);
  const farthest = MAX_SIZE - queryLength;
  const queryOffset = checkPerBatch(call, 'queryOffset', o.queryOffset, sequences, -MAX_SIZE, () => farthest);
  const scoreMod = o.scoreMod === undefined ? undefined : checkScoreMod(call, o.scoreMod);

  if (cache !== undefined) checkCacheConflicts(call, cache, o, window);
  if (prefixLengths !== undefined && causal === false) {
    throw conflict(call, 'prefixLengths', 'given without causal', "given with causal: true, 'start' or 'end'", {
      wayOut: 'a prefix loosens causality; without it every key is seen anyway',
    });
  }
  if (queryOffset !== undefined) {
    const functions = o.blockMask !== undefined || o.maskMod !== undefined || scoreMod !== undefined;
    const ranges = window !== undefined || alibi !== undefined || chunk > 0;
    const counts = ranges || functions || defaults.rope !== undefined;
    if (causal === 'end' || (causal === false && !counts)) {
      throw conflict(
        call,
        'queryOffset',
        `given with causal: ${describe(o.causal ?? false)}`,
        "left away, or given with causal: true or 'start', window, alibi, attentionChunk, blockMask, maskMod or scoreMod",
        { wayOut: "'end' has an offset of its own, and without any of these no position counts" },
      );
    }
  }

  const mask = planPositionMask(
    call,
    o.blockMask,
    o.maskMod,
    { batch: sequences.batch, numHeads },
    (): PositionSpan => {
      const span = { first: Infinity, end: -Infinity, keys: 0 };
      for (let n = 0; n < sequences.batch; ++n) {
        const count = queryLengths?.[n] ?? mostQueries(n);
        if (count === 0) continue;
        const keys = keyLengths?.[n] ?? mostKeys(n);
        const start = cache?.position(n, count) ?? (causal === 'end' ? keys - count : (queryOffset?.[n] ?? 0));
        span.first = Math.min(span.first, start);
        span.end = Math.max(span.end, start + count);
        span.keys = Math.max(span.keys, keys);
      }
      return span.end < span.first ? { first: 0, end: 0, keys: 0 } : span;
    },
  );

  addNumber('causal', causal === false ? 0 : causal === 'end' ? 2 : 1);
  addNumber('scale', scale);
  addNumber('emptyRows', emptyRows === 'nan' ? 1 : 0);
  addNumber('softcap', softcap);
  addNumber('windowLeft', window === undefined ? -1 : window[0]);
  addNumber('windowRight', window === undefined ? -1 : window[1]);
  addNumber('attentionChunk', chunk);
  addMask(attendMask, 'attendMask', MASK_SLOTS.attendMask);
  addMask(attnBias, 'attnBias', MASK_SLOTS.attnBias);
  if (padding !== undefined) add('keyPaddingMask', 'keyPaddingMask.data', padding);
  if (packed !== undefined) {
    addNumber('packedSequences', packed.sequences);
    addArray('cumulativeQueryLengths', 'cumulativeQueryLengths', packed.queries);
    addArray('cumulativeKeyLengths', 'cumulativeKeyLengths', packed.keys);
  }
  if (scoreMod !== undefined) addNumber('scoreMod', 1);
  addArray('keyLengths', 'keyLengths', keyLengths);
  addArray('queryLengths', 'queryLengths', queryLengths);
  addArray('prefixLengths', 'prefixLengths', prefixLengths);
  addArray('queryOffsets', 'queryOffset', queryOffset);
  addArray('alibiSlopes', 'alibi', alibi);
  addArray('sinks', 'sinks', sinks);
  addArray('headGates', 'headMask', headMask);
  if (needWeights !== false) {
    addNumber('weightsKind', WEIGHTS[needWeights]);
    const shape = needWeights === 'perHead' ? shapes.perHeadShape : shapes.averagedShape;
    results.push({ name: 'weights', slot: 'weights', shape });
  }
  if (needScores !== false) {
    addNumber('scoresKind', SCORES[needScores]);
    results.push({ name: 'scores', slot: 'scores', shape: shapes.perHeadShape });
  }
  if (flag('returnLse')) results.push({ name: 'lse', slot: 'lse', shape: shapes.lseShape });
  if (flag('returnMax')) results.push({ name: 'rowMax', slot: 'rowMax', shape: shapes.lseShape });
  const out = o.out === undefined ? undefined : checkOut(call, o.out, shapes.outputSize);
  return { numbers, arrays, results, mask, scoreMod, rope: defaults.rope, queryLengths, out };

  function addMask(
    mask: Broadcast<PlannedArray['data']> | undefined,
    slot: AttentionSlot,
    sizeSlots: readonly AttentionSlot[],
  ): void {
    if (mask === undefined) return;
    add(slot, `${slot}.data`, mask);
    sizeSlots.forEach((name, i) => addNumber(name, mask.sizes[i] as number));
  }
}

const MASK_SLOTS = {
  attendMask: ['attendMaskBatch', 'attendMaskHeads', 'attendMaskRows', 'attendMaskKeys'],
  attnBias: ['attnBiasBatch', 'attnBiasHeads', 'attnBiasRows', 'attnBiasKeys'],
} as const satisfies Record<string, readonly AttentionSlot[]>;

const conflict = (
  call: string,
  argument: string,
  got: string,
  wanted: string,
  { wayOut }: { wayOut: string },
): TypeError => typeError({ call, argument, got, wanted, wayOut }, 'conflict');

export const checkEmptyRows = (call: string, value: unknown): 'zero' | 'nan' =>
  checkChoice(call, 'emptyRows', value, ['zero', 'nan'] as const);

export function checkOut(call: string, value: unknown, size: number): Float32Array {
  if (typedArrayName(value) !== 'Float32Array') {
    throw typeError({
      call,
      argument: 'out',
      got: describe(value),
      wanted: 'a Float32Array',
      wayOut: `use new Float32Array(${size})`,
    });
  }
  const out = value as Float32Array;
  const length = trueLength(out);
  if (length !== size) {
    throw rangeError(
      {
        call,
        argument: 'out',
        got: `${length} long`,
        wanted: `${size} long, the size of the output`,
        wayOut: `use new Float32Array(${size}) or a subarray`,
      },
      'wrong-shape',
    );
  }
  return out;
}
