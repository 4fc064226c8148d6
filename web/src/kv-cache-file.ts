// A key/value cache as a safetensors file: its rows as they are stored, so that nothing is rounded twice.
import type { Core } from './core.js';
import { describe, showShape } from './describe.js';
import { SafetensorsError, sentence } from './errors.js';
import type { CacheConfig, CacheDType } from './kv-cache.js';
import type { RawKvCache } from './raw.js';
import { parseSafetensors, serializeSafetensors } from './safetensors.js';
import type { DType, StoredTensor } from './stored-tensor.js';

export interface CacheFileAccess {
  readonly call: string;
  readonly core: Core;
  readonly raw: RawKvCache;
  readonly config: CacheConfig;
}

const FORMAT = 'headwise-kv-cache-1';
const STORED = {
  f32: { dtype: 'F32', bytes: 4, array: Float32Array },
  f16: { dtype: 'F16', bytes: 2, array: Uint16Array },
  bf16: { dtype: 'BF16', bytes: 2, array: Uint16Array },
  int8: { dtype: 'I8', bytes: 1, array: Int8Array },
} as const satisfies Record<CacheDType, { dtype: DType; bytes: number; array: unknown }>;

/** What must be equal for a file to fit a cache. */
const SAME = ['batch', 'numKvHeads', 'headDim', 'vHeadDim', 'window', 'sinkTokens', 'dtype'] as const;

/** Positions [first, end) of an entry. */
interface Span {
  readonly first: number;
  readonly end: number;
}

/** What an entry holds: all, or the first tokens and the last ones. */
function heldSpans(raw: RawKvCache, { sinkTokens, window }: CacheConfig, b: number): Span[] {
  const length = raw.length(b);
  if (window === 0) return [{ first: 0, end: length }];
  const sinks = Math.min(sinkTokens, length);
  let first = length;
  while (first > sinks && raw.holds(b, first - 1)) --first;
  return [
    { first: 0, end: sinks },
    { first, end: length },
  ];
}

interface Rows {
  readonly key: number;
  readonly value: number;
  readonly keyScale: number;
  readonly valueScale: number;
}

/** Calls f with WASM memory for `count` rows of one head. */
function withRows<R>({ call, core, config }: CacheFileAccess, count: number, f: (rows: Rows) => R): R {
  const { bytes } = STORED[config.dtype];
  core.begin();
  const key = core.place(count * config.headDim * bytes);
  const value = core.place(count * config.vHeadDim * bytes);
  const scales = [core.place(4 * count), core.place(4 * count)] as const;
  const base = core.commit(call, () => `${count} rows of a cache`);
  const scaled = config.dtype === 'int8';
  return f({
    key: base + key,
    value: base + value,
    keyScale: scaled ? base + scales[0] : 0,
    valueScale: scaled ? base + scales[1] : 0,
  });
}

