// How queries and keys turn with their positions (rotary embedding): checks, and the core's block of numbers.
import { checkBoolean, checkChoice, checkFinite, checkOptions, checkWhole } from './arguments.js';
import { describe } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { ROTARY_SLOTS, type RotarySlot } from './raw.js';

/** How frequencies change for sequences longer than those of the training. */
export interface RopeScaling {
  /**
   * 'linear': positions / factor. 'ntk': a larger base. 'yarn': by wavelength between the two, with a magnitude.
   * 'llama3': by wavelength, as Llama 3.1.
   */
  readonly type: 'linear' | 'ntk' | 'yarn' | 'llama3';
  readonly factor: number;
  /** 'yarn' and 'llama3': the length the model was trained on. */
  readonly originalLength?: number | undefined;
  /** 'yarn': rotations over the original length above which a frequency stays. Default 32. */
  readonly betaFast?: number | undefined;
  /** 'yarn': rotations below which it is divided by the factor. Default 1. */
  readonly betaSlow?: number | undefined;
  /** 'llama3': default 1. */
  readonly lowFrequencyFactor?: number | undefined;
  /** 'llama3': default 4. */
  readonly highFrequencyFactor?: number | undefined;
}

export interface RopeOptions {
  /** Default 10000. */
  readonly base?: number | undefined;
  /** Elements of a head that turn, the first ones; even. Default all. */
  readonly dim?: number | undefined;
  /**
   * Which elements make a pair: (x[2i], x[2i + 1]) when true, as GPT-J and llama2.c; (x[i], x[i + dim/2]) when false,
   * as GPT-NeoX and Hugging Face. Default false.
   */
  readonly interleaved?: boolean | undefined;
  readonly scaling?: RopeScaling | undefined;
  /** Pairs for each axis of positions (height and width, say); they add up to dim / 2. At most 4. */
  readonly sections?: readonly number[] | undefined;
}

/** After all checks. */
export interface Rope {
  readonly dim: number;
  readonly interleaved: boolean;
  readonly base: number;
  readonly scaling: RopeScaling | undefined;
  /** Absent: one axis. */
  readonly sections: readonly number[] | undefined;
}

export const ROPE_NAMES = [
  'base',
  'dim',
  'interleaved',
  'scaling',
  'sections',
] as const satisfies readonly (keyof RopeOptions)[];
const KNOWN: ReadonlySet<string> = new Set(ROPE_NAMES);
const SCALING_NAMES: ReadonlySet<string> = new Set([
  'type',
  'factor',
  'originalLength',
  'betaFast',
  'betaSlow',
  'lowFrequencyFactor',
  'highFrequencyFactor',
] satisfies (keyof RopeScaling)[]);
const TYPES = ['linear', 'ntk', 'yarn', 'llama3'] as const;
/** As many pairs the core turns with one table of frequencies. */
const MAX_DIM = 1024;
const MAX_AXES = 4;

export const resolveRope = (call: string, value: unknown, headDim: number): Rope =>
  ropeOf(call, 'rope.', checkOptions<RopeOptions>(`${call} rope`, value, KNOWN), headDim);

/** `prefix` is what stands before the names in messages. */
export function ropeOf(call: string, prefix: string, o: Partial<RopeOptions>, headDim: number): Rope {
  const dim = o.dim === undefined ? headDim : checkWhole(call, `${prefix}dim`, o.dim, { least: 2, most: headDim });
  if (dim % 2 !== 0 || dim > MAX_DIM) {
    throw rangeError({
      call,
      argument: `${prefix}dim`,
      got: o.dim === undefined ? `${dim}, the head size` : String(dim),
      wanted: `even, and at most ${MAX_DIM}`,
      wayOut: 'elements turn in pairs; give the number of those that turn',
    });
  }
  return {
    dim,
    interleaved: o.interleaved === undefined ? false : checkBoolean(call, `${prefix}interleaved`, o.interleaved),
    base: o.base === undefined ? 10000 : positive(call, `${prefix}base`, o.base),
    scaling: o.scaling === undefined ? undefined : checkScaling(call, `${prefix}scaling`, o.scaling, dim),
    sections: o.sections === undefined ? undefined : checkSections(call, `${prefix}sections`, o.sections, dim / 2),
  };
}

