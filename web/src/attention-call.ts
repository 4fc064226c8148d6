// One attention call on its way through WASM memory: reserve, write, call, read. Memory may grow only in reserve, and
// no view is kept across it.
import type { Core } from './core.js';
import type { AttentionPlan, Broadcast, PerBatchInput } from './forward-options.js';
import { ATTENTION, type RawModule } from './raw.js';
import type { Tensor, TensorInput } from './tensor.js';
import { checkUnchanged, checkedView } from './typed-arrays.js';

/** Elements from one entry, head and row to the next. */
export interface Strides {
  readonly batch: number;
  readonly head: number;
  readonly row: number;
}

export interface AttentionGeometry {
  readonly batch: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly queryLength: number;
  readonly keyLength: number;
  readonly headDim: number;
  readonly vHeadDim: number;
  readonly querySize: number;
  readonly keySize: number;
  readonly valueSize: number;
  readonly outputSize: number;
  readonly queryStrides: Strides;
  readonly keyStrides: Strides;
  readonly valueStrides: Strides;
  readonly outputStrides: Strides;
  readonly outputShape: readonly number[];
  /** Of the weights, averaged or per head. */
  readonly averagedShape: readonly number[];
  readonly perHeadShape: readonly number[];
  readonly lseShape: readonly number[];
}

/** All data is owned by JavaScript, and by the caller. */
export interface ForwardResult {
  readonly output: Tensor;
  /** With needWeights. [B, L, S] averaged, [B, H, L, S] per head; no B when unbatched. */
  readonly weights?: Tensor;
  /** With returnLse. [B, H, L]; no B when unbatched. */
  readonly lse?: Tensor;
}

/** With needWeights of 'averaged' or 'perHead'. */
export interface WeightedResult extends ForwardResult {
  readonly weights: Tensor;
}

/** Arrays inside WASM memory. */
export interface AttentionViews {
  readonly query: Float32Array;
  readonly key: Float32Array;
  readonly value: Float32Array;
  readonly output: Float32Array;
  /** With needWeights. */
  readonly weights?: Float32Array;
  /** With returnLse. */
  readonly lse?: Float32Array;
}

const floats = (n: number): number => 4 * n;

export class AttentionCall {
  readonly #core: Core;
  readonly #call: string;
  readonly #g: AttentionGeometry;
  readonly #plan: AttentionPlan;
  #query = 0;
  #key = 0;
  #value = 0;
  #output = 0;
  #weights = 0;
  #lse = 0;

  constructor(core: Core, call: string, geometry: AttentionGeometry, plan: AttentionPlan) {
    this.#core = core;
    this.#call = call;
    this.#g = geometry;
    this.#plan = plan;
  }

