// What only a layer's call has: a cache, positions of its own, a gate, the heads' outputs.
import { checkBoolean } from './arguments.js';
import type { AttentionGeometry } from './attention-call.js';
import { MAX_ROLLING_QUERIES } from './cache-options.js';
import type { AttentionPlan, PlannedArray, PlannedResult } from './call-plan.js';
import { describe, showShape } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { FORWARD_OPTION_NAMES, type ForwardOptions } from './forward-options.js';
import { type KvCache, type OpenCache, checkRoom } from './kv-cache.js';
import type { ResolvedLayer } from './layer-options.js';
import { checkPerBatch } from './mask-options.js';
import type { AttentionSlot } from './raw.js';
import { ropeAxes } from './rope-options.js';
import { type Tensor, type TensorInput, readTensor } from './tensor.js';
import { trueLength, typedArrayName } from './typed-arrays.js';

export interface LayerForwardOptions extends ForwardOptions {
  /**
   * Keys and values of earlier tokens. Those of this call are appended, and the queries see all that is held: query i
   * stands behind them, so that causal: true is what a decoder wants. queryLengths says how many rows of each entry
   * are tokens; the rest is padding and is not stored. S is the longest entry after the call. A rolling cache takes
   * more than 64 tokens at once only with causal, or a window that ends at the query: [left, 0].
   */
  readonly cache?: KvCache | undefined;
  /**
   * With rope: where the queries turn, [B, L], or [axes, B, L] with sections. Masks, windows and ALiBi stay where they
   * are. Default: queryOffset + i; with causal: 'end' S - L + i (keyLengths and queryLengths in their place where they
   * are given); with a cache behind the tokens it held; in packed sequences counted from the start of each.
   */
  readonly positions?: Int32Array | undefined;
  /**
   * The same of the keys, [B, S]. Default: `positions` where the queries are the keys, otherwise j, in packed sequences
   * counted from the start of each.
   */
  readonly keyPositions?: Int32Array | undefined;
  /** Factor of the heads' outputs before the output projection: [B, L, H · Dv]; unbatched [L, H · Dv]. */
  readonly outputGate?: Tensor | undefined;
  /** Return what each head hands to the output projection, [B, L, H, Dv]. Default false. */
  readonly returnHeads?: boolean | undefined;
}

export const LAYER_CALL_NAMES: ReadonlySet<string> = new Set([
  ...FORWARD_OPTION_NAMES,
  'cache',
  'positions',
  'keyPositions',
  'outputGate',
  'returnHeads',
] satisfies (keyof LayerForwardOptions)[]);

export interface LayerCall {
  readonly layer: ResolvedLayer;
  readonly batched: boolean;
  /** The queries are the keys. */
  readonly selfAttention: boolean;
  readonly cached: boolean;
  readonly norms: { readonly query: Float32Array; readonly key: Float32Array; readonly epsilon: number } | undefined;
}

/** The plan with what the layer adds. */
export function planLayerOptions(
  call: string,
  options: unknown,
  g: AttentionGeometry,
  plan: AttentionPlan,
  { layer, batched, selfAttention, cached, norms }: LayerCall,
): AttentionPlan {
  if (options === undefined && norms === undefined) return plan;
  const o = (options ?? {}) as LayerForwardOptions;
  const numbers: (readonly [AttentionSlot, number])[] = [...plan.numbers];
  const arrays: PlannedArray[] = [...plan.arrays];
  const results: PlannedResult[] = [...plan.results];
  const { batch, queryLength, keyLength } = g;
  if (norms !== undefined) {
    numbers.push(['qkNorm', 1], ['normEpsilon', norms.epsilon]);
    const own = (slot: 'queryNorm' | 'keyNorm', data: Float32Array): void =>
      void arrays.push({ slot, name: slot, data, length: data.length });
    own('queryNorm', norms.query);
    own('keyNorm', norms.key);
  }
  const positions = (name: 'positions' | 'keyPositions', length: number): Int32Input | undefined =>
    o[name] === undefined ? undefined : checkPositions(call, name, o[name], layer, batch, length);
  const ofQueries = positions('positions', queryLength);
  const shared = selfAttention || cached;
  const ofKeys = positions('keyPositions', keyLength) ?? (shared ? ofQueries : undefined);
  if (ofQueries !== undefined) arrays.push({ slot: 'queryPositions', name: 'positions', ...ofQueries });
  if (ofKeys !== undefined) arrays.push({ slot: 'keyPositions', name: 'keyPositions', ...ofKeys });
  const width = layer.numHeads * layer.vHeadDim;
  const rows = batched ? [batch, queryLength] : [queryLength];
  if (o.outputGate !== undefined) {
    const { data, length } = checkGate(call, o.outputGate, [...rows, width]);
    arrays.push({ slot: 'outputGate', name: 'outputGate.data', data, length });
  }
  if (o.returnHeads !== undefined && checkBoolean(call, 'returnHeads', o.returnHeads)) {
    const shape = [...rows, layer.numHeads, layer.vHeadDim];
    results.push({ name: 'heads', slot: 'headOutputs', shape });
  }
  return { ...plan, numbers, arrays, results };
}

