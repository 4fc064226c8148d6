// The safetensors format: 8 bytes of header length, a JSON header, then raw little-endian numbers. Files come from
// strangers, so everything the header says is checked before a byte of data is looked at.
/// <reference lib="esnext.disposable" preserve="true" />
import { namedEntries } from './arguments.js';
import { describe, showShape } from './describe.js';
import { SafetensorsError, sentence, typeError } from './errors.js';
import { duplicateKey } from './json-keys.js';
import type { DType, StateDict, StoredArrays, StoredTensor } from './stored-tensor.js';
import { checkUnchanged, plainView, trueLength, typedArrayName } from './typed-arrays.js';

export { SafetensorsError } from './errors.js';
export { bfloat16ToFloat32, float16ToFloat32, float16ToNumber } from './half.js';
export type { DType, StoredArrays, StoredTensor } from './stored-tensor.js';
export type { Tensor } from './tensor.js';

/** What a file holds. */
export interface Safetensors {
  readonly tensors: Record<string, StoredTensor>;
  readonly metadata: Record<string, string>;
}

const CALL = 'parseSafetensors()';
/** As the format's own implementation: more is an attack or a broken file. */
const MAX_HEADER = 100_000_000;
const LENGTH_BYTES = 8;

const ARRAYS = {
  F64: Float64Array,
  F32: Float32Array,
  F16: Uint16Array,
  BF16: Uint16Array,
  I64: BigInt64Array,
  I32: Int32Array,
  I16: Int16Array,
  I8: Int8Array,
  U64: BigUint64Array,
  U32: Uint32Array,
  U16: Uint16Array,
  U8: Uint8Array,
  BOOL: Uint8Array,
} as const satisfies Record<DType, unknown>;
const DTYPES = Object.keys(ARRAYS) as DType[];

function fail(argument: string, got: string, wanted: string, wayOut = 'get the file again from its source'): never {
  throw new SafetensorsError(sentence({ call: CALL, argument, got, wanted, wayOut }));
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * Reads a file. Tensors are views of `bytes` where their place in it allows, copies otherwise. F16 and BF16 are bits
 * in a Uint16Array: float16ToFloat32() and bfloat16ToFloat32() widen them. Throws SafetensorsError on anything that
 * is not well-formed.
 */
export function parseSafetensors(bytes: ArrayBuffer | Uint8Array): Safetensors {
  const file = toBytes(bytes);
  const headerLength = readHeaderLength(file);
  const header = readHeader(file, headerLength);
  const data = file.subarray(LENGTH_BYTES + headerLength);

  const metadata: Record<string, string> = Object.create(null) as Record<string, string>;
  const tensors: Record<string, StoredTensor> = Object.create(null) as Record<string, StoredTensor>;
  const ranges: Range[] = [];
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') {
      readMetadata(entry, metadata);
      continue;
    }
    const info = readEntry(name, entry, data.length);
    ranges.push(info);
    tensors[name] = {
      dtype: info.dtype,
      shape: info.shape,
      data: arrayOf(data, info),
    } as StoredTensor;
  }
  checkCovered(ranges, data.length);
  return { tensors, metadata };
}

interface Range {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly count: number;
  readonly begin: number;
  readonly end: number;
}

function toBytes(bytes: unknown): Uint8Array {
  // Of a length that stays, whatever becomes of a resizable buffer.
  if (typedArrayName(bytes) === 'Uint8Array') return plainView(Uint8Array, bytes as Uint8Array);
  if (Object.prototype.toString.call(bytes) === '[object ArrayBuffer]') {
    return plainView(Uint8Array, new Uint8Array(bytes as ArrayBuffer));
  }
  throw typeError({
    call: CALL,
    argument: 'bytes',
    got: describe(bytes),
    wanted: 'an ArrayBuffer or a Uint8Array',
    wayOut: 'use await response.arrayBuffer()',
  });
}

