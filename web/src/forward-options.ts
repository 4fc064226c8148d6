// The options that both attention calls share: checked here, once, before anything is touched in WASM memory.
import { checkBoolean, checkChoice, checkFinite, checkOptions, checkWhole } from './arguments.js';
import { describe, showShape } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { type MaskInput, type MaskTensor, type Tensor, MAX_SIZE, readBias, readMask } from './tensor.js';
import { trueLength, typedArrayName } from './typed-arrays.js';

/** One whole number for all batch entries, or one for each. */
export type PerBatch = number | readonly number[] | Int32Array;

/**
 * Options of a forward call. All masks compose: a key is seen only if every one of them lets it. B batch, H heads,
 * L query length, S key length; a size of 1 is repeated.
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
  /** With causal: query i stands at position queryOffset + i. Default 0. */
  readonly queryOffset?: PerBatch | undefined;
  /** Return the attention weights: their mean over the heads, or each head's. Default false. */
  readonly needWeights?: false | 'averaged' | 'perHead' | undefined;
  /** Return the log of the sum of exp(score) of each row, [B, H, L]. Default false. */
  readonly returnLse?: boolean | undefined;
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

/** A batch or head axis that may be absent, lengths, and the names of both for messages. */
export interface AttentionSizes {
  readonly batch: number;
  readonly numHeads: number;
  readonly queryLength: number;
  readonly keyLength: number;
  /** Whether the inputs have a batch axis: results have one if and only if they do. */
  readonly batched: boolean;
  readonly outputSize: number;
}

/** A mask whose sizes are known to broadcast to [B, H, L, S]. */
export interface Broadcast<Data> {
  readonly data: Data;
  /** Of data, when it was checked. */
  readonly length: number;
  readonly sizes: readonly [number, number, number, number];
}

/** One number for all batch entries, or an array of our own with one for each. */
export type PerBatchInput = number | Int32Array;

/** Options after all checks. */
export interface AttentionPlan {
  readonly attendMask: Broadcast<Uint8Array> | undefined;
  readonly attnBias: Broadcast<Float32Array> | undefined;
  readonly keyPaddingMask: MaskInput | undefined;
  readonly keyLengths: PerBatchInput | undefined;
  readonly queryLengths: PerBatchInput | undefined;
  readonly queryOffset: PerBatchInput | undefined;
  readonly causal: 0 | 1 | 2;
  readonly scale: number;
  readonly emptyRows: 0 | 1;
  readonly weightsKind: 0 | 1 | 2;
  readonly returnLse: boolean;
  readonly out: Float32Array | undefined;
}

export const FORWARD_OPTION_NAMES = [
  'attendMask',
  'keyPaddingMask',
  'attnBias',
  'keyLengths',
  'queryLengths',
  'causal',
  'queryOffset',
  'needWeights',
  'returnLse',
  'scale',
  'emptyRows',
  'out',
] as const satisfies readonly (keyof ForwardOptions)[];
const KNOWN: ReadonlySet<string> = new Set(FORWARD_OPTION_NAMES);

/** What the constructor decided and a call may override. NaN: the core's default. */
export interface CallDefaults {
  readonly scale: number;
  readonly emptyRows: 'zero' | 'nan';
}
const PLAIN: CallDefaults = { scale: NaN, emptyRows: 'zero' };

/** The common case, a call without options, makes no object. */
const noOptions = (defaults: CallDefaults): AttentionPlan => ({
  attendMask: undefined,
  attnBias: undefined,
  keyPaddingMask: undefined,
  keyLengths: undefined,
  queryLengths: undefined,
  queryOffset: undefined,
  causal: 0,
  scale: defaults.scale,
  emptyRows: defaults.emptyRows === 'nan' ? 1 : 0,
  weightsKind: 0,
  returnLse: false,
  out: undefined,
});
const PLAIN_PLAN = noOptions(PLAIN);

export function planOptions(
  call: string,
  value: unknown,
  sizes: AttentionSizes,
  defaults: CallDefaults = PLAIN,
  known: ReadonlySet<string> = KNOWN,
): AttentionPlan {
  if (value === undefined) return defaults === PLAIN ? PLAIN_PLAN : noOptions(defaults);
  const o = checkOptions<ForwardOptions>(call, value, known);
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
  const emptyRows = o.emptyRows === undefined ? defaults.emptyRows : checkEmptyRows(call, o.emptyRows);
  const plan: AttentionPlan = {
    attendMask: o.attendMask === undefined ? undefined : planAttendMask(call, o.attendMask, sizes),
    attnBias: o.attnBias === undefined ? undefined : planBias(call, o.attnBias, sizes),
    keyPaddingMask: o.keyPaddingMask === undefined ? undefined : planPadding(call, o.keyPaddingMask, sizes),
    keyLengths: checkPerBatch(call, 'keyLengths', o.keyLengths, sizes, 0, sizes.keyLength),
    queryLengths: checkPerBatch(call, 'queryLengths', o.queryLengths, sizes, 0, sizes.queryLength),
    queryOffset: checkPerBatch(call, 'queryOffset', o.queryOffset, sizes, -MAX_SIZE, MAX_SIZE - sizes.queryLength),
    causal: causal === false ? 0 : causal === 'end' ? 2 : 1,
    scale: o.scale === undefined ? defaults.scale : checkFinite(call, 'scale', o.scale),
    emptyRows: emptyRows === 'nan' ? 1 : 0,
    weightsKind: needWeights === false ? 0 : needWeights === 'averaged' ? 1 : 2,
    returnLse: o.returnLse === undefined ? false : checkBoolean(call, 'returnLse', o.returnLse),
    out: o.out === undefined ? undefined : checkOut(call, o.out, sizes.outputSize),
  };
  if (plan.queryOffset !== undefined && plan.causal !== 1) {
    throw typeError(
      {
        call,
        argument: 'queryOffset',
        got: `given with causal: ${describe(o.causal ?? false)}`,
        wanted: "left away, or given with causal: true or 'start'",
        wayOut: "'end' has an offset of its own, and without causal no position counts",
      },
      'conflict',
    );
  }
  return plan;
}

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

