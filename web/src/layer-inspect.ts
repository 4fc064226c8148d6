// Looking into a layer: its heads, and the weights that attention makes of them.
import { checkOptions } from './arguments.js';
import type { AttentionGeometry } from './attention-call.js';
import type { ScoreOptions } from './attention-tile.js';
import type { CacheFacts } from './cache-options.js';
import type { AttentionPlan, PlannedResult } from './call-plan.js';
import { typeError } from './errors.js';
import { PLAIN, planOptions } from './forward-options.js';
import { INSPECT_OPTION_NAMES, type InspectOptions } from './inspect.js';
import type { LayerForwardOptions } from './layer-call-options.js';
import type { ResolvedLayer } from './layer-options.js';
import { type Tensor, type TensorInput, product } from './tensor.js';

/** What decides where queries and keys turn. */
export type ProjectHeadsOptions = Pick<
  LayerForwardOptions,
  | 'causal'
  | 'queryOffset'
  | 'queryLengths'
  | 'keyLengths'
  | 'cumulativeQueryLengths'
  | 'cumulativeKeyLengths'
  | 'positions'
  | 'keyPositions'
  | 'cache'
>;

/** The heads of a call as attention sees them: projected, with bias, normalised and turned. No B when unbatched. */
export interface ProjectedHeads {
  /** [B, H, L, D]. */
  readonly query: Tensor;
  /** [B, Hkv, S, D]. */
  readonly key: Tensor;
  /** [B, Hkv, S, Dv]. */
  readonly value: Tensor;
}

type OfLayer = Pick<LayerForwardOptions, 'positions' | 'keyPositions'>;
/** Of headStatistics() of a layer: defaults are the layer's. */
export type LayerScoreOptions = Omit<ScoreOptions, 'layout' | 'runtime'> & OfLayer;
/** Of inspect() of a layer: defaults are the layer's. */
export type LayerInspectOptions = Omit<InspectOptions, 'layout' | 'runtime'> & OfLayer;

const PLACE_NAMES = [
  'causal',
  'queryOffset',
  'queryLengths',
  'keyLengths',
  'cumulativeQueryLengths',
  'cumulativeKeyLengths',
] as const satisfies readonly (keyof ProjectHeadsOptions)[];
export const PROJECT_NAMES: ReadonlySet<string> = new Set([
  ...PLACE_NAMES,
  'positions',
  'keyPositions',
  'cache',
] satisfies (keyof ProjectHeadsOptions)[]);
const PLACED: ReadonlySet<string> = new Set(PLACE_NAMES);

const isOfLayer = (name: (typeof INSPECT_OPTION_NAMES)[number]): boolean => name !== 'layout' && name !== 'runtime';
// The cache is known, to be refused with a reason.
const INSPECT_NAMES = [...INSPECT_OPTION_NAMES.filter(isOfLayer), 'positions', 'keyPositions', 'cache'];
const KNOWN: ReadonlySet<string> = new Set(INSPECT_NAMES);
const OF_VALUES = ['emptyRows', 'kind', 'heads', 'rows', 'keys', 'values', 'topK', 'entropy', 'pooled'];
const STATISTICS_KNOWN: ReadonlySet<string> = new Set(INSPECT_NAMES.filter((name) => !OF_VALUES.includes(name)));

export function checkInspectOptions(
  call: string,
  options: unknown,
  of: 'inspect' | 'headStatistics',
): Partial<LayerInspectOptions> {
  const known = of === 'inspect' ? KNOWN : STATISTICS_KNOWN;
  const { cache, ...o } = checkOptions<LayerInspectOptions & { cache: unknown }>(call, options, known);
  if (cache === undefined) return o;
  const wayOut = 'forward() with it takes needWeights and needScores; or give the whole sequence here';
  throw typeError({ call, argument: 'cache', got: 'given', wanted: 'left away', wayOut }, 'conflict');
}

/** The plan of a call that projects, before what the layer adds. Of the options only places count. */
export function planHeads(
  call: string,
  layer: ResolvedLayer,
  g: AttentionGeometry,
  batched: boolean,
  withValue: boolean,
  options: Partial<ProjectHeadsOptions>,
  cache: CacheFacts | undefined,
): AttentionPlan {
  // Without rope heads have no place.
  const places = layer.rope && Object.fromEntries(PLACE_NAMES.map((name) => [name, options[name]]));
  const context = { known: PLACED, defaults: { ...PLAIN, rope: layer.rope }, cache };
  const plan = planOptions(call, places, { ...g, batched }, g, context);
  const { numHeads, numKvHeads, headDim, vHeadDim } = layer;
  const result = (name: 'queryHeads' | 'keyHeads' | 'valueHeads', ...shape: number[]): PlannedResult => ({
    name,
    slot: name,
    shape: batched ? [g.batch, ...shape] : shape,
  });
  const results = [
    result('queryHeads', numHeads, g.queryLength, headDim),
    result('keyHeads', numKvHeads, g.keyLength, headDim),
    ...(withValue ? [result('valueHeads', numKvHeads, g.keyLength, vHeadDim)] : []),
  ];
  return { ...plan, results };
}

/** What describes a call as a whole is welcome without rope, too; an offset that moves nothing is not. */
export function checkTurns(call: string, { rope }: ResolvedLayer, { queryOffset }: Partial<ProjectHeadsOptions>): void {
  if (queryOffset === undefined || rope !== undefined) return;
  const wayOut = 'heads do not depend on it; give it to what attends with them';
  const got = 'given to a layer without rope';
  throw typeError({ call, argument: 'queryOffset', got, wanted: 'left away', wayOut }, 'conflict');
}

/** What stands where values would when only the scores count. */
export function noValues(key: TensorInput, { kDim, vDim }: ResolvedLayer): TensorInput {
  if (kDim === vDim) return key;
  const shape = [...key.shape.slice(0, -1), vDim];
  const length = product(shape);
  return { data: new Float32Array(length), length, shape };
}