function readHeaderLength(file: Uint8Array): number {
  if (file.length < LENGTH_BYTES) {
    fail('the file', `${file.length} bytes long`, 'at least 8 bytes long, which hold the length of the header');
  }
  const view = new DataView(file.buffer, file.byteOffset, LENGTH_BYTES);
  // Above 2^53 this is not exact, and far too large in any case.
  const length = view.getUint32(0, true) + view.getUint32(4, true) * 2 ** 32;
  if (length > MAX_HEADER) {
    fail('the header length (bytes 0 to 7)', String(length), `at most ${MAX_HEADER}`, 'check that it is safetensors');
  }
  if (length > file.length - LENGTH_BYTES) {
    const rest = file.length - LENGTH_BYTES;
    fail('the header length (bytes 0 to 7)', String(length), `at most ${rest}, what follows it in the file`);
  }
  return length;
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

function readHeader(file: Uint8Array, length: number): Record<string, unknown> {
  if (file[LENGTH_BYTES] !== 0x7b || length === 0) {
    const got = length === 0 ? 'empty' : `begun by byte ${file[LENGTH_BYTES]}`;
    fail('the header', got, "a JSON object, begun by '{'", 'check that it is safetensors');
  }
  let text: string;
  try {
    // slice(): decoders refuse shared memory.
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(
      file.slice(LENGTH_BYTES, LENGTH_BYTES + length),
    );
  } catch {
    return fail('the header', 'not valid UTF-8', 'UTF-8 text');
  }
  let header: unknown;
  try {
    header = JSON.parse(text);
  } catch (error) {
    return fail('the header', `not valid JSON (${messageOf(error)})`, 'a JSON object');
  }
  if (!isRecord(header)) return fail('the header', describe(header), 'a JSON object');
  const twice = duplicateKey(text);
  if (twice !== undefined) fail('the header', `holding the name ${describe(twice)} twice`, 'of different names');
  return header;
}

function readMetadata(entry: unknown, metadata: Record<string, string>): void {
  if (!isRecord(entry)) return fail('__metadata__', describe(entry), 'an object of strings');
  for (const [name, value] of Object.entries(entry)) {
    if (typeof value !== 'string') fail(`__metadata__ ${describe(name)}`, describe(value), 'a string');
    else metadata[name] = value;
  }
}

function readEntry(name: string, entry: unknown, dataLength: number): Range {
  const label = `tensor ${describe(name)}`;
  if (!isRecord(entry)) return fail(label, describe(entry), 'an object with dtype, shape and data_offsets');
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== 'string' || !Object.hasOwn(ARRAYS, dtype)) {
    return fail(`${label} dtype`, describe(dtype), `one of ${DTYPES.join(', ')}`, 'convert the file to one of them');
  }
  if (!Array.isArray(shape)) return fail(`${label} shape`, describe(shape), 'an array of sizes');
  let count = 1;
  shape.forEach((size: unknown, i) => {
    if (!Number.isSafeInteger(size) || (size as number) < 0) {
      fail(`${label} shape[${i}]`, describe(size), 'a whole number from 0 to 2^53 - 1');
    }
    count *= size as number;
    if (count > Number.MAX_SAFE_INTEGER) {
      fail(`${label} shape`, `${showShape(shape)}, of more than 2^53 - 1 elements`, 'of fewer elements');
    }
  });
  if (!Array.isArray(offsets) || offsets.length !== 2) {
    return fail(`${label} data_offsets`, describe(offsets), 'an array [begin, end]');
  }
  const [begin, end] = offsets as unknown[];
  if (!Number.isSafeInteger(begin) || !Number.isSafeInteger(end)) {
    return fail(`${label} data_offsets`, showShape(offsets.map(describe)), 'two whole numbers below 2^53');
  }
  const range = { begin: begin as number, end: end as number };
  if (range.begin < 0 || range.end < range.begin || range.end > dataLength) {
    const wanted = `[begin, end] with 0 <= begin <= end <= ${dataLength}, the bytes of data in the file`;
    fail(`${label} data_offsets`, showShape(offsets), wanted);
  }
  const type = dtype as DType;
  const bytes = count * ARRAYS[type].BYTES_PER_ELEMENT;
  if (range.end - range.begin !== bytes) {
    const wanted = `${bytes} bytes apart, the size of ${dtype} ${showShape(shape)}`;
    fail(`${label} data_offsets`, `${showShape(offsets)}, ${range.end - range.begin} bytes apart`, wanted);
  }
  return { name, dtype: type, shape: shape as number[], count, ...range };
}

