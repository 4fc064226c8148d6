// State dicts to parameters and back, for any layout. A dict is checked as a whole before anything is written, and
// everything wrong with it is told at once.
import { checkBoolean, checkOptions, namedEntries } from './arguments.js';
import { describe, showShape } from './describe.js';
import { StateDictError, typeError } from './errors.js';
import { type FloatSource, type StateDict, floatSource } from './stored-tensor.js';
import type { Tensor } from './tensor.js';
import type { Entry, LayoutName, Parameter, WeightLayout } from './weight-layouts.js';

export interface LoadStateDictOptions {
  /** In front of every name, such as 'encoder.layers.0.self_attn.'. Other names of the dict are left alone. */
  readonly prefix?: string | undefined;
  /** Whether missing and unexpected names are errors. Default true. */
  readonly strict?: boolean | undefined;
  /** Whose names and shapes. Default 'pytorch'. */
  readonly layout?: LayoutName | undefined;
}
export interface StateDictOptions {
  /** Put in front of every name. */
  readonly prefix?: string | undefined;
  /** Whose names and shapes. Default 'pytorch'. */
  readonly layout?: LayoutName | undefined;
}
export interface LoadStateDictResult {
  /** Names the dict lacks; their parameters kept their values. Empty when strict. */
  readonly missing: readonly string[];
  /** Names under the prefix that were not used. Empty when strict. */
  readonly unexpected: readonly string[];
}

interface Assignment<Slot extends string> {
  readonly entry: Entry<Slot>;
  readonly source: FloatSource;
}
export interface StateDictPlan<Slot extends string> extends LoadStateDictResult {
  readonly assignments: readonly Assignment<Slot>[];
}

const LOAD_NAMES: ReadonlySet<string> = new Set([
  'prefix',
  'strict',
  'layout',
] satisfies (keyof LoadStateDictOptions)[]);
const SAVE_NAMES: ReadonlySet<string> = new Set(['prefix', 'layout'] satisfies (keyof StateDictOptions)[]);

export const checkLoadOptions = (call: string, options: unknown): Partial<LoadStateDictOptions> =>
  checkPrefix(call, checkOptions<LoadStateDictOptions>(call, options, LOAD_NAMES));
export const checkSaveOptions = (call: string, options: unknown): Partial<StateDictOptions> =>
  checkPrefix(call, checkOptions<StateDictOptions>(call, options, SAVE_NAMES));

function checkPrefix<T extends { readonly prefix?: string | undefined }>(call: string, options: T): T {
  if (options.prefix !== undefined && typeof options.prefix !== 'string') {
    throw typeError({
      call,
      argument: 'prefix',
      got: describe(options.prefix),
      wanted: 'a string',
      wayOut: "give what stands in front of the names, such as 'encoder.self_attn.'",
    });
  }
  return options;
}

function toMap(call: string, dict: unknown): ReadonlyMap<string, unknown> {
  const entries = namedEntries(dict);
  if (entries === undefined) {
    throw typeError({
      call,
      argument: 'stateDict',
      got: describe(dict),
      wanted: 'an object or a Map of names to tensors',
      wayOut: 'give parseSafetensors(bytes).tensors, say',
    });
  }
  return new Map(entries);
}

export function planStateDict<Slot extends string>(
  call: string,
  dict: StateDict,
  layout: WeightLayout<Slot>,
  options: Partial<LoadStateDictOptions>,
): StateDictPlan<Slot> {
  const prefix = options.prefix ?? '';
  const strict = options.strict === undefined ? true : checkBoolean(call, 'strict', options.strict);
  const tensors = toMap(call, dict);
  const given = new Set<string>();
  for (const name of tensors.keys()) {
    if (typeof name === 'string' && name.startsWith(prefix)) given.add(name.slice(prefix.length));
  }
  for (const [name, option] of Object.entries(layout.refused ?? {})) {
    if (!given.has(name)) continue;
    throw new StateDictError(
      `${call}: stateDict has "${prefix}${name}"; it must not, for this layer has no ${option}; make it with ${option}: true`,
      [],
      [prefix + name],
      [],
    );
  }

  const missing: string[] = [];
  const mismatched: string[] = [];
  const assignments: Assignment<Slot>[] = [];
  const nameIn = (entry: Entry<Slot>): string | undefined =>
    [entry.name, ...(entry.aliases ?? [])].find((name) => given.has(name));
  for (const group of layout.groups) {
    const used = group.find((entries) => entries.some((entry) => nameIn(entry) !== undefined)) ?? group[0] ?? [];
    for (const entry of used) {
      const name = nameIn(entry);
      if (name === undefined) {
        missing.push(prefix + entry.name);
        continue;
      }
      given.delete(name);
      const source = floatSource(`"${prefix}${name}"`, tensors.get(prefix + name));
      if (typeof source === 'string') mismatched.push(source);
      else if (!sameShape(source.shape, entry.shape)) {
        mismatched.push(
          `"${prefix}${name}" has shape ${showShape(source.shape)}; it must be ${showShape(entry.shape)}`,
        );
      } else assignments.push({ entry, source });
    }
  }
  for (const name of layout.ignored ?? []) given.delete(name);
  const unexpected = [...given].map((name) => prefix + name);
  if (mismatched.length > 0 || (strict && (missing.length > 0 || unexpected.length > 0))) {
    const reported = strict ? { missing, unexpected } : { missing: [], unexpected: [] };
    throw complaint(call, reported, mismatched, tensors);
  }
  return { assignments, missing, unexpected };
}

