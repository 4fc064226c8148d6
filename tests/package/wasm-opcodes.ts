// Counts the instructions of a .wasm by walking its code section, so that "no relaxed SIMD" is read from the
// instructions and not guessed from bytes that may be numbers or data.

export interface OpcodeCounts {
  readonly instructions: number;
  /** 128-bit SIMD, relaxed included. */
  readonly simd: number;
  /** Relaxed SIMD: 0xfd with 0x100 and above. */
  readonly relaxed: number;
  readonly atomic: number;
  /** The most 128-bit SIMD in one function. */
  readonly simdOfOne: number;
}

class Reader {
  at = 0;
  constructor(
    readonly bytes: Uint8Array,
    readonly end = bytes.length,
  ) {}
  byte(): number {
    if (this.at >= this.end) throw new Error(`the module ends inside an instruction, at ${this.at}`);
    return this.bytes[this.at++]!;
  }
  /** LEB128, signed or not: the value matters only where it is small and unsigned. */
  leb(): number {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.byte();
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
  }
  skip(count: number): void {
    this.at += count;
  }
}

const CODE_SECTION = 10;

export function countOpcodes(bytes: Uint8Array): OpcodeCounts {
  const reader = new Reader(bytes);
  reader.skip(8);
  const counts = { instructions: 0, simd: 0, relaxed: 0, atomic: 0, simdOfOne: 0 };
  while (reader.at < bytes.length) {
    const id = reader.byte();
    const size = reader.leb();
    const end = reader.at + size;
    if (id === CODE_SECTION) {
      const functions = reader.leb();
      for (let f = 0; f < functions; ++f) countFunction(reader, counts);
      if (reader.at !== end) throw new Error(`the code section ends at ${reader.at}, not at ${end}`);
    }
    reader.at = end;
  }
  return counts;
}

type Counts = { -readonly [K in keyof OpcodeCounts]: OpcodeCounts[K] };

function countFunction(module: Reader, counts: Counts): void {
  const size = module.leb();
  const reader = new Reader(module.bytes, module.at + size);
  reader.at = module.at;
  const before = counts.simd;
  for (let groups = reader.leb(); groups > 0; --groups) {
    reader.leb();
    reader.byte();
  }
  while (reader.at < reader.end) {
    countInstruction(reader, counts);
    counts.instructions += 1;
  }
  if (reader.at !== reader.end) throw new Error(`a function ends at ${reader.at}, not at ${reader.end}`);
  counts.simdOfOne = Math.max(counts.simdOfOne, counts.simd - before);
  module.at = reader.end;
}

/** Reads one instruction with its immediates. */
function countInstruction(reader: Reader, counts: Counts): void {
  const opcode = reader.byte();
  // Loads and stores: alignment and offset.
  if (opcode >= 0x28 && opcode <= 0x3e) return lebs(reader, 2);
  // Comparisons, arithmetic, conversions.
  if (opcode >= 0x45 && opcode <= 0xc4) return;
  switch (opcode) {
    case 0x00: // unreachable
    case 0x01: // nop
    case 0x05: // else
    case 0x0b: // end
    case 0x0f: // return
    case 0x1a: // drop
    case 0x1b: // select
    case 0xd1: // ref.is_null
      return;
    case 0x02: // block
    case 0x03: // loop
    case 0x04: // if
    case 0x0c: // br
    case 0x0d: // br_if
    case 0x10: // call
    case 0x12: // return_call
    case 0x20: // local.get
    case 0x21: // local.set
    case 0x22: // local.tee
    case 0x23: // global.get
    case 0x24: // global.set
    case 0x25: // table.get
    case 0x26: // table.set
    case 0x3f: // memory.size
    case 0x40: // memory.grow
    case 0x41: // i32.const
    case 0x42: // i64.const
    case 0xd0: // ref.null
    case 0xd2: // ref.func
      return lebs(reader, 1);
    case 0x11: // call_indirect
      return lebs(reader, 2);
    case 0x0e: // br_table
      return lebs(reader, reader.leb() + 1);
    case 0x1c: // select with types
      return lebs(reader, reader.leb());
    case 0x43: // f32.const
      return reader.skip(4);
    case 0x44: // f64.const
      return reader.skip(8);
    case 0xfc:
      return lebs(reader, bulkImmediates(reader.leb()));
    case 0xfd:
      return countSimd(reader, reader.leb(), counts);
    case 0xfe: {
      counts.atomic += 1;
      return lebs(reader, reader.leb() === 0x03 ? 1 : 2);
    }
    default:
      throw new Error(`unknown opcode 0x${opcode.toString(16)} at ${reader.at - 1}`);
  }
}

function lebs(reader: Reader, count: number): void {
  for (let i = 0; i < count; ++i) reader.leb();
}

/** Saturating conversions have none; memory and table instructions one or two. */
function bulkImmediates(opcode: number): number {
  if (opcode <= 7) return 0;
  return [8, 10, 12, 14].includes(opcode) ? 2 : 1;
}

function countSimd(reader: Reader, opcode: number, counts: Counts): void {
  counts.simd += 1;
  if (opcode >= 0x100) counts.relaxed += 1;
  // v128.load… and v128.store; load_zero.
  if (opcode <= 0x0b || opcode === 0x5c || opcode === 0x5d) return lebs(reader, 2);
  // v128.const and i8x16.shuffle: 16 bytes.
  if (opcode === 0x0c || opcode === 0x0d) return reader.skip(16);
  // extract_lane and replace_lane.
  if (opcode >= 0x15 && opcode <= 0x22) return reader.skip(1);
  // load_lane and store_lane.
  if (opcode >= 0x54 && opcode <= 0x5b) {
    lebs(reader, 2);
    reader.skip(1);
  }
}