function planAttendMask(call: string, value: unknown, sizes: AttentionSizes): AttentionPlan['attendMask'] {
  const { data, length, shape } = readMask(call, 'attendMask', value);
  return { data, length, sizes: broadcastSizes(call, 'attendMask', shape, sizes) };
}

function planBias(call: string, value: unknown, sizes: AttentionSizes): AttentionPlan['attnBias'] {
  const { data, length, shape } = readBias(call, 'attnBias', value);
  return { data, length, sizes: broadcastSizes(call, 'attnBias', shape, sizes) };
}

function planPadding(call: string, value: unknown, sizes: AttentionSizes): AttentionPlan['keyPaddingMask'] {
  const mask = readMask(call, 'keyPaddingMask', value);
  const { batch, keyLength, batched } = sizes;
  const wanted = batched ? [batch, keyLength] : [keyLength];
  const { shape } = mask;
  if (shape.length !== wanted.length || shape.some((size, i) => size !== wanted[i])) {
    throw rangeError(
      {
        call,
        argument: 'keyPaddingMask.shape',
        got: showShape(shape),
        wanted: `${showShape(wanted)}, ${batched ? '[batch, keys]' : '[keys] for unbatched input'}`,
        wayOut: 'a mask of query-key pairs is attendMask',
      },
      'wrong-shape',
    );
  }
  return mask;
}

/** [L, S] or [B, H, L, S] (unbatched also [H, L, S]), each size 1 or the full one. */
function broadcastSizes(
  call: string,
  argument: string,
  shape: readonly number[],
  { batch, numHeads, queryLength, keyLength, batched }: AttentionSizes,
): readonly [number, number, number, number] {
  const full = [batch, numHeads, queryLength, keyLength] as const;
  const rank = shape.length;
  if (rank === 3 && batched) {
    throw rangeError(
      {
        call,
        argument: `${argument}.shape`,
        got: `${showShape(shape)}, which could be [B, L, S], [H, L, S] or PyTorch's [B*H, L, S]`,
        wanted: `of rank 2, [L, S], or rank 4, [B, H, L, S] = ${showShape(full)} with 1 where a size repeats`,
        wayOut: `write [B, 1, L, S] = ${showShape([batch, 1, queryLength, keyLength])} or [1, H, L, S] = ${showShape([1, numHeads, queryLength, keyLength])}`,
      },
      'wrong-shape',
    );
  }
  const sizes = [...Array<number>(Math.max(0, 4 - rank)).fill(1), ...shape];
  if (rank < 2 || rank > 4 || sizes.some((size, i) => size !== 1 && size !== full[i])) {
    const forms = batched ? '[L, S] or [B, H, L, S]' : '[L, S] or [H, L, S]';
    throw rangeError(
      {
        call,
        argument: `${argument}.shape`,
        got: showShape(shape),
        wanted: `${forms} with B = ${batch}, H = ${numHeads}, L = ${queryLength}, S = ${keyLength}`,
        wayOut: 'a size of 1 repeats',
      },
      'wrong-shape',
    );
  }
  return sizes as unknown as readonly [number, number, number, number];
}

/** A whole number, or one for each batch entry, copied: another look at the caller's array could find others. */
function checkPerBatch(
  call: string,
  argument: string,
  value: unknown,
  { batch }: AttentionSizes,
  least: number,
  most: number,
): PerBatchInput | undefined {
  if (value === undefined) return undefined;
  if (typeof value === 'number') return checkWhole(call, argument, value, { least, most });
  const isArray = Array.isArray(value);
  if (!isArray && typedArrayName(value) !== 'Int32Array') {
    throw typeError({
      call,
      argument,
      got: describe(value),
      wanted: 'a whole number, or an Array or Int32Array with one for each batch entry',
      wayOut: 'use Int32Array.from(values)',
    });
  }
  const list = value as readonly unknown[] | Int32Array;
  const length = isArray ? list.length : trueLength(list as Int32Array);
  if (length !== batch) {
    throw rangeError(
      {
        call,
        argument,
        got: `${length} long`,
        wanted: `${batch} long, one for each batch entry`,
        wayOut: 'give one number to use it for all',
      },
      'wrong-shape',
    );
  }
  const copy = new Int32Array(batch);
  for (let b = 0; b < batch; ++b) copy[b] = checkWhole(call, `${argument}[${b}]`, list[b], { least, most });
  return copy;
}
