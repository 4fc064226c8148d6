// The reader: what it reads, and that every malformed or hostile file is refused with what is wrong and where.
import {
  SafetensorsError,
  bfloat16ToFloat32,
  float16ToFloat32,
  float16ToNumber,
  parseSafetensors,
  serializeSafetensors,
} from 'headwise/safetensors';
import { HeadwiseError, HeadwiseTypeError, SafetensorsError as SameError, type StoredTensor } from 'headwise';
import { describe, expect, test } from 'vitest';
import { expectError } from './helpers.js';

/** A file of this header text (or bytes) and this much data, byte i holding i. */
function file(header: string | Uint8Array, dataBytes = 0, length?: bigint): Uint8Array<ArrayBuffer> {
  const text = typeof header === 'string' ? new TextEncoder().encode(header) : header;
  const bytes = new Uint8Array(8 + text.length + dataBytes);
  new DataView(bytes.buffer).setBigUint64(0, length ?? BigInt(text.length), true);
  bytes.set(text, 8);
  for (let i = 0; i < dataBytes; ++i) bytes[8 + text.length + i] = i;
  return bytes;
}
const json = (header: unknown, dataBytes = 0): Uint8Array => file(JSON.stringify(header), dataBytes);

/** Pads the header so that the data begins at a multiple of 8, as writers do. */
function aligned(header: unknown, dataBytes: number): Uint8Array<ArrayBuffer> {
  const text = JSON.stringify(header);
  return file(text.padEnd(Math.ceil(text.length / 8) * 8), dataBytes);
}

