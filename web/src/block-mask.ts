// Masks over positions, kept by blocks in WASM memory: blocks that nobody sees cost nothing, blocks that everybody sees
// no masking.
import { checkOptions, checkWhole } from './arguments.js';
import type { Core } from './core.js';
import { describe, describeForeign, showShape } from './describe.js';
import { DISPOSE } from './dispose.js';
import { rangeError, typeError } from './errors.js';
import { Handle, checkConstruction } from './handle.js';
import { type MaskMod, type MaskShape, emptyBits, evaluate, wordsOf } from './mask-mod.js';
import type { RawBlockMask } from './raw.js';
import { type Runtime, coreFor } from './runtime.js';
import { notAFunction } from './score-mod.js';
import { type IntegerList, isIntegerList, readIntegerList } from './integer-list.js';
import { MAX_SIZE, type MaskTensor, readMask } from './tensor.js';

export interface BlockMaskOptions {
  /** L: queries from firstQuery on. */
  readonly queryLength: number;
  /** S. */
  readonly keyLength: number;
  /** Position of the first query that the mask knows. Default 0. */
  readonly firstQuery?: number | undefined;
  /** B, or 1, the default: the same for all entries. */
  readonly batch?: number | undefined;
  /** H, or 1, the default: the same for all heads. */
  readonly numHeads?: number | undefined;
  /** Default: the first one that was loaded and is alive. */
  readonly runtime?: Runtime | undefined;
}

export interface BlockSparseOptions extends BlockMaskOptions {
  /** Queries and keys of a block of the map. */
  readonly blockSize: readonly [queries: number, keys: number];
}

/** Blocks of 64 queries and 128 keys. */
export interface BlockCounts {
  /** Nobody sees them. */
  readonly empty: number;
  /** Everybody sees them. */
  readonly full: number;
  /** Kept bit by bit. */
  readonly partial: number;
}

const NAME = 'BlockMask';
const OPTION_NAMES = ['queryLength', 'keyLength', 'firstQuery', 'batch', 'numHeads', 'runtime'] as const;
const KNOWN: ReadonlySet<string> = new Set(OPTION_NAMES satisfies readonly (keyof BlockMaskOptions)[]);
const SPARSE: ReadonlySet<string> = new Set([...OPTION_NAMES, 'blockSize']);
const DOCUMENTS: ReadonlySet<string> = new Set(['runtime']);

/** A mask as a call uses it. */
export interface OpenBlockMask {
  readonly shape: MaskShape;
  readonly core: Core;
  /** Throws when it is disposed. */
  raw(call: string): RawBlockMask;
}
// What is behind a mask, for this package only.
const insides = new WeakMap<BlockMask, OpenBlockMask>();

/** @internal */
export function openBlockMask(call: string, value: unknown): OpenBlockMask {
  const inside = typeof value === 'object' && value !== null ? insides.get(value as BlockMask) : undefined;
  if (inside === undefined) {
    const wayOut = 'use BlockMask.fromFunction(), fromBlocks() or fromDocuments(), or the option maskMod';
    throw typeError({ call, argument: 'blockMask', got: describeForeign(value, NAME), wanted: 'a BlockMask', wayOut });
  }
  inside.raw(call);
  return inside;
}

/** @internal */
export function makeBlockMask(call: string, core: Core, shape: MaskShape, bits: Uint32Array): BlockMask {
  const sizes = (): string => `${bits.length} words of a mask`;
  const raw = core.withTemporary(call, 4 * bits.length, sizes, (offset) => {
    const module = core.alive(call);
    module.HEAP32.set(bits, offset / 4);
    const { batch, numHeads, firstQuery, queryLength, keyLength } = shape;
    return module.BlockMask.create(batch, numHeads, firstQuery, queryLength, keyLength, offset);
  });
  if (raw === null) throw core.constructionFailure(call);
  return construct(core, shape, raw);
}

/** The constructor is private to the package: this is set below, where the class can be seen. */
let construct: (core: Core, shape: MaskShape, raw: RawBlockMask) => BlockMask;