export function saveCache(access: CacheFileAccess): Uint8Array {
  const { call, core, raw, config } = access;
  const { dtype, bytes, array: ArrayType } = STORED[config.dtype];
  const { batch, numKvHeads: heads, headDim, vHeadDim } = config;
  const tensors: Record<string, StoredTensor> = {};
  const firsts: number[] = [];
  const lengths: number[] = [];
  for (let b = 0; b < batch; ++b) {
    const spans = heldSpans(raw, config, b);
    firsts.push(spans.at(-1)?.first ?? 0);
    lengths.push(raw.length(b));
    const count = spans.reduce((sum, { first, end }) => sum + end - first, 0);
    const key = new Uint8Array(heads * count * headDim * bytes);
    const value = new Uint8Array(heads * count * vHeadDim * bytes);
    const keyScale = new Float32Array(heads * count);
    const valueScale = new Float32Array(heads * count);
    let row = 0;
    for (let head = 0; head < heads; ++head) {
      for (const { first, end } of spans) {
        const n = end - first;
        if (n === 0) continue;
        withRows(access, n, (at) => {
          core.check(call, raw.read(b, head, first, n, at.key, at.keyScale, at.value, at.valueScale));
          const { HEAPU8, HEAPF32 } = core.alive(call);
          key.set(HEAPU8.subarray(at.key, at.key + n * headDim * bytes), row * headDim * bytes);
          value.set(HEAPU8.subarray(at.value, at.value + n * vHeadDim * bytes), row * vHeadDim * bytes);
          if (at.keyScale === 0) return;
          keyScale.set(HEAPF32.subarray(at.keyScale / 4, at.keyScale / 4 + n), row);
          valueScale.set(HEAPF32.subarray(at.valueScale / 4, at.valueScale / 4 + n), row);
        });
        row += n;
      }
    }
    const stored = (data: Uint8Array, width: number): StoredTensor =>
      ({ dtype, shape: [heads, count, width], data: new ArrayType(data.buffer as ArrayBuffer) }) as StoredTensor;
    tensors[`key.${b}`] = stored(key, headDim);
    tensors[`value.${b}`] = stored(value, vHeadDim);
    if (config.dtype !== 'int8') continue;
    tensors[`key_scale.${b}`] = { dtype: 'F32', shape: [heads, count], data: keyScale };
    tensors[`value_scale.${b}`] = { dtype: 'F32', shape: [heads, count], data: valueScale };
  }
  const metadata: Record<string, string> = { format: FORMAT };
  for (const name of SAME) metadata[name] = String(config[name]);
  metadata['lengths'] = lengths.join(' ');
  metadata['firsts'] = firsts.join(' ');
  return serializeSafetensors(tensors, metadata);
}

interface Part {
  readonly spans: readonly Span[];
  readonly length: number;
  readonly key: Uint8Array;
  readonly value: Uint8Array;
  readonly keyScale: Float32Array;
  readonly valueScale: Float32Array;
}

export function restoreCache(access: CacheFileAccess, bytes: ArrayBuffer | Uint8Array): void {
  const { call, core, raw, config } = access;
  // All is checked before anything is written.
  const parts = readFile(call, config, bytes, slotsOf(raw, config));
  const { bytes: size } = STORED[config.dtype];
  const { headDim, vHeadDim, numKvHeads: heads } = config;
  // Memory first: nothing can fail after the first row is written.
  const most = parts.reduce((n, { spans }) => Math.max(n, ...spans.map(({ first, end }) => end - first)), 0);
  withRows(access, most, () => undefined);
  parts.forEach(({ spans, length, key, value, keyScale, valueScale }, b) => {
    let row = 0;
    for (let head = 0; head < heads; ++head) {
      for (const { first, end } of spans) {
        const n = end - first;
        if (n === 0) continue;
        withRows(access, n, (at) => {
          const { HEAPU8, HEAPF32 } = core.alive(call);
          HEAPU8.set(key.subarray(row * headDim * size, (row + n) * headDim * size), at.key);
          HEAPU8.set(value.subarray(row * vHeadDim * size, (row + n) * vHeadDim * size), at.value);
          if (at.keyScale !== 0) {
            HEAPF32.set(keyScale.subarray(row, row + n), at.keyScale / 4);
            HEAPF32.set(valueScale.subarray(row, row + n), at.valueScale / 4);
          }
          core.check(call, raw.write(b, head, first, n, at.key, at.keyScale, at.value, at.valueScale));
        });
        row += n;
      }
    }
    // Of a cropped rolling cache the file has less than the ring has room for.
    core.check(call, raw.setLength(b, length, spans[spans.length - 1]?.first ?? 0));
  });
}

/** Rows of each head of each entry that the cache has memory for. */
function slotsOf(raw: RawKvCache, { batch, numKvHeads, headDim, vHeadDim, dtype }: CacheConfig): number {
  const row = (headDim + vHeadDim) * STORED[dtype].bytes + (dtype === 'int8' ? 8 : 0);
  return raw.bytes() / (batch * numKvHeads * row);
}