function checkPositions(
  call: string,
  argument: string,
  value: unknown,
  { rope }: ResolvedLayer,
  batch: number,
  length: number,
): Int32Input {
  if (rope === undefined) {
    throw typeError(
      {
        call,
        argument,
        got: 'given to a layer without rope',
        wanted: 'left away',
        wayOut: 'make the layer with rope: true; for window, alibi and causal use queryOffset',
      },
      'conflict',
    );
  }
  const axes = ropeAxes(rope);
  const shape = axes === 1 ? [batch, length] : [axes, batch, length];
  return checkInt32(call, argument, value, shape);
}

export interface Int32Input {
  readonly data: Int32Array;
  /** Of data, when it was checked. */
  readonly length: number;
}

/** An Int32Array of the given sizes. */
export function checkInt32(call: string, argument: string, value: unknown, shape: readonly number[]): Int32Input {
  const size = shape.reduce((a, b) => a * b, 1);
  if (typedArrayName(value) !== 'Int32Array') {
    throw typeError({
      call,
      argument,
      got: describe(value),
      wanted: `an Int32Array of ${showShape(shape)}`,
      wayOut: 'use Int32Array.from(values)',
    });
  }
  const data = value as Int32Array;
  const length = trueLength(data);
  if (length === size) return { data, length };
  throw rangeError(
    {
      call,
      argument,
      got: `${length} long`,
      wanted: `${size} long, for ${showShape(shape)}`,
      wayOut: 'give a position for each row of each entry',
    },
    'wrong-shape',
  );
}

function checkGate(call: string, value: unknown, wanted: readonly number[]): TensorInput {
  const gate = readTensor(call, 'outputGate', value);
  const { shape } = gate;
  if (shape.length === wanted.length && shape.every((size, i) => size === wanted[i])) return gate;
  throw rangeError(
    {
      call,
      argument: 'outputGate.shape',
      got: showShape(shape),
      wanted: `${showShape(wanted)}, one factor for each output of each head`,
      wayOut: 'a factor for each head as a whole is headMask',
    },
    'wrong-shape',
  );
}

/** Whether a cache is one for this layer and this call. */
export function checkLayerCache(
  call: string,
  { config }: OpenCache,
  layer: ResolvedLayer,
  { batch, queryLength, keyLength }: AttentionGeometry,
): void {
  const names = ['numKvHeads', 'headDim', 'vHeadDim'] as const;
  const wanted = { batch, numKvHeads: layer.numKvHeads, headDim: layer.headDim, vHeadDim: layer.vHeadDim };
  if (config.batch !== batch || names.some((name) => config[name] !== layer[name])) {
    const list = (of: Record<keyof typeof wanted, number>): string =>
      (['batch', ...names] as const).map((name) => `${name} ${of[name]}`).join(', ');
    throw rangeError(
      {
        call,
        argument: 'cache',
        got: `of ${list(config)}`,
        wanted: `of ${list(wanted)}, as layer and query`,
        wayOut: `use createCache({ batch: ${batch}, … }) of this layer`,
      },
      'wrong-shape',
    );
  }
  if (keyLength !== queryLength) {
    throw rangeError(
      {
        call,
        argument: 'key.shape',
        got: `of length ${keyLength} with ${queryLength} queries and a cache`,
        wanted: `of length ${queryLength}: each token brings one query and one key`,
        wayOut: 'leave key and value away, or call without a cache',
      },
      'wrong-shape',
    );
  }
  if (layer.addBiasKv || layer.addZeroAttn) {
    throw typeError(
      {
        call,
        argument: 'cache',
        got: `given to a layer with ${layer.addBiasKv ? 'addBiasKv' : 'addZeroAttn'}`,
        wanted: 'left away',
        wayOut: 'the extra key would have no place behind tokens to come',
      },
      'conflict',
    );
  }
}

/** A rolling cache takes long calls in blocks: a query that sees what follows it would miss the blocks to come. */
export function checkRollingQueries(
  call: string,
  { config }: OpenCache,
  queryLength: number,
  { numbers }: AttentionPlan,
): void {
  const of = (slot: AttentionSlot): number | undefined => numbers.find(([name]) => name === slot)?.[1];
  const looksAhead = of('causal') === 0 && of('windowRight') !== 0;
  if (config.window === 0 || !looksAhead || queryLength <= MAX_ROLLING_QUERIES) return;
  throw typeError(
    {
      call,
      argument: 'causal',
      got: `false for ${queryLength} queries and a rolling cache`,
      wanted: `true, or at most ${MAX_ROLLING_QUERIES} queries that see what follows them`,
      wayOut: 'give causal: true, or call in pieces',
    },
    'conflict',
  );
}

/**
 * S after the call, and the tokens of each entry, read once; throws when the cache has no room, so that nothing has
 * changed then.
 */
export function cachedKeyLength(
  call: string,
  cache: OpenCache,
  options: unknown,
  g: AttentionGeometry,
): { seen: number; queryLengths: Int32Array | undefined } {
  const given = ((options ?? {}) as LayerForwardOptions).queryLengths;
  const queryLengths = checkPerBatch(call, 'queryLengths', given, g, 0, () => g.queryLength);
  return { seen: checkRoom(call, cache, g.queryLength, queryLengths), queryLengths };
}
