// Linear: y = x Wᵀ + b, with the weight packed once. Whoever runs a whole model needs it beside attention.
import { checkBoolean, checkOptions, checkWhole } from './arguments.js';
import { type Core, WAY_TO_SMALLER, checkAddressable } from './core.js';
import { describe, showShape } from './describe.js';
import { DISPOSE } from './dispose.js';
import { rangeError, typeError } from './errors.js';
import { checkOut } from './forward-options.js';
import { Handle } from './handle.js';
import { MAX_WIDTH, checkSeed } from './layer-options.js';
import { type LoadOptions, runtimeOf } from './load.js';
import type { RawLinear } from './raw.js';
import { type Runtime, coreFor } from './runtime.js';
import {
  type LoadStateDictOptions,
  type LoadStateDictResult,
  type StateDictOptions,
  checkLoadOptions,
  checkSaveOptions,
  planStateDict,
  readParameters,
  writeParameters,
} from './state-dict.js';
import type { StateDict } from './stored-tensor.js';
import { type Tensor, MAX_SIZE, readTensor } from './tensor.js';
import { checkUnchanged, checkedView } from './typed-arrays.js';
import type { Parameter, WeightLayout } from './weight-layouts.js';
import { withParameters } from './weight-memory.js';

export interface LinearOptions {
  readonly inFeatures: number;
  readonly outFeatures: number;
  /** Default true. */
  readonly bias?: boolean | undefined;
  /** Of the initial weights. Default 0. */
  readonly seed?: number | undefined;
  /** Default: the first one that was loaded and is alive. */
  readonly runtime?: Runtime | undefined;
}

export interface LinearForwardOptions {
  /** Where to write the output; the result's data is this array. */
  readonly out?: Float32Array | undefined;
}

type Slot = 'weight' | 'bias';

const NAME = 'Linear';
const NEW = 'new Linear()';
const FORWARD = 'Linear.forward()';
const OPTION_NAMES: ReadonlySet<string> = new Set([
  'inFeatures',
  'outFeatures',
  'bias',
  'seed',
  'runtime',
] satisfies (keyof LinearOptions)[]);
const FORWARD_NAMES: ReadonlySet<string> = new Set(['out'] satisfies (keyof LinearForwardOptions)[]);

export class Linear {
  readonly inFeatures: number;
  readonly outFeatures: number;
  readonly bias: boolean;
  readonly #core: Core;
  readonly #handle: Handle<RawLinear>;
  readonly #parameters: readonly Parameter<Slot>[];
  readonly #layout: WeightLayout<Slot>;
  #reservedRows = -1;
  #reservedEpoch = 0;

  /** Loads the module when that has not happened yet. */
  static async create(options: LinearOptions, loadOptions?: LoadOptions): Promise<Linear> {
    const call = 'Linear.create()';
    const { runtime, ...layer } = resolveLinear(call, options);
    return new Linear({ ...layer, runtime: await runtimeOf(call, runtime, loadOptions) });
  }

