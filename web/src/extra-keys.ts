// Keys and values behind the others that every query sees: whether they fit the call.
import type { AttentionGeometry } from './attention-call.js';
import { showShape } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { type Tensor, type TensorInput, readTensor } from './tensor.js';

export interface ExtraKeys {
  /** 1: the same for all entries. */
  readonly batch: number;
  readonly rows: number;
  readonly key: TensorInput;
  readonly value: TensorInput;
}

const MAX_ROWS = 128;

export function checkExtraKeys(
  call: string,
  givenKey: Tensor | undefined,
  givenValue: Tensor | undefined,
  g: AttentionGeometry,
): ExtraKeys | undefined {
  if (givenKey === undefined && givenValue === undefined) return undefined;
  if (givenKey === undefined || givenValue === undefined) {
    const [given, missing] = givenKey === undefined ? ['extraValue', 'extraKey'] : ['extraKey', 'extraValue'];
    const complaint = { call, argument: given, got: 'given alone', wanted: `given with ${missing}` };
    throw typeError({ ...complaint, wayOut: 'each extra key needs its value; use zeros for none' }, 'conflict');
  }
  const key = readTensor(call, 'extraKey', givenKey);
  const value = readTensor(call, 'extraValue', givenValue);
  const rows = key.shape.at(-2) ?? 0;
  const batch = key.shape.length === 4 ? (key.shape[0] as number) : 1;
  const check = (argument: string, { shape }: TensorInput, width: number): void => {
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
  return rows === 0 ? undefined : { batch, rows, key, value };
}
