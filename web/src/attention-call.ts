// One attention call on its way through WASM memory: reserve, write, call, read. Memory may grow only in reserve, and
// no view is kept across it.
import type { OpenBlockMask } from './block-mask.js';
import type { AttentionPlan, PlannedArray, PlannedResult } from './call-plan.js';
import type { Core } from './core.js';
import { resolvePositionMask } from './position-mask.js';
import { ATTENTION, ATTENTION_SLOTS, type RawModule } from './raw.js';
import { writeRope } from './rope-options.js';
import { withScoreMod } from './score-mod.js';
import { type Tensor, type TensorInput, product } from './tensor.js';
import { checkUnchanged, checkedView, typedArrayName } from './typed-arrays.js';

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
  /** Rows of key and value: of the call's own, also with a cache. */
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
  /** With returnMax. [B, H, L]; no B when unbatched. */
  readonly rowMax?: Tensor;
  /** With needScores. [B, H, L, S]; no B when unbatched. */
  readonly scores?: Tensor;
  /** With returnHeads: what each head hands to the output projection. [B, L, H, Dv]; no B when unbatched. */
  readonly heads?: Tensor;
}

/** All that a call may have computed. */
export type CallResults = ForwardResult & { readonly [Name in PlannedResult['name']]?: Tensor };

/** With needWeights of 'averaged' or 'perHead'. */
export interface WeightedResult extends ForwardResult {
  readonly weights: Tensor;
}

/** Arrays inside WASM memory; shapes as those of ForwardResult. */
export interface AttentionViews {
  readonly query: Float32Array;
  readonly key: Float32Array;
  readonly value: Float32Array;
  readonly output: Float32Array;
  /** With needWeights. */
  readonly weights?: Float32Array;
  /** With returnLse. */
  readonly lse?: Float32Array;
  /** With returnMax. */
  readonly rowMax?: Float32Array;
  /** With needScores. */
  readonly scores?: Float32Array;
  /** With returnHeads. */
  readonly heads?: Float32Array;
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
  /** Offset of each planned result. */
  #results: readonly number[] = [];
  readonly #mask: OpenBlockMask | undefined;

  /** Functions of the caller are asked here; afterwards only a scoreMod is. */
  constructor(core: Core, call: string, geometry: AttentionGeometry, plan: AttentionPlan) {
    this.#core = core;
    this.#call = call;
    this.#g = geometry;
    this.#plan = plan;
    this.#mask = plan.mask === undefined ? undefined : resolvePositionMask(call, core, plan.mask);
  }