function readFile(call: string, config: CacheConfig, bytes: ArrayBuffer | Uint8Array, slots: number): Part[] {
  const fail = (argument: string, got: string, wanted: string, wayOut: string): never => {
    throw new SafetensorsError(sentence({ call, argument, got, wanted, wayOut }));
  };
  const { tensors, metadata } = parseSafetensors(bytes);
  if (metadata['format'] !== FORMAT) {
    fail('format of the file', describe(metadata['format']), `"${FORMAT}"`, 'give what save() of a cache returned');
  }
  for (const name of SAME) {
    if (metadata[name] === String(config[name])) continue;
    const wanted = `${String(config[name])}, as this cache`;
    fail(`${name} of the file`, String(metadata[name]), wanted, 'make a cache with the options of the saved one');
  }
  const list = (name: string): number[] => {
    const words = (metadata[name] ?? '').split(' ');
    const numbers = words.map(Number);
    const good = numbers.every((x) => Number.isSafeInteger(x) && x >= 0) && !words.includes('');
    if (good && numbers.length === config.batch) return numbers;
    return fail(`${name} of the file`, describe(metadata[name]), `${config.batch} whole numbers`, 'save it again');
  };
  const lengths = list('lengths');
  const firsts = list('firsts');
  const { dtype, bytes: size } = STORED[config.dtype];
  const { numKvHeads: heads, headDim, vHeadDim, window, sinkTokens, capacity } = config;
  const names = new Set<string>();
  const parts = lengths.map((length, b): Part => {
    const first = firsts[b] as number;
    const sinks = Math.min(sinkTokens, length);
    const spans =
      window === 0
        ? [{ first: 0, end: length }]
        : [
            { first: 0, end: sinks },
            { first, end: length },
          ];
    if (window === 0 && length > capacity) {
      fail(`length of entry ${b}`, String(length), `at most ${capacity}, the capacity`, 'use a larger capacity');
    }
    // Everything a next query sees must be there.
    const oldest = Math.max(sinks, length - window);
    const least = Math.max(sinks, length - (slots - sinkTokens));
    if (window > 0 && (first < least || first > oldest)) {
      const wanted = `${least} to ${oldest}: the window must be whole and have room`;
      fail(`first token of entry ${b}`, String(first), wanted, 'save it again');
    }
    const count = spans.reduce((sum, span) => sum + span.end - span.first, 0);
    const take = (name: string, type: DType, shape: readonly number[]): StoredTensor => {
      names.add(name);
      const tensor = tensors[name];
      const fits = tensor?.dtype === type && showShape(tensor.shape) === showShape(shape);
      if (tensor !== undefined && fits) return tensor;
      const got = tensor === undefined ? 'missing' : `${tensor.dtype} ${showShape(tensor.shape)}`;
      return fail(`tensor "${name}"`, got, `${type} ${showShape(shape)}`, 'save it again');
    };
    const rows = (name: string, width: number): Uint8Array => {
      const { data } = take(`${name}.${b}`, dtype, [heads, count, width]);
      return new Uint8Array(data.buffer, data.byteOffset, heads * count * width * size);
    };
    const scales = (name: string): Float32Array =>
      config.dtype === 'int8'
        ? (take(`${name}.${b}`, 'F32', [heads, count]).data as Float32Array)
        : new Float32Array(0);
    return {
      spans,
      length,
      key: rows('key', headDim),
      value: rows('value', vHeadDim),
      keyScale: scales('key_scale'),
      valueScale: scales('value_scale'),
    };
  });
  const extra = Object.keys(tensors).find((name) => !names.has(name));
  if (extra !== undefined) fail(`tensor ${describe(extra)}`, 'there', 'no part of a cache', 'save it again');
  return parts;
}