describe('well-formed files', () => {
  test('every type, zero-copy where its place allows', () => {
    const sizes = {
      F64: 8,
      F32: 4,
      F16: 2,
      BF16: 2,
      I64: 8,
      I32: 4,
      I16: 2,
      I8: 1,
      U64: 8,
      U32: 4,
      U16: 2,
      U8: 1,
      BOOL: 1,
    };
    let end = 0;
    const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
    for (const [dtype, bytes] of Object.entries(sizes)) {
      header[`t.${dtype}`] = { dtype, shape: [1, 2], data_offsets: [end, end + 2 * bytes] };
      end += 2 * bytes;
    }
    const bytes = aligned(header, end);
    const { tensors, metadata } = parseSafetensors(bytes);
    expect({ ...metadata }).toEqual({ format: 'pt' });
    expect(Object.keys(tensors).length).toBe(13);
    const arrays = Object.values(tensors).map(({ data }) => data.constructor.name);
    expect(arrays).toEqual([
      ...['Float64Array', 'Float32Array', 'Uint16Array', 'Uint16Array', 'BigInt64Array', 'Int32Array', 'Int16Array'],
      ...['Int8Array', 'BigUint64Array', 'Uint32Array', 'Uint16Array', 'Uint8Array', 'Uint8Array'],
    ]);
    const f64 = tensors['t.F64']!;
    expect([f64.dtype, f64.shape, f64.data.length]).toEqual(['F64', [1, 2], 2]);
    expect(f64.data.buffer).toBe(bytes.buffer);
    // 2 F64, 2 F32, 2 F16 and 2 BF16 before it: 32 bytes, so I64 is aligned; U64 stands at 62 and is not.
    expect(tensors['t.I64']!.data.buffer).toBe(bytes.buffer);
    const u64 = tensors['t.U64']!.data as BigUint64Array;
    expect(u64.buffer).not.toBe(bytes.buffer);
    expect(u64[0]).toBe(new DataView(bytes.buffer).getBigUint64(bytes.length - end + 62, true));
  });

  test('a view into a larger buffer, an ArrayBuffer, shared memory', () => {
    const bytes = aligned({ a: { dtype: 'F32', shape: [2], data_offsets: [0, 8] } }, 8);
    const want = Array.from(new Float32Array(bytes.slice(bytes.length - 8).buffer));
    for (const shift of [1, 4]) {
      const inside = new Uint8Array(bytes.length + 9);
      inside.set(bytes, shift);
      const { a } = parseSafetensors(inside.subarray(shift, shift + bytes.length)).tensors;
      expect(Array.from(a!.data as Float32Array)).toEqual(want);
      expect(a!.data.buffer === inside.buffer).toBe(shift === 4);
    }
    expect(Array.from(parseSafetensors(bytes.buffer).tensors['a']!.data as Float32Array)).toEqual(want);
    const shared = new Uint8Array(new SharedArrayBuffer(bytes.length));
    shared.set(bytes);
    expect(Array.from(parseSafetensors(shared).tensors['a']!.data as Float32Array)).toEqual(want);
  });

  test('scalars, empty tensors, no tensors, awkward names', () => {
    const header = {
      '': { dtype: 'U8', shape: [], data_offsets: [0, 1] },
      ['__proto__']: { dtype: 'U8', shape: [2, 0], data_offsets: [1, 1] },
      constructor: { dtype: 'F32', shape: [0], data_offsets: [1, 1] },
    };
    const { tensors } = parseSafetensors(json(header, 1));
    expect(Object.keys(tensors).sort()).toEqual(['', '__proto__', 'constructor']);
    expect(tensors['']!.data.length).toBe(1);
    expect(tensors['__proto__']!.shape).toEqual([2, 0]);
    expect(({} as { dtype?: string }).dtype).toBeUndefined();
    expect(Object.keys(parseSafetensors(json({})).tensors)).toEqual([]);
  });

  test('what serializeSafetensors() writes comes back', () => {
    const tensors: Record<string, StoredTensor> = {
      bits: { dtype: 'F16', shape: [3], data: Uint16Array.of(1, 2, 3) },
      double: { dtype: 'F64', shape: [1, 1], data: Float64Array.of(Math.PI) },
      mask: { dtype: 'BOOL', shape: [2], data: Uint8Array.of(1, 0) },
    };
    const plain = { data: Float32Array.of(1, -0, NaN), shape: [3, 1] };
    const bytes = serializeSafetensors({ ...tensors, plain }, { by: 'test' });
    const read = parseSafetensors(bytes);
    expect({ ...read.metadata }).toEqual({ by: 'test' });
    for (const [name, tensor] of Object.entries(tensors)) expect(read.tensors[name]).toEqual(tensor);
    expect(read.tensors['plain']).toEqual({ dtype: 'F32', ...plain });
    for (const { data } of Object.values(read.tensors)) expect(data.buffer).toBe(bytes.buffer);
    expect(() => serializeSafetensors({ a: { data: Float32Array.of(1), shape: [2] } })).toThrow(SafetensorsError);
    expect(() => serializeSafetensors({ a: { dtype: 'F64', data: Float32Array.of(1), shape: [1] } as never })).toThrow(
      TypeError,
    );
  });
});

const one = (entry: object): object => ({ 'w.x': { dtype: 'F32', shape: [2], data_offsets: [0, 8], ...entry } });
const invalidUtf8 = Uint8Array.of(0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d);