const sameShape = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((size, i) => size === b[i]);

const SHOWN_NAMES = 24;
function list(names: readonly string[]): string {
  const shown = names.slice(0, SHOWN_NAMES).join(', ');
  return names.length > SHOWN_NAMES ? `${shown} and ${names.length - SHOWN_NAMES} more` : shown;
}

function complaint(
  call: string,
  { missing, unexpected }: { missing: readonly string[]; unexpected: readonly string[] },
  mismatched: readonly string[],
  tensors: ReadonlyMap<string, unknown>,
): StateDictError {
  const faults: string[] = [];
  if (missing.length > 0) faults.push(`missing ${list(missing)}`);
  if (unexpected.length > 0) faults.push(`unexpected ${list(unexpected)}`);
  faults.push(...mismatched);
  return new StateDictError(
    `${call}: stateDict does not fit this layer: ${faults.join('; ')}; nothing was loaded; ${wayOut(missing, tensors)}`,
    missing,
    unexpected,
    mismatched,
  );
}

/** Most often the prefix is forgotten: then the missing name ends another one. */
function wayOut(missing: readonly string[], tensors: ReadonlyMap<string, unknown>): string {
  for (const name of missing) {
    const longer = [...tensors.keys()].find((key) => typeof key === 'string' && key !== name && key.endsWith(name));
    if (longer !== undefined) return `use prefix: ${JSON.stringify(longer.slice(0, -name.length))}, perhaps`;
  }
  return 'correct the names or the options of the layer, or use prefix, layout or strict: false';
}

/** A weight [rows, columns] to [columns, rows]. */
function transposed(from: Float32Array, rows: number, columns: number): Float32Array {
  const to = new Float32Array(from.length);
  for (let r = 0; r < rows; ++r) {
    for (let c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c] as number;
  }
  return to;
}

/** Where each parameter stands: live views of WASM memory, or arrays. */
export type ParameterViews<Slot extends string> = ReadonlyMap<Slot, Float32Array>;

export function writeParameters<Slot extends string>(
  call: string,
  plan: StateDictPlan<Slot>,
  views: ParameterViews<Slot>,
): void {
  for (const { entry, source } of plan.assignments) {
    const [first] = entry.parts;
    if (first !== undefined && entry.parts.length === 1 && entry.transpose === undefined) {
      source.read(call, view(views, first));
      continue;
    }
    let values = new Float32Array(source.length);
    source.read(call, values);
    if (entry.transpose) values = transposed(values, entry.transpose.rows, entry.transpose.columns) as typeof values;
    let at = 0;
    for (const part of entry.parts) {
      view(views, part).set(values.subarray(at, at + part.size));
      at += part.size;
    }
  }
}

export function readParameters<Slot extends string>(
  layout: WeightLayout<Slot>,
  views: ParameterViews<Slot>,
  prefix: string,
): Record<string, Tensor> {
  const dict: Record<string, Tensor> = {};
  for (const group of layout.groups) {
    for (const entry of group[0] ?? []) {
      let data = new Float32Array(entry.parts.reduce((sum, part) => sum + part.size, 0));
      let at = 0;
      for (const part of entry.parts) {
        data.set(view(views, part), at);
        at += part.size;
      }
      if (entry.transpose) data = transposed(data, entry.transpose.columns, entry.transpose.rows) as typeof data;
      dict[prefix + entry.name] = { data, shape: [...entry.shape] };
    }
  }
  return dict;
}

function view<Slot extends string>(views: ParameterViews<Slot>, part: Parameter<Slot>): Float32Array {
  const found = views.get(part.slot);
  if (found === undefined) throw new Error(`no memory for ${part.slot}`);
  return found;
}