  /**
   * Lays out the call, lets `reserve` make the core's scratch large enough, and writes everything but the inputs.
   * Inputs that are the same tensor share one copy.
   */
  prepare(sameKey: boolean, sameValue: 'query' | 'key' | 'own', reserve: () => void): void {
    const core = this.#core;
    const g = this.#g;
    const { arrays, results } = this.#plan;
    core.begin();
    const query = core.place(floats(g.querySize));
    const key = sameKey ? query : core.place(floats(g.keySize));
    const value = sameValue === 'query' ? query : sameValue === 'key' ? key : core.place(floats(g.valueSize));
    const output = core.place(floats(g.outputSize));
    const resultsAt = results.map(({ shape }) => core.place(floats(product(shape))));
    const arraysAt = arrays.map(({ data, length }) => core.place(length * data.BYTES_PER_ELEMENT));
    const base = core.commit(this.#call, () => this.#sizes(), this.#empty ? undefined : reserve);

    const raw = core.alive(this.#call);
    this.#query = base + query;
    this.#key = base + key;
    this.#value = base + value;
    this.#output = base + output;
    this.#results = resultsAt.map((at) => base + at);
    this.#writeSlots(raw);
    arrays.forEach((array, i) => {
      const offset = base + (arraysAt[i] as number);
      raw.HEAPF64[core.slots + ATTENTION[array.slot]] = offset;
      writeArray(this.#call, raw, offset, array);
    });
  }

  #writeSlots(raw: RawModule): void {
    const f64 = raw.HEAPF64;
    const at = this.#core.slots;
    const g = this.#g;
    const { numbers, results, rope } = this.#plan;
    // What no option asks for is 0.
    f64.fill(0, at, at + ATTENTION_SLOTS.length);
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
    for (const [slot, x] of numbers) f64[at + ATTENTION[slot]] = x;
    f64[at + ATTENTION.blockMask] = this.#maskAddress();
    results.forEach(({ slot }, i) => {
      f64[at + ATTENTION[slot]] = this.#results[i] as number;
    });
    if (rope === undefined) return;
    writeRope(f64, this.#core.sideSlots, rope);
    f64[at + ATTENTION.rotary] = this.#core.sideBlock;
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

  #writeFloats(f32: Float32Array, name: string, { data, length }: TensorInput, offset: number): void {
    f32.set(checkedView(this.#call, `${name}.data`, Float32Array, data, length), offset / 4);
  }

  /** Whether all results are, so that the core need not be asked. */
  get #empty(): boolean {
    return this.#g.outputSize === 0 && this.#plan.results.every(({ shape }) => product(shape) === 0);
  }

  /** `run` is the core's call; it gets the offset of the block. */
  invoke(run: (block: number) => number): void {
    if (this.#empty) return;
    const raw = this.#core.alive(this.#call);
    // Anew: it may have been disposed of since the call was laid out.
    if (this.#mask !== undefined) raw.HEAPF64[this.#core.slots + ATTENTION.blockMask] = this.#maskAddress();
    const status = this.running(() => run(this.#core.block));
    this.#core.check(this.#call, status);
  }

  /** Runs the core with what this call lets it call back. */
  running<R>(run: () => R): R {
    const { scoreMod } = this.#plan;
    if (scoreMod === undefined) return run();
    const core = this.#core;
    return core.callingBack(this.#call, () => withScoreMod(this.#call, core.alive(this.#call), scoreMod, run));
  }

  #maskAddress(): number {
    return this.#mask?.raw(this.#call).address() ?? 0;
  }

  /** Copies of the results. */
  results(): CallResults {
    const f32 = this.#core.alive(this.#call).HEAPF32;
    const g = this.#g;
    const { out, results } = this.#plan;
    const copy = (offset: number, size: number): Float32Array => f32.slice(offset / 4, offset / 4 + size);
    const at = this.#output / 4;
    if (out) {
      checkedView(this.#call, 'out', Float32Array, out, g.outputSize).set(f32.subarray(at, at + g.outputSize));
    }
    const output = { data: out ?? copy(this.#output, g.outputSize), shape: g.outputShape };
    const result: { output: Tensor } & { [Name in PlannedResult['name']]?: Tensor } = { output };
    results.forEach(({ name, shape }, i) => {
      result[name] = { data: copy(this.#results[i] as number, product(shape)), shape };
    });
    return result;
  }

  /** Live views of the inputs and results, for withBuffers(). */
  views(): AttentionViews {
    const f32 = this.#core.alive(this.#call).HEAPF32;
    const g = this.#g;
    const view = (offset: number, size: number): Float32Array => f32.subarray(offset / 4, offset / 4 + size);
    const query = view(this.#query, g.querySize);
    const key = this.#key === this.#query ? query : view(this.#key, g.keySize);
    const value =
      this.#value === this.#query ? query : this.#value === this.#key ? key : view(this.#value, g.valueSize);
    const results = this.#plan.results.map(({ name, shape }, i) => [
      name,
      view(this.#results[i] as number, product(shape)),
    ]);
    return { query, key, value, output: view(this.#output, g.outputSize), ...Object.fromEntries(results) };
  }

  #sizes(): string {
    const { batch, numHeads, queryLength, keyLength } = this.#g;
    const of = { weights: 'attention weights', scores: 'scores' } as const;
    const large = this.#plan.results
      .flatMap(({ name, shape }) =>
        name === 'weights' || name === 'scores' ? [`${of[name]} ${shape.join(' x ')}`] : [],
      )
      .join(' and ');
    const sizes = `B = ${batch}, H = ${numHeads}, L = ${queryLength}, S = ${keyLength}`;
    return large === '' ? sizes : `${sizes} with ${large}`;
  }
}

function writeViewSlots(f64: Float64Array, at: number, offset: number, strides: Strides): void {
  f64[at] = offset;
  f64[at + 1] = strides.batch;
  f64[at + 2] = strides.head;
  f64[at + 3] = strides.row;
}

function writeArray(call: string, raw: RawModule, offset: number, { name, data, length }: PlannedArray): void {
  switch (typedArrayName(data)) {
    case 'Float32Array':
      raw.HEAPF32.set(checkedView(call, name, Float32Array, data, length), offset / 4);
      break;
    case 'Int32Array':
      raw.HEAP32.set(checkedView(call, name, Int32Array, data, length), offset / 4);
      break;
    default:
      raw.HEAPU8.set(checkedView(call, name, Uint8Array, data, length), offset);
  }
}
