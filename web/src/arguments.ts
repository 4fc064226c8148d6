// Checks of plain options: unknown names, whole numbers, booleans, choices.
import { describe, oneOf } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { MAX_SIZE } from './tensor.js';

/** Options of the design that this version does not have: named, so that nobody hunts for a typing mistake. */
const LATER = new Set(['dropout', 'weightType']);

/** Names people know from elsewhere, and what to use here. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  attn_mask: 'attendMask (1 = may attend) or attnBias (added)',
  attnMask: 'attendMask (1 = may attend) or attnBias (added)',
  attentionMask: 'attendMask (1 = may attend)',
  attention_mask: 'keyPaddingMask (1 = padding) for a mask of keys, attendMask (1 = may attend) for one of pairs',
  mask: 'attendMask (1 = may attend)',
  batchFirst: 'the layout [batch, length, width], the only one',
  isCausal: "causal: true | 'start' | 'end'",
  is_causal: "causal: true | 'start' | 'end'",
  use_causal_mask: 'causal: true',
  key_padding_mask: 'keyPaddingMask (1 = padding)',
  need_weights: "needWeights: false | 'averaged' | 'perHead'",
  return_attention_scores: "needWeights: 'perHead'",
  output_attentions: "needWeights: 'perHead'",
  add_bias_kv: 'addBiasKv',
  add_zero_attn: 'addZeroAttn',
  logitSoftcap: 'softcap',
  slidingWindow: 'window: [left, right]',
  sliding_window: 'window: [n - 1, 0], the query itself not counted',
  window_size: 'window: [left, right]',
  alibi_slopes: 'alibi',
  softmax_scale: 'scale',
  position_ids: 'positions, or queryOffset',
  past_key_values: 'cache, from createCache()',
  head_mask: 'headMask',
  mask_mod: 'maskMod',
  score_mod: 'scoreMod, with perScore() for a function of one score',
  cu_seqlens: 'cumulativeQueryLengths and cumulativeKeyLengths',
  cu_seqlens_q: 'cumulativeQueryLengths',
  cu_seqlens_k: 'cumulativeKeyLengths',
  embed_dim: 'embedDim',
  num_heads: 'numHeads',
  num_key_value_heads: 'numKvHeads',
  key_dim: 'headDim',
  value_dim: 'vHeadDim',
  head_dim: 'headDim',
  kdim: 'kDim',
  vdim: 'vDim',
  theta: 'base',
  rope_theta: 'rope: { base }',
  ropeTheta: 'rope: { base }',
  rope_type: 'type',
  original_max_position_embeddings: 'originalLength',
  beta_fast: 'betaFast',
  beta_slow: 'betaSlow',
  low_freq_factor: 'lowFrequencyFactor',
  high_freq_factor: 'highFrequencyFactor',
};

/**
 * An object that can hold named values: {}, an instance of a class, a module. Not what has a meaning of its own, such
 * as a Map, a Date, an Array or an ArrayBuffer: its names would be missed.
 */
export const isNamed = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' &&
  value !== null &&
  /^\[object (Object|Module)\]$/.test(Object.prototype.toString.call(value));

/** What an object or a Map holds, each value read once; undefined for everything else. */
export function namedEntries(value: unknown): (readonly [string, unknown])[] | undefined {
  if (Object.prototype.toString.call(value) !== '[object Map]')
    return isNamed(value) ? Object.entries(value) : undefined;
  const entries: (readonly [string, unknown])[] = [];
  const collect = (item: unknown, name: string): void => void entries.push([name, item]);
  try {
    // Not the object's own method, which may tell each time another story.
    Reflect.apply(Map.prototype.forEach, value, [collect]);
  } catch {
    return undefined; // It only looked like a Map.
  }
  return entries;
}

/**
 * The options, each read once, or none; every name must be known, inherited ones, too. Values of undefined count as
 * absent.
 */
export function checkOptions<T extends object>(call: string, value: unknown, known: ReadonlySet<string>): Partial<T> {
  if (value === undefined) return {};
  if (!isNamed(value)) {
    throw typeError({
      call,
      argument: 'options',
      got: describe(value),
      wanted: 'an object',
      wayOut: `its names are ${[...known].join(', ')}`,
    });
  }
  // With those of its prototypes.
  for (const name in value) {
    if (known.has(name) || value[name] === undefined) continue;
    const argument = `option "${name}"`;
    if (LATER.has(name)) {
      throw typeError(
        { call, argument, got: 'not in this version', wanted: 'left away', wayOut: 'it comes with a later version' },
        'unknown-option',
      );
    }
    const other = Object.hasOwn(ELSEWHERE, name) ? ELSEWHERE[name] : undefined;
    throw typeError(
      {
        call,
        argument,
        got: 'unknown',
        wanted: `one of ${[...known].join(', ')}`,
        wayOut: other === undefined ? 'correct or remove it' : `use ${other}`,
      },
      'unknown-option',
    );
  }
  const options: Record<string, unknown> = {};
  for (const name of known) options[name] = value[name];
  return options as Partial<T>;
}

function checkNumber(call: string, argument: string, value: unknown, wanted: string): asserts value is number {
  if (typeof value === 'number') return;
  throw typeError({
    call,
    argument,
    got: describe(value),
    wanted,
    wayOut: typeof value === 'string' || typeof value === 'bigint' ? 'use Number(value)' : 'give a number',
  });
}

/** A whole number from `least` to `most`. */
export function checkWhole(
  call: string,
  argument: string,
  value: unknown,
  { least = 1, most = MAX_SIZE, wayOut = 'give a whole number in that range' } = {},
): number {
  const wanted = `a whole number from ${least} to ${most}`;
  checkNumber(call, argument, value, wanted);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw rangeError({ call, argument, got: describe(value), wanted, wayOut });
}

/** A finite number, also after rounding to float32. */
export function checkFinite(call: string, argument: string, value: unknown): number {
  checkNumber(call, argument, value, 'a finite number');
  if (Number.isFinite(Math.fround(value))) return value;
  throw rangeError({
    call,
    argument,
    got: describe(value),
    wanted: 'a number that is finite in float32',
    wayOut: 'leave it away for the default',
  });
}

export function checkBoolean(call: string, argument: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value;
  throw typeError({ call, argument, got: describe(value), wanted: 'true or false', wayOut: 'use Boolean(value)' });
}

/** One of a few values; strings and booleans. */
export function checkChoice<T extends string | boolean>(
  call: string,
  argument: string,
  value: unknown,
  choices: readonly T[],
  wayOut = 'choose one of them',
): T {
  if (choices.includes(value as T)) return value as T;
  const complaint = { call, argument, got: describe(value), wanted: oneOf(choices), wayOut };
  throw typeof value === 'string' ? rangeError(complaint) : typeError(complaint);
}