function positive(call: string, argument: string, value: unknown): number {
  const x = checkFinite(call, argument, value);
  if (x > 0) return x;
  throw rangeError({ call, argument, got: describe(value), wanted: 'positive', wayOut: 'give what the model names' });
}

function checkScaling(call: string, name: string, value: unknown, dim: number): RopeScaling {
  const o = checkOptions<RopeScaling>(`${call} ${name}`, value, SCALING_NAMES);
  const type = checkChoice(call, `${name}.type`, o.type, TYPES);
  const number = (key: Exclude<keyof RopeScaling, 'type'>, fallback?: number): number =>
    fallback !== undefined && o[key] === undefined ? fallback : positive(call, `${name}.${key}`, o[key]);
  const OF: Readonly<Record<string, string>> = {
    originalLength: 'yarn llama3',
    betaFast: 'yarn',
    betaSlow: 'yarn',
    lowFrequencyFactor: 'llama3',
    highFrequencyFactor: 'llama3',
  };
  for (const [key, types] of Object.entries(OF)) {
    if (o[key as keyof RopeScaling] === undefined || types.includes(type)) continue;
    throw typeError(
      {
        call,
        argument: `${name}.${key}`,
        got: `given with type '${type}'`,
        wanted: 'left away',
        wayOut: `it belongs to ${types.replace(' ', ' and ')}`,
      },
      'conflict',
    );
  }
  if (type === 'ntk' && dim === 2) {
    throw rangeError({
      call,
      argument: `${name}.type`,
      got: "'ntk' with dim 2",
      wanted: "'linear' for one pair",
      wayOut: 'a larger base changes nothing there',
    });
  }
  const factor = number('factor');
  if (type === 'linear' || type === 'ntk') return { type, factor };
  const originalLength = number('originalLength');
  if (type === 'yarn') {
    return { type, factor, originalLength, betaFast: number('betaFast', 32), betaSlow: number('betaSlow', 1) };
  }
  const low = number('lowFrequencyFactor', 1);
  const high = number('highFrequencyFactor', 4);
  if (high <= low) {
    throw rangeError({
      call,
      argument: `${name}.highFrequencyFactor`,
      got: String(high),
      wanted: `above lowFrequencyFactor ${low}`,
      wayOut: 'Llama 3.1 has 1 and 4',
    });
  }
  return { type, factor, originalLength, lowFrequencyFactor: low, highFrequencyFactor: high };
}

function checkSections(call: string, argument: string, value: unknown, pairs: number): readonly number[] {
  if (!Array.isArray(value)) {
    const wanted = 'an Array with the pairs of each axis';
    throw typeError({ call, argument, got: describe(value), wanted, wayOut: 'give [16, 24, 24], say' });
  }
  const sections = value.map((n: unknown, i) => checkWhole(call, `${argument}[${i}]`, n, { least: 0, most: pairs }));
  const sum = sections.reduce((a, b) => a + b, 0);
  if (sections.length >= 1 && sections.length <= MAX_AXES && sum === pairs) return sections;
  throw rangeError({
    call,
    argument,
    got: `[${sections.join(', ')}]`,
    wanted: `1 to ${MAX_AXES} numbers that add up to ${pairs}, half of what turns`,
    wayOut: 'each number counts pairs',
  });
}

/** Axes of the positions. */
export const ropeAxes = (rope: Rope): number => rope.sections?.length ?? 1;

/** Writes the core's rotary block. */
export function writeRope(f64: Float64Array, at: number, rope: Rope): void {
  const { scaling, sections = [] } = rope;
  const values: Record<RotarySlot, number> = {
    dim: rope.dim,
    interleaved: Number(rope.interleaved),
    base: rope.base,
    scaling: scaling === undefined ? 0 : 1 + TYPES.indexOf(scaling.type),
    factor: scaling?.factor ?? 1,
    originalLength: scaling?.originalLength ?? 0,
    betaFast: scaling?.betaFast ?? 32,
    betaSlow: scaling?.betaSlow ?? 1,
    lowFrequencyFactor: scaling?.lowFrequencyFactor ?? 1,
    highFrequencyFactor: scaling?.highFrequencyFactor ?? 4,
    axes: sections.length,
    section0: sections[0] ?? 0,
    section1: sections[1] ?? 0,
    section2: sections[2] ?? 0,
    section3: sections[3] ?? 0,
  };
  ROTARY_SLOTS.forEach((slot, i) => {
    f64[at + i] = values[slot];
  });
}