  /** Weights start as PyTorch's nn.Linear initialises them, from `seed`. Needs a loaded runtime. */
  constructor(options: LinearOptions) {
    const { inFeatures, outFeatures, bias, seed, runtime } = resolveLinear(NEW, options);
    this.inFeatures = inFeatures;
    this.outFeatures = outFeatures;
    this.bias = bias;
    const shape = [outFeatures, inFeatures];
    const size = outFeatures * inFeatures;
    this.#parameters = [
      { slot: 'weight', size },
      ...(this.bias ? [{ slot: 'bias' as const, size: this.outFeatures }] : []),
    ];
    const shapes: Record<Slot, number[]> = { weight: shape, bias: [this.outFeatures] };
    this.#layout = {
      groups: this.#parameters.map((part) => [[{ name: part.slot, shape: shapes[part.slot], parts: [part] }]]),
    };
    this.#core = coreFor(NEW, runtime);
    const raw = this.#core.use(NEW).Linear.create(this.inFeatures, this.outFeatures, this.bias ? 1 : 0, seed);
    if (raw === null) throw this.#core.constructionFailure(NEW);
    this.#handle = new Handle(this, NAME, this.#core, raw);
  }

  get disposed(): boolean {
    return this.#handle.disposed;
  }

  /** x [..., inFeatures] -> [..., outFeatures]. */
  forward(x: Tensor, options?: LinearForwardOptions): Tensor {
    this.#handle.get(FORWARD);
    const { data, length, shape } = readTensor(FORWARD, 'x', x);
    if (shape.length === 0 || shape.at(-1) !== this.inFeatures) {
      throw rangeError(
        {
          call: FORWARD,
          argument: 'x.shape',
          got: showShape(shape),
          wanted: `of rank 1 or more, ending in inFeatures ${this.inFeatures}`,
          wayOut: 'give the layer the width of the data',
        },
        'wrong-shape',
      );
    }
    const o = checkOptions<LinearForwardOptions>(FORWARD, options, FORWARD_NAMES);
    const rows = length / this.inFeatures;
    const size = rows * this.outFeatures;
    if (rows > MAX_SIZE) {
      throw rangeError(
        {
          call: FORWARD,
          argument: 'x.shape',
          got: `${showShape(shape)}, ${rows} rows`,
          wanted: `of at most ${MAX_SIZE} rows`,
          wayOut: 'split x',
        },
        'too-large',
      );
    }
    const out = o.out === undefined ? undefined : checkOut(FORWARD, o.out, size);
    const outShape = [...shape.slice(0, -1), this.outFeatures];
    if (size === 0) return { data: out ?? new Float32Array(0), shape: outShape };

    const core = this.#core;
    // Anew: a getter of the arguments may have disposed of the layer.
    const raw = this.#handle.get(FORWARD);
    return core.exclusively(FORWARD, () => {
      core.begin();
      const input = core.place(4 * length);
      const output = core.place(4 * size);
      const sizes = (): string => `x ${showShape(shape)} and the output ${showShape(outShape)}`;
      const base = core.commit(FORWARD, sizes, () => this.#reserve(raw, rows));
      const module = core.alive(FORWARD);
      module.HEAPF32.set(checkedView(FORWARD, 'x.data', Float32Array, data, length), (base + input) / 4);
      if (out) checkUnchanged(FORWARD, 'out', out, size);
      core.check(FORWARD, raw.forward(base + input, rows, base + output));
      const f32 = module.HEAPF32;
      const at = (base + output) / 4;
      if (out) checkedView(FORWARD, 'out', Float32Array, out, size).set(f32.subarray(at, at + size));
      return { data: out ?? f32.slice(at, at + size), shape: outShape };
    });
  }

  /** Takes `weight` [outFeatures, inFeatures] and `bias` [outFeatures]. On an error nothing has changed. */
  loadStateDict(stateDict: StateDict, options?: Omit<LoadStateDictOptions, 'layout'>): LoadStateDictResult {
    const call = 'Linear.loadStateDict()';
    this.#handle.get(call);
    const checked = checkLoadOptions(call, options);
    refuseLayout(call, checked.layout);
    const plan = planStateDict(call, stateDict, this.#layout, checked);
    const raw = this.#handle.get(call);
    withParameters(this.#core, call, this.#parameters, (views, offsets) => {
      const [weight, bias] = [offsets.get('weight') ?? 0, offsets.get('bias') ?? 0];
      if (plan.missing.length > 0) this.#core.check(call, raw.getWeights(weight, bias));
      writeParameters(call, plan, views);
      this.#core.check(call, raw.setWeights(weight, bias));
    });
    return { missing: plan.missing, unexpected: plan.unexpected };
  }

  /** Copies of the parameters. */
  stateDict(options?: Omit<StateDictOptions, 'layout'>): Record<string, Tensor> {
    const call = 'Linear.stateDict()';
    this.#handle.get(call);
    const checked = checkSaveOptions(call, options);
    refuseLayout(call, checked.layout);
    const raw = this.#handle.get(call);
    return withParameters(this.#core, call, this.#parameters, (views, offsets) => {
      this.#core.check(call, raw.getWeights(offsets.get('weight') ?? 0, offsets.get('bias') ?? 0));
      return readParameters(this.#layout, views, checked.prefix ?? '');
    });
  }

  /** Frees the memory. A second call does nothing. */
  dispose(): void {
    this.#handle.dispose();
  }
  [DISPOSE](): void {
    this.dispose();
  }

  #reserve(raw: RawLinear, rows: number): void {
    const epoch = this.#core.scratchEpoch;
    if (rows === this.#reservedRows && epoch === this.#reservedEpoch) return;
    this.#core.check(FORWARD, raw.reserve(rows));
    this.#reservedRows = rows;
    this.#reservedEpoch = epoch;
  }
}

function resolveLinear(
  call: string,
  options: unknown,
): { inFeatures: number; outFeatures: number; bias: boolean; seed: number; runtime: Runtime | undefined } {
  const o = checkOptions<LinearOptions>(call, options, OPTION_NAMES);
  const inFeatures = checkWhole(call, 'inFeatures', o.inFeatures, { most: MAX_WIDTH });
  const outFeatures = checkWhole(call, 'outFeatures', o.outFeatures, { most: MAX_WIDTH });
  const bias = o.bias === undefined ? true : checkBoolean(call, 'bias', o.bias);
  const seed = checkSeed(call, o.seed);
  const weight = (): string => `the weight ${showShape([outFeatures, inFeatures])}`;
  checkAddressable(call, 4 * outFeatures * inFeatures, weight, WAY_TO_SMALLER);
  return { inFeatures, outFeatures, bias, seed, runtime: o.runtime };
}

function refuseLayout(call: string, layout: unknown): void {
  if (layout === undefined) return;
  throw typeError(
    {
      call,
      argument: 'option "layout"',
      got: describe(layout),
      wanted: 'left away',
      wayOut: 'all frameworks but Keras name these weight and bias; transpose a Keras kernel',
    },
    'unknown-option',
  );
}
