// The options a layer is made of, with all defaults filled in and every size checked.
import { checkBoolean, checkFinite, checkOptions, checkWhole, isNamed } from './arguments.js';
import { WAY_TO_SMALLER, checkAddressable } from './core.js';
import { describe } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { checkEmptyRows } from './forward-options.js';
import { type Rope, type RopeOptions, resolveRope } from './rope-options.js';
import type { Runtime } from './runtime.js';
import { type Window, checkAlibi, checkPerHead, checkSoftcap, checkWindow } from './score-options.js';

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
  /** A learned key and value (bias_k, bias_v) that every query sees, behind the others. Default false. */
  readonly addBiasKv?: boolean | undefined;
  /** A key and value of zeros that every query sees, behind all others. Default false. */
  readonly addZeroAttn?: boolean | undefined;
  /** Factor of the scores. Default 1 / sqrt(headDim). */
  readonly scale?: number | undefined;
  /** As in the calls, which override it: softcap · tanh(score / softcap). Default off. */
  readonly softcap?: number | undefined;
  /**
   * A learned score for each head that joins every softmax without a value: the parameter 'sinks' [H]. true: from the
   * state dict, 0 before; or its values. Calls override it.
   */
  readonly sinks?: boolean | Float32Array | undefined;
  /** As in the calls, which override it. */
  readonly alibi?: boolean | Float32Array | undefined;
  /** As in the calls, which override it: [left, right] neighbours, the query itself not counted. */
  readonly window?: Window | undefined;
  /**
   * Each query and key row of D values is divided by its root mean square and multiplied by q_norm.weight or
   * k_norm.weight, before it turns. true: epsilon 1e-6.
   */
  readonly qkNorm?: boolean | { readonly epsilon?: number | undefined } | undefined;
  /** Queries and keys turn with their positions. true: with the defaults. */
  readonly rope?: boolean | RopeOptions | undefined;
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
  readonly addBiasKv: boolean;
  readonly addZeroAttn: boolean;
  readonly scale: number;
  /** 0: off. */
  readonly softcap: number;
  /** What 'sinks' starts as; undefined: the layer has none. */
  readonly sinks: Float32Array | undefined;
  readonly alibi: Float32Array | undefined;
  readonly window: Window | undefined;
  readonly qkNorm: { readonly epsilon: number } | undefined;
  readonly rope: Rope | undefined;
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
  'addBiasKv',
  'addZeroAttn',
  'scale',
  'softcap',
  'sinks',
  'alibi',
  'window',
  'qkNorm',
  'rope',
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
  const flag = (name: 'addBiasKv' | 'addZeroAttn'): boolean =>
    o[name] === undefined ? false : checkBoolean(call, name, o[name]);
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
    addBiasKv: flag('addBiasKv'),
    addZeroAttn: flag('addZeroAttn'),
    scale: o.scale === undefined ? 1 / Math.sqrt(headDim) : checkFinite(call, 'scale', o.scale),
    softcap: o.softcap === undefined ? 0 : checkSoftcap(call, o.softcap),
    sinks: o.sinks === undefined ? undefined : resolveSinks(call, o.sinks, numHeads),
    alibi: o.alibi === undefined ? undefined : checkAlibi(call, o.alibi, numHeads),
    window: o.window === undefined ? undefined : checkWindow(call, o.window),
    qkNorm: o.qkNorm === undefined ? undefined : resolveQkNorm(call, o.qkNorm),
    rope: o.rope === undefined || o.rope === false ? undefined : resolveRope(call, ropeOptions(o.rope), headDim),
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

const ropeOptions = (rope: true | RopeOptions): RopeOptions => (rope === true ? {} : rope);

function resolveSinks(call: string, value: unknown, numHeads: number): Float32Array | undefined {
  if (value === false) return undefined;
  return value === true ? new Float32Array(numHeads) : checkPerHead(call, 'sinks', value, numHeads, true);
}

const NORM_NAMES: ReadonlySet<string> = new Set(['epsilon']);

function resolveQkNorm(call: string, value: unknown): ResolvedLayer['qkNorm'] {
  if (value === false) return undefined;
  if (value === true) return { epsilon: 1e-6 };
  if (typeof value !== 'object' || value === null) {
    throw typeError({
      call,
      argument: 'qkNorm',
      got: describe(value),
      wanted: 'true, false or { epsilon }',
      wayOut: 'use Boolean(qkNorm)',
    });
  }
  const { epsilon } = checkOptions<{ epsilon: number }>(`${call} qkNorm`, value, NORM_NAMES);
  if (epsilon === undefined) return { epsilon: 1e-6 };
  const checked = checkFinite(call, 'qkNorm.epsilon', epsilon);
  if (checked >= 0) return { epsilon: checked };
  throw rangeError({
    call,
    argument: 'qkNorm.epsilon',
    got: describe(epsilon),
    wanted: 'at least 0',
    wayOut: 'models have 1e-6 or 1e-5',
  });
}

type Sizes = Pick<
  ResolvedLayer,
  'numHeads' | 'numKvHeads' | 'embedDim' | 'headDim' | 'vHeadDim' | 'kDim' | 'vDim' | 'outDim'
>;

/** Numbers in all weights, without biases. */
function weightCount(l: Sizes): number {
  return (
    l.numHeads * l.headDim * l.embedDim +
    l.numKvHeads * l.headDim * l.kDim +
    l.numKvHeads * l.vHeadDim * l.vDim +
    l.outDim * l.numHeads * l.vHeadDim
  );
}
