// Learned biases by relative position, laid out as an attnBias: T5's buckets and Swin's tables.
import { checkBoolean, checkOptions, checkWhole } from './arguments.js';
import { describe, showShape } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { naturalLog } from './portable-math.js';
import { type Tensor, type TensorInput, MAX_SIZE, readTensor } from './tensor.js';
import { checkedView } from './typed-arrays.js';

/** T5: a bias for each bucket of distances. */
export interface BucketBiasOptions {
  /** L. */
  readonly queryLength: number;
  /** S. Default queryLength. */
  readonly keyLength?: number | undefined;
  /** Whether later keys have buckets of their own (encoders) or share bucket 0 (decoders). Default true. */
  readonly bidirectional?: boolean | undefined;
  /** From this distance on all keys share the last bucket. Default 128. */
  readonly maxDistance?: number | undefined;
  /** Query i stands at position queryOffset + i. Default 0. */
  readonly queryOffset?: number | undefined;
}
/** Swin: a bias for each offset within a window of height x width tokens, row by row. */
export interface WindowBiasOptions {
  readonly window: readonly [height: number, width: number];
}

const CALL = 'relativePositionBias()';
const BUCKET_NAMES: ReadonlySet<string> = new Set([
  'queryLength',
  'keyLength',
  'bidirectional',
  'maxDistance',
  'queryOffset',
] satisfies (keyof BucketBiasOptions)[]);
const WINDOW_NAMES: ReadonlySet<string> = new Set(['window'] satisfies (keyof WindowBiasOptions)[]);

/**
 * An attnBias [1, H, L, S] from a learned table: of buckets, [buckets, H] (T5's relative_attention_bias.weight), or of
 * a window, [(2 height - 1)(2 width - 1), H] (Swin's relative_position_bias_table).
 */
export function relativePositionBias(table: Tensor, options: BucketBiasOptions | WindowBiasOptions): Tensor {
  const entries = readTensor(CALL, 'table', table);
  if (entries.shape.length !== 2) {
    const wayOut = 'give the table as the model stores it';
    const complaint = {
      call: CALL,
      argument: 'table.shape',
      got: showShape(entries.shape),
      wanted: '[entries, heads]',
    };
    throw rangeError({ ...complaint, wayOut }, 'wrong-shape');
  }
  const given: unknown = options;
  const inWindow = typeof given === 'object' && given !== null && 'window' in given;
  return inWindow
    ? windowBias(entries, checkOptions<WindowBiasOptions>(CALL, given, WINDOW_NAMES))
    : bucketBias(entries, checkOptions<BucketBiasOptions>(CALL, given, BUCKET_NAMES));
}

/** [1, H, L, S] whose element (i, j) is the table's row rowOf(i, j). */
function layOut(
  { data: given, length: size, shape }: TensorInput,
  length: number,
  keys: number,
  rowOf: (i: number, j: number) => number,
): Tensor {
  const data = checkedView(CALL, 'table.data', Float32Array, given, size);
  const heads = shape[1] as number;
  const out = new Float32Array(heads * length * keys);
  for (let i = 0; i < length; ++i) {
    for (let j = 0; j < keys; ++j) {
      const row = rowOf(i, j) * heads;
      for (let h = 0; h < heads; ++h) out[(h * length + i) * keys + j] = data[row + h] as number;
    }
  }
  return { data: out, shape: [1, heads, length, keys] };
}

function bucketBias(table: TensorInput, o: Partial<BucketBiasOptions>): Tensor {
  const queryLength = checkWhole(CALL, 'queryLength', o.queryLength, { least: 0 });
  const keyLength = o.keyLength === undefined ? queryLength : checkWhole(CALL, 'keyLength', o.keyLength, { least: 0 });
  const bidirectional = o.bidirectional === undefined ? true : checkBoolean(CALL, 'bidirectional', o.bidirectional);
  const most = MAX_SIZE - queryLength;
  const offset =
    o.queryOffset === undefined ? 0 : checkWhole(CALL, 'queryOffset', o.queryOffset, { least: -MAX_SIZE, most });
  const buckets = table.shape[0] as number;
  const perSide = bidirectional ? buckets / 2 : buckets;
  if (!Number.isInteger(perSide) || perSide < 2) {
    const got = `${showShape(table.shape)} with bidirectional: ${bidirectional}`;
    const wanted = bidirectional ? 'of an even number of buckets, at least 4' : 'of at least 2 buckets';
    const wayOut = 'decoders have bidirectional: false';
    throw rangeError({ call: CALL, argument: 'table.shape', got, wanted, wayOut }, 'wrong-shape');
  }
  const exact = Math.floor(perSide / 2);
  const least = exact + 1;
  const maxDistance =
    o.maxDistance === undefined ? Math.max(128, least) : checkWhole(CALL, 'maxDistance', o.maxDistance, { least });
  const logOfMost = naturalLog(maxDistance / exact);
  // Each distance up to `exact` has its bucket; the others share the rest, by logarithm.
  const bucketOf = (distance: number): number => {
    if (distance < exact) return distance;
    const share = Math.fround(naturalLog(distance / exact) / logOfMost) * (perSide - exact);
    return Math.min(perSide - 1, exact + Math.floor(share));
  };
  return layOut(table, queryLength, keyLength, (i, j) => {
    const relative = j - (offset + i);
    if (bidirectional) return (relative > 0 ? perSide : 0) + bucketOf(Math.abs(relative));
    return bucketOf(Math.max(0, -relative));
  });
}

function windowBias(table: TensorInput, { window }: Partial<WindowBiasOptions>): Tensor {
  if (!Array.isArray(window) || window.length !== 2) {
    const wanted = '[height, width], in tokens';
    throw typeError({ call: CALL, argument: 'window', got: describe(window), wanted, wayOut: 'Swin-T has [7, 7]' });
  }
  const height = checkWhole(CALL, 'window[0]', window[0], { most: 4096 });
  const width = checkWhole(CALL, 'window[1]', window[1], { most: 4096 });
  const rows = (2 * height - 1) * (2 * width - 1);
  if (table.shape[0] !== rows) {
    const wanted = `[${rows}, heads] for a window of ${height} x ${width}`;
    const wayOut = 'an entry for each offset, (2 height - 1)(2 width - 1)';
    const complaint = { call: CALL, argument: 'table.shape', got: showShape(table.shape), wanted, wayOut };
    throw rangeError(complaint, 'wrong-shape');
  }
  const tokens = height * width;
  return layOut(table, tokens, tokens, (i, j) => {
    const dy = Math.floor(i / width) - Math.floor(j / width) + height - 1;
    const dx = (i % width) - (j % width) + width - 1;
    return dy * (2 * width - 1) + dx;
  });
}
