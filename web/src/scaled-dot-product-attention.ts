// The functional core: attention of projected heads, without weights of its own.
import { checkChoice, checkOptions } from './arguments.js';
import {
  AttentionCall,
  type AttentionGeometry,
  type ForwardResult,
  type Strides,
  type WeightedResult,
} from './attention-call.js';
import type { Core } from './core.js';
import { showShape } from './describe.js';
import { type HeadwiseRangeError, rangeError } from './errors.js';
import { FORWARD_OPTION_NAMES, type ForwardOptions, type NeedsWeights, planOptions } from './forward-options.js';
import { type Runtime, coreFor } from './runtime.js';
import { type Tensor, type TensorInput, readTensor } from './tensor.js';

/** Order of the axes: heads before positions (PyTorch, ONNX), or positions before heads (as projections make them). */
export type HeadsLayout = 'BHLD' | 'BLHD';

export interface AttentionOptions extends ForwardOptions {
  /** Of query, key, value and output. Default 'BHLD'. */
  readonly layout?: HeadsLayout | undefined;
  /** Default: the first one that was loaded and is alive. */
  readonly runtime?: Runtime | undefined;
}

const CALL = 'scaledDotProductAttention()';
const KNOWN: ReadonlySet<string> = new Set([
  ...FORWARD_OPTION_NAMES,
  'layout',
  'runtime',
] satisfies (keyof AttentionOptions)[]);

/** Sizes of one input by axis, whatever the layout. */
interface Axes {
  readonly batch: number;
  readonly heads: number;
  readonly length: number;
  readonly width: number;
}

/**
 * softmax(scale · QKᵀ + bias, hidden keys left out) · V. query [B, H, L, D], key [B, Hkv, S, D], value
 * [B, Hkv, S, Dv]; query head h reads key/value head floor(h / (H / Hkv)). Without the batch axis: rank 3; one head:
 * rank 2. Synchronous: await load() before.
 */
export function scaledDotProductAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options: AttentionOptions & NeedsWeights,
): WeightedResult;
/** The same, where weights may be absent from the result. */
export function scaledDotProductAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options?: AttentionOptions,
): ForwardResult;
export function scaledDotProductAttention(
  queryTensor: Tensor,
  keyTensor: Tensor,
  valueTensor: Tensor,
  options?: AttentionOptions,
): ForwardResult {
  const query = readTensor(CALL, 'query', queryTensor);
  const key = keyTensor === queryTensor ? query : readTensor(CALL, 'key', keyTensor);
  const value =
    valueTensor === queryTensor ? query : valueTensor === keyTensor ? key : readTensor(CALL, 'value', valueTensor);
  const o = options === undefined ? undefined : checkOptions<AttentionOptions>(CALL, options, KNOWN);
  const layout = o?.layout === undefined ? 'BHLD' : checkChoice(CALL, 'layout', o.layout, LAYOUTS);
  const geometry = checkInputs(query, key, value, layout);
  const batched = query.shape.length === 4;
  const plan = planOptions(CALL, o, { ...geometry, batched }, undefined, KNOWN);
  const core = coreFor(CALL, o?.runtime);

  const call = new AttentionCall(core, CALL, geometry, plan);
  const sameValue = value === query ? 'query' : value === key ? 'key' : 'own';
  return core.exclusively(CALL, () => {
    call.prepare(key === query, sameValue, () => reserve(core, geometry));
    call.writeInputs(query, key, value);
    call.invoke((block) => core.alive(CALL).scaledDotProductAttention(block));
    return call.results();
  });
}

const LAYOUTS = ['BHLD', 'BLHD'] as const satisfies readonly HeadsLayout[];

function reserve(core: Core, { queryLength, keyLength, headDim, vHeadDim }: AttentionGeometry): void {
  core.check(CALL, core.alive(CALL).reserveAttention(queryLength, keyLength, headDim, vHeadDim));
}

function axes(shape: readonly number[], layout: HeadsLayout): Axes {
  const [b, x, y, width] = [...Array<number>(4 - shape.length).fill(1), ...shape] as [number, number, number, number];
  // Rank 2 has no head axis in either layout.
  if (layout === 'BHLD' || shape.length === 2) return { batch: b, heads: x, length: y, width };
  return { batch: b, heads: y, length: x, width };
}