/**
 * Who sees whom, by position. It serves every call whose queries and keys it knows: a longer one does for a shorter
 * call, and with a cache for every step.
 */
export class BlockMask {
  readonly shape: MaskShape;
  readonly #handle: Handle<RawBlockMask>;

  static {
    construct = (core, shape, raw) => new BlockMask(core, shape, raw);
  }

  /** Asks `mod` once about each entry, head, query and key; batch and numHeads of 1 ask about (0, 0, i, j) only. */
  static fromFunction(mod: MaskMod, options: BlockMaskOptions): BlockMask {
    const call = `${NAME}.fromFunction()`;
    if (typeof mod !== 'function') throw notAFunction(call, 'mod', mod, '(b, h, i, j) => i - j < 128');
    const o = checkOptions<BlockMaskOptions>(call, options, KNOWN);
    const shape = checkShape(call, o);
    const core = coreFor(call, o.runtime);
    return makeBlockMask(call, core, shape, evaluate(call, 'mod', mod, shape));
  }

  /**
   * Block-sparse attention: map [⌈L / queries⌉, ⌈S / keys⌉], or [B, H, …] with 1 where it repeats; 1 = the block may be
   * attended.
   */
  static fromBlocks(map: MaskTensor, options: BlockSparseOptions): BlockMask {
    const call = `${NAME}.fromBlocks()`;
    const o = checkOptions<BlockSparseOptions>(call, options, SPARSE);
    const shape = checkShape(call, o);
    const [rowsOfBlock, keysOfBlock] = checkBlockSize(call, o.blockSize);
    const { data, length, shape: given } = readMask(call, 'map', map);
    const rows = Math.ceil(shape.queryLength / rowsOfBlock);
    const columns = Math.ceil(shape.keyLength / keysOfBlock);
    const wanted = [shape.batch, shape.numHeads, rows, columns];
    const full = [...Array<number>(Math.max(0, 4 - given.length)).fill(1), ...given];
    if (
      (given.length !== 2 && given.length !== 4) ||
      full.some((size, n) => size !== wanted[n] && !(n < 2 && size === 1))
    ) {
      throw rangeError(
        {
          call,
          argument: 'map.shape',
          got: showShape(given),
          wanted: `${showShape([rows, columns])}, or ${showShape(wanted)} with 1 where it repeats`,
          wayOut: 'one number for each block of the last partial row and column, too',
        },
        'wrong-shape',
      );
    }
    const core = coreFor(call, o.runtime);
    // Copied: what comes from shared memory could change on the way.
    const seen = Uint8Array.from(data.subarray(0, length));
    const [entries, heads] = full as [number, number];
    const bits = evaluate(
      call,
      'map',
      (b, h, i, j) => {
        const row = ((entries === 1 ? 0 : b) * heads + (heads === 1 ? 0 : h)) * rows;
        const at = (row + Math.floor((i - shape.firstQuery) / rowsOfBlock)) * columns;
        return seen[at + Math.floor(j / keysOfBlock)] !== 0;
      },
      shape,
    );
    return makeBlockMask(call, core, shape, bits);
  }

  /**
   * Tokens see those of their own document: one number for each token, for all entries, or a list of them for each
   * entry. For self-attention from position 0; causal and window compose with it.
   */
  static fromDocuments(
    documents: DocumentIds | readonly DocumentIds[],
    options?: { readonly runtime?: Runtime | undefined },
  ): BlockMask {
    const call = `${NAME}.fromDocuments()`;
    const o = checkOptions<{ runtime: Runtime | undefined }>(call, options, DOCUMENTS);
    const lists = readDocuments(call, documents);
    const length = lists[0]?.length ?? 0;
    const shape = { batch: lists.length, numHeads: 1, firstQuery: 0, queryLength: length, keyLength: length };
    const core = coreFor(call, o.runtime);
    const bits = emptyBits(call, shape);
    const words = wordsOf(shape);
    lists.forEach((ids, b) => {
      for (let i = 0; i < length; ++i) {
        const row = (b * length + i) * words;
        for (let j = 0; j < length; ++j) {
          if (ids[i] === ids[j]) bits[row + (j >>> 5)] = (bits[row + (j >>> 5)] as number) | (1 << (j & 31));
        }
      }
    });
    return makeBlockMask(call, core, shape, bits);
  }

