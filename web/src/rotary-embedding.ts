// Rotary embedding on its own, for models that turn queries and keys outside a layer.
import { checkChoice, checkOptions } from './arguments.js';
import type { Strides } from './attention-call.js';
import { describe, showShape } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { type PerBatch, checkOut } from './forward-options.js';
import { type Int32Input, checkInt32 } from './layer-call-options.js';
import { checkPerBatch } from './mask-options.js';
import { TURN_SLOTS, type TurnSlot } from './raw.js';
import { type Rope, type RopeOptions, ROPE_NAMES, ropeAxes, ropeOf, writeRope } from './rope-options.js';
import { type Runtime, coreFor } from './runtime.js';
import { type Axes, type HeadsLayout, axes } from './scaled-dot-product-attention.js';
import { type Tensor, type TensorInput, MAX_SIZE, readTensor } from './tensor.js';
import { checkUnchanged, checkedView } from './typed-arrays.js';

export interface RotaryEmbeddingOptions extends RopeOptions {
  /** Tables [positions, dim / 2] in the place of base, scaling and sections. Together with `sin`. */
  readonly cos?: Tensor | undefined;
  readonly sin?: Tensor | undefined;
  /** [B, L], or [axes, B, L] with sections. Default: offset + i. */
  readonly positions?: Int32Array | undefined;
  /** Position of row 0, for all entries or for each. Default 0. */
  readonly offset?: PerBatch | undefined;
  /** Of x. Default 'BHLD'. */
  readonly layout?: HeadsLayout | undefined;
  /** Where to write the result; its data is this array. */
  readonly out?: Float32Array | undefined;
  /** Default: the first one that was loaded and is alive. */
  readonly runtime?: Runtime | undefined;
}

const CALL = 'rotaryEmbedding()';
const KNOWN: ReadonlySet<string> = new Set([
  ...ROPE_NAMES,
  'cos',
  'sin',
  'positions',
  'offset',
  'layout',
  'out',
  'runtime',
] satisfies (keyof RotaryEmbeddingOptions)[]);

interface Table {
  readonly cos: TensorInput;
  readonly sin: TensorInput;
  readonly rows: number;
  readonly half: number;
}

/**
 * x [B, H, L, D], its pairs turned by angles that grow with the position, as a new tensor. Without the batch axis:
 * rank 3; one head: rank 2. Synchronous: await load() before.
 */
export function rotaryEmbedding(x: Tensor, options?: RotaryEmbeddingOptions): Tensor {
  const { data, length, shape } = readTensor(CALL, 'x', x);
  const o = checkOptions<RotaryEmbeddingOptions>(CALL, options, KNOWN);
  const layout = o.layout === undefined ? 'BHLD' : checkChoice(CALL, 'layout', o.layout, ['BHLD', 'BLHD'] as const);
  const rank = shape.length;
  const a = axes(shape, layout);
  if (rank < 2 || rank > 4 || a.heads === 0 || a.width === 0) {
    const wanted = `[${layout.split('').join(', ')}] (layout '${layout}'), the same without B, or [L, D] for one head`;
    const wayOut = 'add or drop axes of size 1';
    throw rangeError({ call: CALL, argument: 'x.shape', got: showShape(shape), wanted, wayOut }, 'wrong-shape');
  }
  const table = checkTable(o, a.width);
  const rope = ropeOf(CALL, '', table === undefined ? o : { dim: 2 * table.half, interleaved: o.interleaved }, a.width);
  const positions = placeRows(o, a, rope, table);
  const out = o.out === undefined ? undefined : checkOut(CALL, o.out, length);
  const core = coreFor(CALL, o.runtime);

  return core.exclusively(CALL, () => {
    core.begin();
    const at = core.place(4 * length);
    const positionsAt = positions && core.place(4 * positions.length);
    const cosAt = table && core.place(4 * table.cos.length);
    const sinAt = table && core.place(4 * table.sin.length);
    const base = core.commit(CALL, () => `x ${shape.join(' x ')}`);
    const { HEAPF32, HEAP32, HEAPF64 } = core.alive(CALL);
    const place = (part: number | undefined): number => (part === undefined ? 0 : base + part);
    const write = (name: string, array: Float32Array, count: number, to: number): void =>
      HEAPF32.set(checkedView(CALL, name, Float32Array, array, count), to / 4);
    write('x.data', data, length, base + at);
    if (positions) {
      const view = checkedView(CALL, 'positions', Int32Array, positions.data, positions.length);
      HEAP32.set(view, place(positionsAt) / 4);
    }
    if (table) {
      write('cos.data', table.cos.data, table.cos.length, place(cosAt));
      write('sin.data', table.sin.data, table.sin.length, place(sinAt));
    }
    if (out) checkUnchanged(CALL, 'out', out, length);
    writeRope(HEAPF64, core.sideSlots, rope);
    const strides = stridesOf(a, layout);
    const values: Record<TurnSlot, number> = {
      x: base + at,
      xBatch: a.batch,
      xHeads: a.heads,
      xRows: a.length,
      xCols: a.width,
      xBatchStride: strides.batch,
      xHeadStride: strides.head,
      xRowStride: strides.row,
      positions: place(positionsAt),
      offsets: 0,
      config: core.sideBlock,
      cos: place(cosAt),
      sin: place(sinAt),
      tableRows: table?.rows ?? 0,
      halfDim: table?.half ?? 0,
      tableInterleaved: Number(rope.interleaved),
    };
    TURN_SLOTS.forEach((slot, i) => {
      HEAPF64[core.slots + i] = values[slot];
    });
    const raw = core.alive(CALL);
    if (length > 0) core.check(CALL, raw.rotaryEmbedding(core.block));
    const result = raw.HEAPF32.subarray((base + at) / 4, (base + at) / 4 + length);
    if (out === undefined) return { data: result.slice(), shape };
    checkedView(CALL, 'out', Float32Array, out, length).set(result);
    return { data: out, shape };
  });
}