function arrayOf(data: Uint8Array, { dtype, count, begin, end }: Range): StoredArrays[DType] {
  const type = ARRAYS[dtype];
  const at = data.byteOffset + begin;
  if (at % type.BYTES_PER_ELEMENT === 0) return new type(data.buffer as ArrayBuffer, at, count);
  return new type(data.slice(begin, end).buffer, 0, count);
}

/** The tensors must cover the data without gap or overlap: bytes nobody reads could smuggle anything. */
function checkCovered(ranges: Range[], dataLength: number): void {
  ranges.sort((a, b) => a.begin - b.begin || a.end - b.end);
  let covered = 0;
  let before = 'the header';
  for (const { name, begin, end } of ranges) {
    const label = `tensor ${describe(name)}`;
    if (begin !== covered) {
      const what = begin < covered ? `overlapping ${before}` : `leaving a gap after ${before}`;
      fail(`${label} data_offsets`, `[${begin}, ${end}], ${what}`, `begun at ${covered}`);
    }
    covered = end;
    before = label;
  }
  if (covered !== dataLength) {
    fail('the file', `${dataLength} bytes of data long`, `${covered} bytes of data long, what its tensors cover`);
  }
}

const SAVE = 'serializeSafetensors()';

function refuse(argument: string, got: string, wanted: string, wayOut = 'correct the tensor'): never {
  throw new SafetensorsError(sentence({ call: SAVE, argument, got, wanted, wayOut }));
}

/** Entries whose names a file can hold. */
function entriesToSave(argument: string, value: unknown, of: string): (readonly [string, unknown])[] {
  const entries = namedEntries(value);
  if (entries === undefined) {
    throw typeError({
      call: SAVE,
      argument,
      got: describe(value),
      wanted: `an object or a Map of names to ${of}`,
      wayOut: 'give { name: value }',
    });
  }
  for (const [name] of entries as (readonly [unknown, unknown])[]) {
    if (typeof name !== 'string') {
      throw typeError({
        call: SAVE,
        argument: `a name in ${argument}`,
        got: describe(name),
        wanted: 'a string',
        wayOut: 'use String(name)',
      });
    }
    // Half a character has no UTF-8.
    if (/\p{Surrogate}/u.test(name)) {
      refuse(`a name in ${argument}`, describe(name), 'well-formed Unicode', 'use name.toWellFormed()');
    }
  }
  return entries;
}

interface Item {
  readonly name: string;
  readonly label: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly data: ArrayBufferView;
  readonly count: number;
  readonly itemSize: number;
  readonly bytes: number;
}