  get #weightsSize(): number {
    const { batch, numHeads, queryLength, keyLength } = this.#g;
    const kind = this.#plan.weightsKind;
    return kind === 0 ? 0 : batch * (kind === 2 ? numHeads : 1) * queryLength * keyLength;
  }

  get #weightsShape(): readonly number[] {
    return this.#plan.weightsKind === 2 ? this.#g.perHeadShape : this.#g.averagedShape;
  }

  get #lseSize(): number {
    return this.#plan.returnLse ? this.#g.batch * this.#g.numHeads * this.#g.queryLength : 0;
  }

  /**
   * Lays out the call, lets `reserve` make the core's scratch large enough, and writes everything but the inputs.
   * Inputs that are the same tensor share one copy.
   */
  prepare(sameKey: boolean, sameValue: 'query' | 'key' | 'own', reserve: () => void): void {
    const core = this.#core;
    const g = this.#g;
    const plan = this.#plan;
    core.begin();
    const query = core.place(floats(g.querySize));
    const key = sameKey ? query : core.place(floats(g.keySize));
    const value = sameValue === 'query' ? query : sameValue === 'key' ? key : core.place(floats(g.valueSize));
    const output = core.place(floats(g.outputSize));
    const weights = core.place(floats(this.#weightsSize));
    const lse = core.place(floats(this.#lseSize));
    const attendMask = plan.attendMask && core.place(plan.attendMask.length);
    const attnBias = plan.attnBias && core.place(floats(plan.attnBias.length));
    const padding = plan.keyPaddingMask && core.place(plan.keyPaddingMask.length);
    const keyLengths = plan.keyLengths === undefined ? undefined : core.place(4 * g.batch);
    const queryLengths = plan.queryLengths === undefined ? undefined : core.place(4 * g.batch);
    const queryOffset = plan.queryOffset === undefined ? undefined : core.place(4 * g.batch);
    const base = core.commit(this.#call, () => this.#sizes(), this.#empty ? undefined : reserve);

    const raw = core.alive(this.#call);
    this.#query = base + query;
    this.#key = base + key;
    this.#value = base + value;
    this.#output = base + output;
    this.#weights = base + weights;
    this.#lse = base + lse;
    this.#writeSlots(raw);
    const f64 = raw.HEAPF64;
    const at = core.slots;
    const offset = (part: number | undefined): number => (part === undefined ? 0 : base + part);
    f64[at + ATTENTION.keyPaddingMask] = offset(padding);
    f64[at + ATTENTION.keyLengths] = offset(keyLengths);
    f64[at + ATTENTION.queryLengths] = offset(queryLengths);
    f64[at + ATTENTION.queryOffsets] = offset(queryOffset);
    writeMaskSlots(f64, at + ATTENTION.attendMask, offset(attendMask), plan.attendMask);
    writeMaskSlots(f64, at + ATTENTION.attnBias, offset(attnBias), plan.attnBias);
    const bytes = ({ data, length }: { data: Uint8Array; length: number }, name: string, to: number): void =>
      raw.HEAPU8.set(checkedView(this.#call, `${name}.data`, Uint8Array, data, length), to);
    if (plan.attendMask) bytes(plan.attendMask, 'attendMask', offset(attendMask));
    if (plan.attnBias) this.#writeFloats(raw.HEAPF32, 'attnBias', plan.attnBias, offset(attnBias));
    if (plan.keyPaddingMask) bytes(plan.keyPaddingMask, 'keyPaddingMask', offset(padding));
    writePerBatch(raw.HEAP32, offset(keyLengths), plan.keyLengths, g.batch);
    writePerBatch(raw.HEAP32, offset(queryLengths), plan.queryLengths, g.batch);
    writePerBatch(raw.HEAP32, offset(queryOffset), plan.queryOffset, g.batch);
  }

  #writeSlots(raw: RawModule): void {
    const f64 = raw.HEAPF64;
    const at = this.#core.slots;
    const g = this.#g;
    const plan = this.#plan;
    f64[at + ATTENTION.batch] = g.batch;
    f64[at + ATTENTION.queryLength] = g.queryLength;
    f64[at + ATTENTION.keyLength] = g.keyLength;
    f64[at + ATTENTION.numHeads] = g.numHeads;
    f64[at + ATTENTION.numKvHeads] = g.numKvHeads;
    f64[at + ATTENTION.headDim] = g.headDim;
    f64[at + ATTENTION.vHeadDim] = g.vHeadDim;
    writeViewSlots(f64, at + ATTENTION.query, this.#query, g.queryStrides);
    writeViewSlots(f64, at + ATTENTION.key, this.#key, g.keyStrides);
    writeViewSlots(f64, at + ATTENTION.value, this.#value, g.valueStrides);
    writeViewSlots(f64, at + ATTENTION.output, this.#output, g.outputStrides);
    f64[at + ATTENTION.causal] = plan.causal;
    f64[at + ATTENTION.scale] = plan.scale;
    f64[at + ATTENTION.emptyRows] = plan.emptyRows;
    f64[at + ATTENTION.weights] = plan.weightsKind === 0 ? 0 : this.#weights;
    f64[at + ATTENTION.weightsKind] = plan.weightsKind;
    f64[at + ATTENTION.lse] = plan.returnLse ? this.#lse : 0;
  }

  writeInputs(query: TensorInput, key: TensorInput, value: TensorInput): void {
    const f32 = this.#core.alive(this.#call).HEAPF32;
    this.#writeFloats(f32, 'query', query, this.#query);
    if (key !== query) this.#writeFloats(f32, 'key', key, this.#key);
    if (value !== query && value !== key) this.#writeFloats(f32, 'value', value, this.#value);
    // Memory that grew may have taken an array with it that once was lent from it.
    const { out } = this.#plan;
    if (out) checkUnchanged(this.#call, 'out', out, this.#g.outputSize);
  }

  #writeFloats(f32: Float32Array, name: string, { data, length }: Omit<TensorInput, 'shape'>, offset: number): void {
    f32.set(checkedView(this.#call, `${name}.data`, Float32Array, data, length), offset / 4);
  }

  /** No query at all: the results are empty, and the core need not be asked. */
  get #empty(): boolean {
    return this.#g.batch === 0 || this.#g.queryLength === 0;
  }

  /** `run` is the core's call; it gets the offset of the block. */
  invoke(run: (block: number) => number): void {
    if (!this.#empty) this.#core.check(this.#call, run(this.#core.block));
  }

  /** Copies of the results. */
  results(): ForwardResult {
    const f32 = this.#core.alive(this.#call).HEAPF32;
    const g = this.#g;
    const { out, weightsKind, returnLse } = this.#plan;
    const copy = (offset: number, size: number): Float32Array => f32.slice(offset / 4, offset / 4 + size);
    const at = this.#output / 4;
    if (out) {
      checkedView(this.#call, 'out', Float32Array, out, g.outputSize).set(f32.subarray(at, at + g.outputSize));
    }
    const output = { data: out ?? copy(this.#output, g.outputSize), shape: g.outputShape };
    const result: { output: Tensor; weights?: Tensor; lse?: Tensor } = { output };
    if (weightsKind !== 0) {
      result.weights = { data: copy(this.#weights, this.#weightsSize), shape: this.#weightsShape };
    }
    if (returnLse) result.lse = { data: copy(this.#lse, this.#lseSize), shape: g.lseShape };
    return result;
  }

  /** Live views of the inputs and results, for withBuffers(). */
  views(): AttentionViews {
    const f32 = this.#core.alive(this.#call).HEAPF32;
    const g = this.#g;
    const { weightsKind, returnLse } = this.#plan;
    const view = (offset: number, size: number): Float32Array => f32.subarray(offset / 4, offset / 4 + size);
    const query = view(this.#query, g.querySize);
    const key = this.#key === this.#query ? query : view(this.#key, g.keySize);
    const value =
      this.#value === this.#query ? query : this.#value === this.#key ? key : view(this.#value, g.valueSize);
    return {
      query,
      key,
      value,
      output: view(this.#output, g.outputSize),
      ...(weightsKind === 0 ? {} : { weights: view(this.#weights, this.#weightsSize) }),
      ...(returnLse ? { lse: view(this.#lse, this.#lseSize) } : {}),
    };
  }

  #sizes(): string {
    const { batch, numHeads, queryLength, keyLength } = this.#g;
    const weights = this.#plan.weightsKind === 0 ? '' : ` with attention weights ${this.#weightsShape.join(' x ')}`;
    return `B = ${batch}, H = ${numHeads}, L = ${queryLength}, S = ${keyLength}${weights}`;
  }
}

function writeViewSlots(f64: Float64Array, at: number, offset: number, strides: Strides): void {
  f64[at] = offset;
  f64[at + 1] = strides.batch;
  f64[at + 2] = strides.head;
  f64[at + 3] = strides.row;
}

function writeMaskSlots(f64: Float64Array, at: number, offset: number, mask: Broadcast<unknown> | undefined): void {
  f64[at] = offset;
  for (let i = 0; i < 4; ++i) f64[at + 1 + i] = mask ? (mask.sizes[i] as number) : 1;
}

function writePerBatch(i32: Int32Array, offset: number, value: PerBatchInput | undefined, batch: number): void {
  if (value === undefined) return;
  if (typeof value === 'number') i32.fill(value, offset / 4, offset / 4 + batch);
  else i32.set(value, offset / 4);
}