const HOSTILE: [name: string, bytes: Uint8Array, argument: string, got: string, wanted: string][] = [
  ['an empty file', new Uint8Array(0), 'the file', '0 bytes', 'at least 8 bytes'],
  ['a cut length', new Uint8Array(7), 'the file', '7 bytes', 'at least 8 bytes'],
  ['an empty header', file('', 8), 'the header', 'empty', "begun by '{'"],
  ['a header longer than the file', file('{}', 0, 3n), 'header length', '3', 'at most 2'],
  ['a header above 100 MB', file('{}', 0, 100_000_001n), 'header length', '100000001', 'at most 100000000'],
  ['a header length of 2^53', file('{}', 0, 2n ** 53n), 'header length', '9007199254740992', 'at most 100000000'],
  ['a header length of 2^64 - 1', file('{}', 0, 2n ** 64n - 1n), 'header length', '18446744073709552000', 'at most'],
  ['bad UTF-8', file(invalidUtf8), 'the header', 'not valid UTF-8', 'UTF-8 text'],
  [
    'a surrogate in UTF-8',
    file(Uint8Array.of(0x7b, 0x22, 0xed, 0xa0, 0x80, 0x22, 0x7d)),
    'the header',
    'not valid UTF-8',
    'UTF-8',
  ],
  ['bad JSON', file('{"a":'), 'the header', 'not valid JSON', 'a JSON object'],
  ['JSON with something after it', file('{} {}'), 'the header', 'not valid JSON', 'a JSON object'],
  ['deep nesting', file('{"a":' + '['.repeat(200_000)), 'the header', 'not valid JSON', 'a JSON object'],
  ['a JSON array', file('[]'), 'the header', 'byte 91', "begun by '{'"],
  ['leading space', file(' {}'), 'the header', 'byte 32', "begun by '{'"],
  ['a byte order mark', file('\ufeff{}'), 'the header', 'byte 239', "begun by '{'"],
  [
    'a name twice',
    file(
      '{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
      1,
    ),
    'the header',
    '"a" twice',
    'different names',
  ],
  [
    'a name twice, once escaped',
    file(
      '{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
      1,
    ),
    'the header',
    '"a" twice',
    'different names',
  ],
  [
    'a key twice in an entry',
    file('{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1),
    'the header',
    '"dtype" twice',
    'different names',
  ],
  [
    'metadata twice',
    file('{"__metadata__":{},"__metadata__":{}}'),
    'the header',
    '"__metadata__" twice',
    'different names',
  ],
  ['metadata of a number', json({ __metadata__: 3 }), '__metadata__', '3', 'an object of strings'],
  ['metadata that is no text', json({ __metadata__: { a: 1 } }), '__metadata__ "a"', '1', 'a string'],
  ['an entry of null', json({ 'w.x': null }), 'tensor "w.x"', 'null', 'dtype, shape and data_offsets'],
  ['an entry of an array', json({ 'w.x': [] }), 'tensor "w.x"', 'an Array of 0', 'dtype, shape and data_offsets'],
  ['no dtype', json(one({ dtype: undefined }), 8), 'tensor "w.x" dtype', 'undefined', 'one of F64'],
  ['an unknown dtype', json(one({ dtype: 'F4' }), 8), 'tensor "w.x" dtype', '"F4"', 'one of F64'],
  ['a dtype of the prototype', json(one({ dtype: 'toString' }), 8), 'tensor "w.x" dtype', '"toString"', 'one of F64'],
  ['a dtype of a number', json(one({ dtype: 32 }), 8), 'tensor "w.x" dtype', '32', 'one of F64'],
  ['no shape', json(one({ shape: undefined }), 8), 'tensor "w.x" shape', 'undefined', 'an array of sizes'],
  ['a shape of text', json(one({ shape: '2' }), 8), 'tensor "w.x" shape', '"2"', 'an array of sizes'],
  ['a negative size', json(one({ shape: [-2] }), 8), 'tensor "w.x" shape[0]', '-2', 'from 0 to 2^53 - 1'],
  ['a fractional size', json(one({ shape: [2.5] }), 8), 'tensor "w.x" shape[0]', '2.5', 'a whole number'],
  ['a size as text', json(one({ shape: ['2'] }), 8), 'tensor "w.x" shape[0]', '"2"', 'a whole number'],
  [
    'a size of 2^53',
    json(one({ shape: [2 ** 53] }), 8),
    'tensor "w.x" shape[0]',
    '9007199254740992',
    'from 0 to 2^53 - 1',
  ],
  [
    'a size of 1e400',
    file('{"w.x":{"dtype":"F32","shape":[1e400],"data_offsets":[0,8]}}', 8),
    'tensor "w.x" shape[0]',
    'Infinity',
    'a whole number',
  ],
  [
    'a product beyond 2^53',
    json(one({ shape: [2 ** 32, 2 ** 32] }), 8),
    'tensor "w.x" shape',
    '[4294967296, 4294967296]',
    'fewer elements',
  ],
  [
    'a product that would wrap to 2 in 64 bits',
    json(one({ shape: [2 ** 33, 2 ** 31, 2] }), 8),
    'tensor "w.x" shape',
    '[8589934592',
    'fewer elements',
  ],
  [
    'a product beyond 2^53 times 0',
    json(one({ shape: [2 ** 52, 2 ** 52, 0], data_offsets: [0, 0] })),
    'tensor "w.x" shape',
    '[4503599627370496',
    'fewer elements',
  ],
  ['no offsets', json(one({ data_offsets: undefined }), 8), 'tensor "w.x" data_offsets', 'undefined', '[begin, end]'],
  ['one offset', json(one({ data_offsets: [8] }), 8), 'tensor "w.x" data_offsets', 'an Array of 1', '[begin, end]'],
  [
    'three offsets',
    json(one({ data_offsets: [0, 8, 8] }), 8),
    'tensor "w.x" data_offsets',
    'an Array of 3',
    '[begin, end]',
  ],
  [
    'offsets of text',
    json(one({ data_offsets: ['0', '8'] }), 8),
    'tensor "w.x" data_offsets',
    '["0", "8"]',
    'two whole numbers',
  ],
  [
    'fractional offsets',
    json(one({ data_offsets: [0.5, 8.5] }), 9),
    'tensor "w.x" data_offsets',
    '0.5',
    'two whole numbers',
  ],
  [
    'offsets of 2^53',
    json(one({ data_offsets: [2 ** 53, 2 ** 53 + 8] }), 8),
    'tensor "w.x" data_offsets',
    '9007199254740992',
    'below 2^53',
  ],
  [
    'negative offsets',
    json(one({ data_offsets: [-8, 0] }), 8),
    'tensor "w.x" data_offsets',
    '[-8, 0]',
    '0 <= begin <= end <= 8',
  ],
  [
    'offsets the wrong way round',
    json(one({ data_offsets: [8, 0] }), 8),
    'tensor "w.x" data_offsets',
    '[8, 0]',
    '0 <= begin <= end <= 8',
  ],
  [
    'an end behind the file',
    json(one({ data_offsets: [0, 8] }), 7),
    'tensor "w.x" data_offsets',
    '[0, 8]',
    '0 <= begin <= end <= 7',
  ],
  [
    'too few bytes for the shape',
    json(one({ shape: [3] }), 8),
    'tensor "w.x" data_offsets',
    '8 bytes apart',
    '12 bytes apart',
  ],
  [
    'too many bytes for the shape',
    json(one({ dtype: 'F16' }), 8),
    'tensor "w.x" data_offsets',
    '8 bytes apart',
    '4 bytes apart',
  ],
  [
    'tensors that overlap',
    json({ ...one({}), b: { dtype: 'F32', shape: [1], data_offsets: [4, 8] } }, 8),
    'tensor "b" data_offsets',
    'overlapping tensor "w.x"',
    'begun at 8',
  ],
  [
    'the same bytes twice',
    json({ ...one({}), b: { dtype: 'F32', shape: [2], data_offsets: [0, 8] } }, 8),
    'tensor "b" data_offsets',
    'overlapping tensor "w.x"',
    'begun at 8',
  ],
  [
    'a gap',
    json({ ...one({}), b: { dtype: 'F32', shape: [1], data_offsets: [12, 16] } }, 16),
    'tensor "b" data_offsets',
    'a gap after tensor "w.x"',
    'begun at 8',
  ],
  [
    'a gap in front',
    json(one({ data_offsets: [8, 16] }), 16),
    'tensor "w.x" data_offsets',
    'a gap after the header',
    'begun at 0',
  ],
  ['bytes at the end', json(one({}), 9), 'the file', '9 bytes of data', '8 bytes of data'],
  ['bytes without a tensor', json({}, 1), 'the file', '1 bytes of data', '0 bytes of data'],
];

test.each(HOSTILE)('%s is refused', (_name, bytes, argument, got, wanted) => {
  expectError(() => parseSafetensors(bytes), {
    type: SafetensorsError,
    code: 'safetensors',
    call: 'parseSafetensors()',
    argument,
    got,
    wanted,
  });
});

test('every cut of a good file is refused', () => {
  const bytes = aligned({ a: { dtype: 'F32', shape: [2], data_offsets: [0, 8] } }, 8);
  for (let length = 0; length < bytes.length; ++length) {
    expect(() => parseSafetensors(bytes.subarray(0, length)), `${length} bytes`).toThrow(SafetensorsError);
  }
  expect(parseSafetensors(bytes).tensors['a']!.data.length).toBe(2);
});

test('no byte of the header can be changed into a crash', () => {
  const bytes = aligned({ a: { dtype: 'F32', shape: [2], data_offsets: [0, 8] } }, 8);
  for (let at = 0; at < bytes.length - 8; ++at) {
    for (const value of [0, 0x22, 0x5b, 0x7b, 0x7d, 0x80, 0xff]) {
      const changed = bytes.slice();
      changed[at] = value;
      try {
        parseSafetensors(changed);
      } catch (error) {
        expect(error).toBeInstanceOf(SafetensorsError);
      }
    }
  }
});

test('what is no bytes is a TypeError; the error class is one and the same in both entries', () => {
  for (const [value, got] of [
    ['text', '"text"'],
    [new Float32Array(4), 'Float32Array of 4'],
    [null, 'null'],
  ] as const) {
    expectError(() => parseSafetensors(value as never), {
      type: HeadwiseTypeError,
      code: 'wrong-type',
      call: 'parseSafetensors()',
      argument: 'bytes',
      got,
      wanted: 'an ArrayBuffer or a Uint8Array',
    });
  }
  expect(SafetensorsError).toBe(SameError);
  expect(SafetensorsError.prototype).toBeInstanceOf(HeadwiseError);
});

describe('16-bit floats', () => {
  test('binary16: every value, against the definition', () => {
    const bits = Uint16Array.from({ length: 65536 }, (_, i) => i);
    const got = float16ToFloat32(bits);
    for (let i = 0; i < 65536; ++i) {
      const [sign, exponent, fraction] = [i >> 15, (i >> 10) & 31, i & 1023];
      const magnitude =
        exponent === 31
          ? fraction === 0
            ? Infinity
            : NaN
          : exponent === 0
            ? fraction / 2 ** 24
            : (1024 + fraction) * 2 ** (exponent - 25);
      const want = sign ? -magnitude : magnitude;
      if (!Object.is(got[i], want)) expect.fail(`bits ${i}: got ${got[i]}, want ${want}`);
      if (!Object.is(float16ToNumber(i), want)) expect.fail(`bits ${i}: got ${float16ToNumber(i)}, want ${want}`);
    }
  });
  test('bfloat16: the upper half of a float32', () => {
    const bits = Uint16Array.from({ length: 65536 }, (_, i) => i);
    const got = bfloat16ToFloat32(bits);
    const view = new DataView(new ArrayBuffer(4));
    for (let i = 0; i < 65536; ++i) {
      view.setUint16(0, i);
      const want = view.getFloat32(0);
      if (!Object.is(got[i], want)) expect.fail(`bits ${i}: got ${got[i]}, want ${want}`);
    }
  });
  test('into an array of the caller', () => {
    const out = new Float32Array(2);
    expect(float16ToFloat32(Uint16Array.of(0x3c00, 0xc000), out)).toBe(out);
    expect(Array.from(out)).toEqual([1, -2]);
    expect(Array.from(bfloat16ToFloat32(Uint16Array.of(0x3f80, 0xc000)))).toEqual([1, -2]);
  });
});
