// The options a layer is made of, with all defaults filled in and every size checked.
import { checkBoolean, checkFinite, checkOptions, checkWhole, isNamed } from './arguments.js';
import { WAY_TO_SMALLER, checkAddressable } from './core.js';
import { describe } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { checkEmptyRows } from './forward-options.js';
import type { Runtime } from './runtime.js';

/** Which projections have a bias. */
export interface ProjectionBias {
  readonly query: boolean;
  readonly key: boolean;
  readonly value: boolean;
  readonly out: boolean;
}

export interface MultiHeadAttentionOptions {
  /** E: width of the queries. */
  readonly embedDim: number;
  /** H. */
  readonly numHeads: number;
  /** Hkv; fewer than numHeads: grouped-query heads. Default numHeads. */
  readonly numKvHeads?: number | undefined;
  /** D. Default embedDim / numHeads. */
  readonly headDim?: number | undefined;
  /** Dv. Default headDim. */
  readonly vHeadDim?: number | undefined;
  /** Width of the keys. Default embedDim. */
  readonly kDim?: number | undefined;
  /** Width of the values. Default embedDim. */
  readonly vDim?: number | undefined;
  /** Width of the output. Default embedDim. */
  readonly outDim?: number | undefined;
  /** For all projections, or for each; what is not named has one. Default true. */
  readonly bias?: boolean | Partial<ProjectionBias> | undefined;
  /** Factor of the scores. Default 1 / sqrt(headDim). */
  readonly scale?: number | undefined;
  /** What a query that sees no key gives: 0, or NaN as PyTorch. Default 'zero'. */
  readonly emptyRows?: 'zero' | 'nan' | undefined;
  /** Of the initial weights. Default 0. */
  readonly seed?: number | undefined;
  /** Default: the first one that was loaded and is alive. */
  readonly runtime?: Runtime | undefined;
}

/** What the layer is, once the defaults are filled in. */
export interface ResolvedLayer {
  readonly embedDim: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly vHeadDim: number;
  readonly kDim: number;
  readonly vDim: number;
  readonly outDim: number;
  readonly bias: ProjectionBias;
  readonly scale: number;
  readonly emptyRows: 'zero' | 'nan';
  readonly seed: number;
}

const KNOWN: ReadonlySet<string> = new Set([
  'embedDim',
  'numHeads',
  'numKvHeads',
  'headDim',
  'vHeadDim',
  'kDim',
  'vDim',
  'outDim',
  'bias',
  'scale',
  'emptyRows',
  'seed',
  'runtime',
] satisfies (keyof MultiHeadAttentionOptions)[]);
const BIAS_NAMES: ReadonlySet<string> = new Set(['query', 'key', 'value', 'out'] satisfies (keyof ProjectionBias)[]);

/** The core's limit of a width, and of the products of head count and head size. */
export const MAX_WIDTH = 2 ** 24;

export function checkSeed(call: string, seed: unknown): number {
  return seed === undefined ? 0 : checkWhole(call, 'seed', seed, { least: 0, most: Number.MAX_SAFE_INTEGER });
}

export function resolveLayer(call: string, value: unknown): ResolvedLayer & { runtime: Runtime | undefined } {
  if (value === undefined) {
    throw typeError({
      call,
      argument: 'options',
      got: 'undefined',
      wanted: 'an object with embedDim and numHeads',
      wayOut: 'give { embedDim: 512, numHeads: 8 }, say',
    });
  }
  const o = checkOptions<MultiHeadAttentionOptions>(call, value, KNOWN);
  const size = (name: keyof MultiHeadAttentionOptions, fallback?: number): number =>
    fallback !== undefined && o[name] === undefined ? fallback : checkWhole(call, name, o[name], { most: MAX_WIDTH });
  const embedDim = size('embedDim');
  const numHeads = size('numHeads');
  if (o.headDim === undefined && embedDim % numHeads !== 0) {
    throw rangeError({
      call,
      argument: 'embedDim',
      got: `${embedDim} with numHeads ${numHeads}`,
      wanted: 'a multiple of numHeads',
      wayOut: 'or give headDim',
    });
  }
  const numKvHeads = size('numKvHeads', numHeads);
  if (numHeads % numKvHeads !== 0) {
    throw rangeError({
      call,
      argument: 'numKvHeads',
      got: `${numKvHeads} with numHeads ${numHeads}`,
      wanted: 'a divisor of numHeads',
      wayOut: 'each key/value head serves the same number of query heads',
    });
  }
  const headDim = size('headDim', embedDim / numHeads);
  const layer = {
    embedDim,
    numHeads,
    numKvHeads,
    headDim,
    vHeadDim: size('vHeadDim', headDim),
    kDim: size('kDim', embedDim),
    vDim: size('vDim', embedDim),
    outDim: size('outDim', embedDim),
    bias: resolveBias(call, o.bias),
    scale: o.scale === undefined ? 1 / Math.sqrt(headDim) : checkFinite(call, 'scale', o.scale),
    emptyRows: o.emptyRows === undefined ? ('zero' as const) : checkEmptyRows(call, o.emptyRows),
    seed: checkSeed(call, o.seed),
    runtime: o.runtime,
  };
  for (const name of ['headDim', 'vHeadDim'] as const) {
    if (numHeads * layer[name] <= MAX_WIDTH) continue;
    throw rangeError({
      call,
      argument: name,
      got: `${layer[name]} with numHeads ${numHeads}, ${numHeads * layer[name]} in all heads`,
      wanted: `at most ${MAX_WIDTH} in all heads`,
      wayOut: WAY_TO_SMALLER,
    });
  }
  checkAddressable(
    call,
    4 * weightCount(layer),
    () => `the weights of embedDim ${embedDim}, numHeads ${numHeads}, headDim ${headDim}`,
    WAY_TO_SMALLER,
  );
  return layer;
}

function resolveBias(call: string, bias: unknown): ProjectionBias {
  const all = (on: boolean): ProjectionBias => ({ query: on, key: on, value: on, out: on });
  if (bias === undefined) return all(true);
  if (typeof bias === 'boolean') return all(bias);
  if (!isNamed(bias)) {
    throw typeError({
      call,
      argument: 'bias',
      got: describe(bias),
      wanted: 'true, false or an object of query, key, value, out',
      wayOut: 'give true, or { key: false } to leave one away',
    });
  }
  const each = checkOptions<ProjectionBias>(`${call} bias`, bias, BIAS_NAMES);
  const one = (name: keyof ProjectionBias): boolean =>
    each[name] === undefined ? true : checkBoolean(call, `bias.${name}`, each[name]);
  return { query: one('query'), key: one('key'), value: one('value'), out: one('out') };
}

/** Numbers in all weights, without biases. */
function weightCount(l: Omit<ResolvedLayer, 'bias' | 'scale' | 'emptyRows' | 'seed'>): number {
  return (
    l.numHeads * l.headDim * l.embedDim +
    l.numKvHeads * l.headDim * l.kDim +
    l.numKvHeads * l.vHeadDim * l.vDim +
    l.outDim * l.numHeads * l.vHeadDim
  );
}