const shapeError = (argument: string, shape: readonly number[], wanted: string, wayOut: string): HeadwiseRangeError =>
  rangeError({ call: CALL, argument, got: showShape(shape), wanted, wayOut }, 'wrong-shape');

function checkInputs(query: TensorInput, key: TensorInput, value: TensorInput, layout: HeadsLayout): AttentionGeometry {
  const rank = query.shape.length;
  const letters = layout.split('').join(', ');
  const named = `[${letters}] (layout '${layout}')`;
  if (rank < 2 || rank > 4) {
    const wanted = `${named}, the same without B, or [L, D] for one head`;
    throw shapeError('query.shape', query.shape, wanted, 'add or drop axes of size 1');
  }
  for (const [name, { shape }] of [['key', key] as const, ['value', value] as const]) {
    if (shape.length === rank) continue;
    const wanted = `of rank ${rank}, as query.shape ${showShape(query.shape)}`;
    throw shapeError(`${name}.shape`, shape, wanted, 'give all three the same axes');
  }
  const [q, k, v] = [axes(query.shape, layout), axes(key.shape, layout), axes(value.shape, layout)];
  const swapped = "or the other layout ('BHLD' is heads before positions)";
  for (const [name, a, tensor] of [
    ['query', q, query],
    ['key', k, key],
    ['value', v, value],
  ] as const) {
    if (a.heads > 0 && a.width > 0) continue;
    const wanted = `of at least one head and a head size of at least 1 in ${named}`;
    throw shapeError(`${name}.shape`, tensor.shape, wanted, 'only B, L and S may be 0');
  }
  const expect = (name: string, shape: readonly number[], got: number, want: number, what: string): void => {
    if (got === want) return;
    throw shapeError(`${name}.shape`, shape, `of ${what} ${want}, in ${named}`, `correct the shape, ${swapped}`);
  };
  const asQuery = `as query.shape ${showShape(query.shape)}, namely`;
  expect('key', key.shape, k.batch, q.batch, `the batch size ${asQuery}`);
  expect('value', value.shape, v.batch, q.batch, `the batch size ${asQuery}`);
  expect('key', key.shape, k.width, q.width, `the head size D ${asQuery}`);
  expect('value', value.shape, v.heads, k.heads, `the heads of key.shape ${showShape(key.shape)}, namely`);
  expect('value', value.shape, v.length, k.length, `the length of key.shape ${showShape(key.shape)}, namely`);
  if (q.heads % k.heads !== 0) {
    const wanted = `of a number of heads that divides the query's ${q.heads}, in ${named}`;
    throw shapeError('key.shape', key.shape, wanted, `correct the shape, ${swapped}`);
  }
  return geometryOf(q, k, v, rank, layout);
}

function geometryOf(q: Axes, k: Axes, v: Axes, rank: number, layout: HeadsLayout): AttentionGeometry {
  const strides = ({ heads, length, width }: Axes): Strides =>
    layout === 'BHLD'
      ? { batch: heads * length * width, head: length * width, row: width }
      : { batch: heads * length * width, head: width, row: heads * width };
  const size = ({ batch, heads, length, width }: Axes): number => batch * heads * length * width;
  const output = { ...q, width: v.width };
  const b = rank === 4 ? [q.batch] : [];
  const h = rank >= 3 ? [q.heads] : [];
  return {
    batch: q.batch,
    numHeads: q.heads,
    numKvHeads: k.heads,
    queryLength: q.length,
    keyLength: k.length,
    headDim: q.width,
    vHeadDim: v.width,
    querySize: size(q),
    keySize: size(k),
    valueSize: size(v),
    outputSize: size(output),
    queryStrides: strides(q),
    keyStrides: strides(k),
    valueStrides: strides(v),
    outputStrides: strides(output),
    outputShape: layout === 'BHLD' ? [...b, ...h, q.length, v.width] : [...b, q.length, ...h, v.width],
    averagedShape: [...b, q.length, k.length],
    perHeadShape: [...b, ...h, q.length, k.length],
    lseShape: [...b, ...h, q.length],
  };
}
