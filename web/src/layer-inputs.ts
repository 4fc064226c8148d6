// The inputs of a layer's forward call: which argument is which, whether their shapes fit, and where they lie.
import type { AttentionGeometry, Strides } from './attention-call.js';
import { describe, showShape } from './describe.js';
import { type HeadwiseRangeError, rangeError, typeError } from './errors.js';
import type { ResolvedLayer } from './layer-options.js';
import { type TensorInput, looksLikeTensor, readTensor } from './tensor.js';

export interface LayerInputs {
  /** The same object where one tensor serves twice. */
  readonly query: TensorInput;
  readonly key: TensorInput;
  readonly value: TensorInput;
  readonly options: unknown;
  readonly geometry: AttentionGeometry;
  readonly batched: boolean;
}

/** What follows the query: up to `most` tensors, then options. An object without data or shape is options. */
function splitArguments(
  call: string,
  rest: readonly unknown[],
  most: 1 | 2,
): { key: unknown; value: unknown; options: unknown } {
  const tensors: unknown[] = [];
  let options: unknown;
  let closed = false;
  rest.forEach((argument, i) => {
    const isOptions =
      i === most ||
      (typeof argument === 'object' && argument !== null && !looksLikeTensor(argument) && plain(argument));
    if (closed || i > most) {
      if (argument === undefined) return;
      throw typeError({
        call,
        argument: `argument ${i + 2}`,
        got: describe(argument),
        wanted: 'left away after the options',
        wayOut: `the order is query, key, ${most === 2 ? 'value, ' : ''}options`,
      });
    }
    if (isOptions) {
      options = argument;
      closed = true;
    } else {
      tensors[i] = argument;
    }
  });
  return { key: tensors[0], value: tensors[1], options };
}

/** Arrays and typed arrays are tensors gone wrong, not options: readTensor() will say so. */
const plain = (value: object): boolean => !Array.isArray(value) && !ArrayBuffer.isView(value);

/** `takes`: what the call has beside the query. Without values the key stands in their place. */
export function checkLayerInputs(
  call: string,
  layer: ResolvedLayer,
  givenQuery: unknown,
  rest: readonly unknown[],
  takes: 'key and value' | 'key' = 'key and value',
): LayerInputs {
  const withValue = takes === 'key and value';
  const { key: givenKey, value: givenValue, options } = splitArguments(call, rest, withValue ? 2 : 1);
  const query = readTensor(call, 'query', givenQuery);
  const key = givenKey === undefined || givenKey === givenQuery ? query : readTensor(call, 'key', givenKey);
  const value =
    givenValue === undefined || givenValue === givenKey
      ? key
      : givenValue === givenQuery
        ? query
        : readTensor(call, 'value', givenValue);
  const tensors = { query, key, value };

  const keyName = givenKey === undefined ? 'query.shape, of the query that serves as key,' : 'key.shape';
  const servesAsValue = givenKey === undefined ? 'query.shape, of the query' : 'key.shape, of the key';
  const valueName = givenValue === undefined ? `${servesAsValue} that serves as value,` : 'value.shape';
  const rank = query.shape.length;
  if (rank !== 2 && rank !== 3) {
    const wanted = `[B, L, ${layer.embedDim}], or [L, ${layer.embedDim}] unbatched`;
    throw shapeError(call, 'query.shape', query.shape, wanted, 'add or drop the batch axis');
  }
  checkWidth(call, 'query.shape', query.shape, 'embedDim', layer.embedDim);
  const { key: k, value: v } = tensors;
  for (const [name, shape] of [['key.shape', k.shape] as const, ['value.shape', v.shape] as const]) {
    if (shape.length === rank) continue;
    const wanted = `of rank ${rank}, as query.shape ${showShape(query.shape)}`;
    throw shapeError(call, name, shape, wanted, 'give all three a batch axis or none');
  }
  checkWidth(call, keyName, k.shape, 'kDim', layer.kDim);
  if (withValue) checkWidth(call, valueName, v.shape, 'vDim', layer.vDim);
  const batched = rank === 3;
  const batch = batched ? (query.shape[0] as number) : 1;
  for (const [name, shape] of [['key.shape', k.shape] as const, ['value.shape', v.shape] as const]) {
    if (!batched || shape[0] === batch) continue;
    const wanted = `of batch size ${batch}, as query.shape ${showShape(query.shape)}`;
    throw shapeError(call, name, shape, wanted, 'repeat the entry, or call once for each');
  }
  const queryLength = query.shape[rank - 2] as number;
  const keyLength = k.shape[rank - 2] as number;
  if (v.shape[rank - 2] !== keyLength) {
    const wanted = `of length ${keyLength}, as key.shape ${showShape(k.shape)}`;
    throw shapeError(call, 'value.shape', v.shape, wanted, 'each key needs its value');
  }
  const geometry = layerGeometry(layer, batched, batch, queryLength, keyLength);
  return { ...tensors, options, geometry, batched };
}

const shapeError = (
  call: string,
  argument: string,
  shape: readonly number[],
  wanted: string,
  wayOut: string,
): HeadwiseRangeError => rangeError({ call, argument, got: showShape(shape), wanted, wayOut }, 'wrong-shape');

function checkWidth(call: string, argument: string, shape: readonly number[], option: string, width: number): void {
  if (shape.at(-1) === width) return;
  const wayOut = `a layer for this width is made with ${option}: ${shape.at(-1)}`;
  throw shapeError(call, argument, shape, `of width ${option} ${width} (the last size)`, wayOut);
}

/** Keys of the layer itself, behind the others. */
export const extraKeys = (l: ResolvedLayer): number => Number(l.addBiasKv) + Number(l.addZeroAttn);

export function layerGeometry(
  l: ResolvedLayer,
  batched: boolean,
  batch: number,
  queryLength: number,
  keyLength: number,
  /** Columns of weights and scores: S and the layer's own keys. */
  columns = keyLength + extraKeys(l),
): AttentionGeometry {
  const b = batched ? [batch] : [];
  const rows = (length: number, width: number): Strides => ({ batch: length * width, head: 0, row: width });
  return {
    batch,
    queryLength,
    keyLength,
    numHeads: l.numHeads,
    numKvHeads: l.numKvHeads,
    headDim: l.headDim,
    vHeadDim: l.vHeadDim,
    querySize: batch * queryLength * l.embedDim,
    keySize: batch * keyLength * l.kDim,
    valueSize: batch * keyLength * l.vDim,
    outputSize: batch * queryLength * l.outDim,
    queryStrides: rows(queryLength, l.embedDim),
    keyStrides: rows(keyLength, l.kDim),
    valueStrides: rows(keyLength, l.vDim),
    outputStrides: rows(queryLength, l.outDim),
    outputShape: [...b, queryLength, l.outDim],
    averagedShape: [...b, queryLength, columns],
    perHeadShape: [...b, l.numHeads, queryLength, columns],
    lseShape: [...b, l.numHeads, queryLength],
  };
}