/** Each property is read once, and nothing passes that parseSafetensors() would refuse. */
function readItem(name: string, value: unknown): Item {
  const label = `tensor ${describe(name)}`;
  if (typeof value !== 'object' || value === null) {
    throw typeError({
      call: SAVE,
      argument: label,
      got: describe(value),
      wanted: 'a tensor { data, shape } or { dtype, data, shape }',
      wayOut: 'give metadata as the second argument',
    });
  }
  const { dtype = 'F32', data, shape: given } = value as { dtype?: unknown; data?: unknown; shape?: unknown };
  const type = typeof dtype === 'string' && Object.hasOwn(ARRAYS, dtype) ? ARRAYS[dtype as DType] : undefined;
  if (type === undefined || typedArrayName(data) !== type.name) {
    throw typeError({
      call: SAVE,
      argument: label,
      got: `dtype ${describe(dtype)} with data ${describe(data)}`,
      wanted: `one of ${DTYPES.join(', ')} with an array of that type`,
      wayOut: 'convert the data',
    });
  }
  if (!Array.isArray(given)) {
    throw typeError({
      call: SAVE,
      argument: `${label} shape`,
      got: describe(given),
      wanted: 'an Array of sizes',
      wayOut: 'use Array.from(shape)',
    });
  }
  const shape = Array.from(given as unknown[]);
  const array = data as ArrayBufferView;
  const length = trueLength(array);
  let count = 1;
  for (const size of shape) {
    if (!Number.isSafeInteger(size) || (size as number) < 0) {
      refuse(`${label} shape`, showShape(shape.map(describe)), 'of whole numbers from 0 to 2^53 - 1');
    }
    count *= size as number;
    // As the parser counts: also where a 0 comes later.
    if (count > Number.MAX_SAFE_INTEGER) refuse(`${label} shape`, showShape(shape), 'of at most 2^53 - 1 elements');
  }
  if (count !== length || name === '__metadata__') {
    const wanted = 'as many numbers as its shape says, under any name but __metadata__';
    refuse(label, `${length} numbers with shape ${showShape(shape)}`, wanted);
  }
  const itemSize = type.BYTES_PER_ELEMENT;
  // -0 is a whole number, too, but no size to write.
  const sizes = shape.map((size) => (size as number) + 0);
  return { name, label, dtype: dtype as DType, shape: sizes, data: array, count, itemSize, bytes: count * itemSize };
}

function readMetadataToSave(metadata: unknown): Record<string, string> {
  const entries = entriesToSave('metadata', metadata, 'strings');
  for (const [name, value] of entries) {
    const argument = `metadata ${describe(name)}`;
    if (typeof value !== 'string') {
      throw typeError({ call: SAVE, argument, got: describe(value), wanted: 'a string', wayOut: 'use String(value)' });
    }
    if (/\p{Surrogate}/u.test(value)) {
      refuse(argument, describe(value), 'well-formed Unicode', 'use value.toWellFormed()');
    }
  }
  return Object.fromEntries(entries) as Record<string, string>;
}

/**
 * Writes a file of an object or a Map. A tensor without dtype is F32. Larger types come first, so that readers need
 * not copy.
 */
export function serializeSafetensors(
  tensors: StateDict,
  metadata: Readonly<Record<string, string>> | ReadonlyMap<string, string> = {},
): Uint8Array {
  const items = entriesToSave('tensors', tensors, 'tensors').map(([name, value]) => readItem(name, value));
  const strings = readMetadataToSave(metadata);
  items.sort((a, b) => b.itemSize - a.itemSize);
  let end = 0;
  const header: [string, unknown][] = Object.keys(strings).length > 0 ? [['__metadata__', strings]] : [];
  for (const { name, dtype, shape, bytes } of items) {
    header.push([name, { dtype, shape, data_offsets: [end, end + bytes] }]);
    end += bytes;
  }
  const text = new TextEncoder().encode(JSON.stringify(Object.fromEntries(header)));
  const headerLength = Math.ceil(text.length / 8) * 8;
  if (headerLength > MAX_HEADER) {
    const wayOut = 'split the file, or shorten names and metadata';
    refuse('the header', `${headerLength} bytes long`, `at most ${MAX_HEADER} bytes long`, wayOut);
  }
  const file = new Uint8Array(LENGTH_BYTES + headerLength + end);
  new DataView(file.buffer).setUint32(0, headerLength, true);
  file.fill(0x20, LENGTH_BYTES, LENGTH_BYTES + headerLength);
  file.set(text, LENGTH_BYTES);
  let at = LENGTH_BYTES + headerLength;
  for (const { label, data, count, bytes } of items) {
    checkUnchanged(SAVE, `${label} data`, data, count);
    file.set(plainView(Uint8Array, data, bytes), at);
    at += bytes;
  }
  return file;
}