const stridesOf = ({ heads, length, width }: Axes, layout: HeadsLayout): Strides =>
  layout === 'BHLD'
    ? { batch: heads * length * width, head: length * width, row: width }
    : { batch: heads * length * width, head: width, row: heads * width };

function checkTable(o: Partial<RotaryEmbeddingOptions>, width: number): Table | undefined {
  if (o.cos === undefined && o.sin === undefined) return undefined;
  const conflict = (argument: string, got: string, wanted: string, wayOut: string): TypeError =>
    typeError({ call: CALL, argument, got, wanted, wayOut }, 'conflict');
  if (o.cos === undefined || o.sin === undefined) {
    const [given, missing] = o.cos === undefined ? ['sin', 'cos'] : ['cos', 'sin'];
    throw conflict(given, 'given alone', `given with ${missing}`, 'give both tables, or base');
  }
  for (const name of ['base', 'scaling', 'sections'] as const) {
    if (o[name] === undefined) continue;
    throw conflict(name, 'given with cos and sin', 'left away', 'the tables say how far to turn');
  }
  const cos = readTensor(CALL, 'cos', o.cos);
  const sin = readTensor(CALL, 'sin', o.sin);
  const [rows, half] = cos.shape as [number, number];
  const same = showShape(cos.shape) === showShape(sin.shape);
  const dim = o.dim ?? 2 * half;
  if (cos.shape.length !== 2 || half < 1 || 2 * half > width || !same || dim !== 2 * half) {
    const got = `${showShape(cos.shape)} with sin.shape ${showShape(sin.shape)}`;
    const wanted = `[positions, pairs] with ${o.dim === undefined ? `1 to ${Math.floor(width / 2)}` : o.dim / 2} pairs, as sin`;
    const wayOut = 'tables of twice that width repeat: give their first half';
    throw rangeError({ call: CALL, argument: 'cos.shape', got, wanted, wayOut }, 'wrong-shape');
  }
  return { cos, sin, rows, half };
}

/** Where each row stands; undefined: row i at position i. */
function placeRows(
  o: Partial<RotaryEmbeddingOptions>,
  { batch, length }: Axes,
  rope: Rope,
  table: Table | undefined,
): Int32Input | undefined {
  if (o.positions !== undefined && o.offset !== undefined) {
    const complaint = { call: CALL, argument: 'offset', got: 'given with positions', wanted: 'left away' };
    throw typeError({ ...complaint, wayOut: 'positions say where every row stands' }, 'conflict');
  }
  const count = ropeAxes(rope);
  const shape = count === 1 ? [batch, length] : [count, batch, length];
  let positions: Int32Input | undefined;
  if (o.positions !== undefined) positions = checkInt32(CALL, 'positions', o.positions, shape);
  const sizes = { batch, numHeads: 1, queryLength: length, keyLength: length, batched: true };
  const offset = checkPerBatch(CALL, 'offset', o.offset, sizes, -MAX_SIZE, () => MAX_SIZE - length);
  if (offset !== undefined) {
    const data = Int32Array.from({ length: count * batch * length }, (_, i) => {
      const b = Math.floor(i / length) % batch;
      return (offset[b] as number) + (i % length);
    });
    positions = { data, length: data.length };
  }
  if (table === undefined) return positions;
  const size = batch * length;
  for (let i = 0; i < size; ++i) {
    const position = positions === undefined ? i % length : (positions.data[i] as number);
    if (position >= 0 && position < table.rows) continue;
    throw rangeError({
      call: CALL,
      argument:
        positions === undefined || o.offset !== undefined ? `the position of row ${i % length}` : `positions[${i}]`,
      got: describe(position),
      wanted: `0 to ${table.rows - 1}, a row of cos and sin`,
      wayOut: 'give tables for every position',
    });
  }
  return positions;
}
