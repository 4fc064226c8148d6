// Masks and lengths: whether their shapes fit the call, and how they repeat over it.
import { checkWhole } from './arguments.js';
import { showShape } from './describe.js';
import { rangeError } from './errors.js';
import { readIntegerList } from './integer-list.js';
import { type MaskInput, MAX_SIZE, readBias, readMask } from './tensor.js';

/** What masks are compared with. */
export interface AttentionSizes {
  readonly batch: number;
  readonly numHeads: number;
  readonly queryLength: number;
  /** S: the keys of the call, or all that a cache holds. */
  readonly keyLength: number;
  /** Whether the inputs have a batch axis: results have one if and only if they do. */
  readonly batched: boolean;
}

/** A mask whose sizes are known to broadcast to [B, H, L, S]. */
export interface Broadcast<Data> {
  readonly data: Data;
  /** Of data, when it was checked. */
  readonly length: number;
  readonly sizes: readonly [number, number, number, number];
}

export function planAttendMask(call: string, value: unknown, sizes: AttentionSizes): Broadcast<Uint8Array> {
  const { data, length, shape } = readMask(call, 'attendMask', value);
  return { data, length, sizes: broadcastSizes(call, 'attendMask', shape, sizes) };
}

export function planBias(call: string, value: unknown, sizes: AttentionSizes): Broadcast<Float32Array> {
  const { data, length, shape } = readBias(call, 'attnBias', value);
  return { data, length, sizes: broadcastSizes(call, 'attnBias', shape, sizes) };
}

export function planPadding(call: string, value: unknown, sizes: AttentionSizes): MaskInput {
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
export function checkPerBatch(
  call: string,
  argument: string,
  value: unknown,
  { batch }: Pick<AttentionSizes, 'batch'>,
  least: number,
  most: (b: number) => number,
): Int32Array | undefined {
  if (value === undefined) return undefined;
  const copy = new Int32Array(batch);
  if (typeof value === 'number') {
    for (let b = 0; b < batch; ++b) copy[b] = checkWhole(call, argument, value, { least, most: most(b) });
    // Also where there is no entry.
    if (batch === 0) checkWhole(call, argument, value, { least: -MAX_SIZE });
    return copy;
  }
  const wanted = 'a whole number, or an Array or Int32Array with one for each batch entry';
  const { list, length } = readIntegerList(call, argument, value, wanted);
  if (length !== batch) {
    throw rangeError(
      {
        call,
        argument,
        got: `${length} long`,
        wanted: `${batch} long, one for each batch entry or packed sequence`,
        wayOut: 'give one number to use it for all',
      },
      'wrong-shape',
    );
  }
  for (let b = 0; b < batch; ++b) copy[b] = checkWhole(call, `${argument}[${b}]`, list[b], { least, most: most(b) });
  return copy;
}
