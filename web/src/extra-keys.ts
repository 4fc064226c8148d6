// Keys and values behind the others that every query sees: whether they fit the call.
import type { AttentionGeometry } from './attention-call.js';
import { showShape } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { type Tensor, checkTensor } from './tensor.js';

export interface ExtraKeys {
  /** 1: the same for all entries. */
  readonly batch: number;
  readonly rows: number;
  readonly key: Float32Array;
  readonly value: Float32Array;
}

const MAX_ROWS = 128;

export function checkExtraKeys(
  call: string,
  key: Tensor | undefined,
  value: Tensor | undefined,
  g: AttentionGeometry,
): ExtraKeys | undefined {
  if (key === undefined && value === undefined) return undefined;
  if (key === undefined || value === undefined) {
    const [given, missing] = key === undefined ? ['extraValue', 'extraKey'] : ['extraKey', 'extraValue'];
    const complaint = { call, argument: given, got: 'given alone', wanted: `given with ${missing}` };
    throw typeError({ ...complaint, wayOut: 'each extra key needs its value; use zeros for none' }, 'conflict');
  }
  checkTensor(call, 'extraKey', key);
  checkTensor(call, 'extraValue', value);
  const rows = key.shape.at(-2) ?? 0;
  const batch = key.shape.length === 4 ? (key.shape[0] as number) : 1;
  const check = (argument: string, { shape }: Tensor, width: number): void => {
    const wanted = [...(key.shape.length === 4 ? [batch] : []), g.numKvHeads, rows, width];
    const same = shape.length === wanted.length && shape.every((size, i) => size === wanted[i]);
    const ranked = shape.length === 3 || (shape.length === 4 && (batch === 1 || batch === g.batch));
    if (same && ranked && rows <= MAX_ROWS) return;
    throw rangeError(
      {
        call,
        argument: `${argument}.shape`,
        got: showShape(shape),
        wanted: `[${g.numKvHeads}, n, ${width}] or [${g.batch}, ${g.numKvHeads}, n, ${width}] with n up to ${MAX_ROWS}`,
        wayOut: 'extraKey and extraValue have the same n, and a batch axis or none',
      },
      'wrong-shape',
    );
  };
  check('extraKey', key, g.headDim);
  check('extraValue', value, g.vHeadDim);
  return rows === 0 ? undefined : { batch, rows, key: key.data, value: value.data };
}