  private constructor(core: Core, shape: MaskShape, raw: RawBlockMask) {
    checkConstruction(NAME, core, 'BlockMask.fromFunction(), fromBlocks() or fromDocuments()');
    this.shape = Object.freeze({ ...shape });
    this.#handle = new Handle(this, NAME, core, raw);
    const handle = this.#handle;
    insides.set(this, { shape: this.shape, core, raw: (call) => handle.get(call) });
  }

  get disposed(): boolean {
    return this.#handle.disposed;
  }
  get bytes(): number {
    return this.#handle.get(`${NAME}.bytes`).bytes();
  }
  get blocks(): BlockCounts {
    const raw = this.#handle.get(`${NAME}.blocks`);
    return { empty: raw.emptyBlocks(), full: raw.fullBlocks(), partial: raw.partialBlocks() };
  }

  /** Frees the memory. A second call does nothing. */
  dispose(): void {
    this.#handle.dispose();
  }
  [DISPOSE](): void {
    this.dispose();
  }
}

/** One whole number for each token. */
export type DocumentIds = IntegerList;

function checkShape(call: string, o: Partial<BlockMaskOptions>): MaskShape {
  const length = (name: 'queryLength' | 'keyLength'): number => checkWhole(call, name, o[name], { least: 0 });
  return {
    batch: o.batch === undefined ? 1 : checkWhole(call, 'batch', o.batch),
    numHeads: o.numHeads === undefined ? 1 : checkWhole(call, 'numHeads', o.numHeads),
    firstQuery:
      o.firstQuery === undefined
        ? 0
        : checkWhole(call, 'firstQuery', o.firstQuery, { least: -MAX_SIZE, most: MAX_SIZE }),
    queryLength: length('queryLength'),
    keyLength: length('keyLength'),
  };
}

function checkBlockSize(call: string, value: unknown): readonly [number, number] {
  if (!Array.isArray(value) || value.length !== 2) {
    const wanted = '[queries, keys] of a block';
    throw typeError({ call, argument: 'blockSize', got: describe(value), wanted, wayOut: 'give [64, 64], say' });
  }
  return [checkWhole(call, 'blockSize[0]', value[0]), checkWhole(call, 'blockSize[1]', value[1])];
}

function readDocuments(call: string, value: unknown): Int32Array[] {
  const all = 'an Array or Int32Array with a number for each token, or an Array of them';
  readIntegerList(call, 'documents', value, all, 'give [0, 0, 0, 1, 1]');
  const nested = Array.isArray(value) && value.length > 0 && isIntegerList(value[0]);
  const lists = nested ? (value as readonly unknown[]) : [value];
  const copies = lists.map((item, b) => {
    const name = nested ? `documents[${b}]` : 'documents';
    const wanted = 'an Array or Int32Array, as the first';
    const { list, length } = readIntegerList(call, name, item, wanted, 'give one list for each entry');
    const copy = new Int32Array(length);
    for (let i = 0; i < length; ++i) {
      copy[i] = checkWhole(call, `${name}[${i}]`, list[i], { least: -MAX_SIZE, most: MAX_SIZE });
    }
    return copy;
  });
  const length = copies[0]?.length;
  const other = copies.findIndex((copy) => copy.length !== length);
  if (other < 0) return copies;
  throw rangeError(
    {
      call,
      argument: `documents[${other}]`,
      got: `${copies[other]?.length} long`,
      wanted: `${length} long, as the first`,
      wayOut: 'give padding a document of its own, and keyLengths to the call',
    },
    'wrong-shape',
  );
}
