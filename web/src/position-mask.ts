// The mask by position that a call gets: a BlockMask, or a function that becomes one and is asked no second time while
// that fits.
import { type BlockMask, type OpenBlockMask, makeBlockMask, openBlockMask } from './block-mask.js';
import type { Core } from './core.js';
import { rangeError, typeError } from './errors.js';
import { type MaskMod, type MaskShape, evaluate } from './mask-mod.js';
import { notAFunction } from './score-mod.js';

/** What a checked call asks for. */
export interface PositionMask {
  readonly given: OpenBlockMask | undefined;
  readonly mod: MaskMod | undefined;
  /** The positions of the call. */
  readonly needed: MaskShape;
}

/** Where the queries of a call stand, and how many keys they may meet. */
export interface PositionSpan {
  readonly first: number;
  readonly end: number;
  readonly keys: number;
}

export function planPositionMask(
  call: string,
  blockMask: unknown,
  maskMod: unknown,
  sizes: { readonly batch: number; readonly numHeads: number },
  span: () => PositionSpan,
): PositionMask | undefined {
  if (blockMask === undefined && maskMod === undefined) return undefined;
  if (blockMask !== undefined && maskMod !== undefined) {
    const wayOut = 'let one function say both: BlockMask.fromFunction() or maskMod';
    const complaint = { call, argument: 'maskMod', got: 'given with a blockMask', wanted: 'given alone', wayOut };
    throw typeError(complaint, 'conflict');
  }
  const { first, end, keys } = span();
  const needed = { ...sizes, firstQuery: first, queryLength: end - first, keyLength: keys };
  if (maskMod !== undefined) {
    if (typeof maskMod !== 'function') throw notAFunction(call, 'maskMod', maskMod, '(b, h, i, j) => i - j < 128');
    return { given: undefined, mod: maskMod as MaskMod, needed };
  }
  const given = openBlockMask(call, blockMask);
  checkCovers(call, given.shape, needed);
  return { given, mod: undefined, needed };
}

function checkCovers(call: string, has: MaskShape, needed: MaskShape): void {
  for (const name of ['batch', 'numHeads'] as const) {
    if (has[name] === 1 || has[name] === needed[name]) continue;
    throw rangeError(
      {
        call,
        argument: `blockMask.shape.${name}`,
        got: String(has[name]),
        wanted: `1, or ${needed[name]} as this call`,
        wayOut: 'make it with 1 to share it',
      },
      'wrong-shape',
    );
  }
  if (covers(has, needed)) return;
  const show = ({ firstQuery, queryLength, keyLength }: MaskShape): string =>
    `queries ${firstQuery} to ${firstQuery + queryLength} and ${keyLength} keys`;
  throw rangeError(
    {
      call,
      argument: 'blockMask',
      got: `one for ${show(has)}`,
      wanted: `one that covers ${show(needed)}`,
      wayOut: 'make a larger one; it serves smaller calls, too',
    },
    'wrong-shape',
  );
}

function covers(has: MaskShape, needed: MaskShape): boolean {
  if (needed.queryLength === 0) return true;
  return (
    has.firstQuery <= needed.firstQuery &&
    has.firstQuery + has.queryLength >= needed.firstQuery + needed.queryLength &&
    has.keyLength >= needed.keyLength
  );
}

/** The last mask of each function in a runtime, gone with the function. */
interface Kept {
  readonly masks: WeakMap<MaskMod, BlockMask>;
  /** The newest last. */
  readonly order: WeakRef<BlockMask>[];
}
const kept = new WeakMap<Core, Kept>();
/**
 * Functions whose masks are kept. A function that is written into the call is a new one each time, and between two
 * awaits nothing is collected: unbounded, a loop would fill the memory with masks that nobody asks for again.
 */
const MOST_KEPT = 8;

function keep({ masks, order }: Kept, mod: MaskMod, mask: BlockMask): void {
  masks.set(mod, mask);
  const alive = order.filter((ref) => ref.deref()?.disposed === false);
  for (const ref of alive.splice(0, alive.length - MOST_KEPT + 1)) ref.deref()?.dispose();
  order.splice(0, order.length, ...alive, new WeakRef(mask));
}

/** The mask in the runtime of `core`. The function is asked here, so nothing of the call may have begun. */
export function resolvePositionMask(call: string, core: Core, mask: PositionMask): OpenBlockMask {
  const { given, mod, needed } = mask;
  if (given !== undefined) {
    if (given.core === core) return given;
    throw typeError(
      {
        call,
        argument: 'blockMask',
        got: 'of another runtime',
        wanted: 'of the runtime of this call',
        wayOut: 'make it with the same runtime',
      },
      'conflict',
    );
  }
  const own = kept.get(core) ?? { masks: new WeakMap(), order: [] };
  kept.set(core, own);
  const before = own.masks.get(mod as MaskMod);
  const fits =
    before?.disposed === false &&
    before.shape.batch === needed.batch &&
    before.shape.numHeads === needed.numHeads &&
    covers(before.shape, needed);
  if (fits) return openBlockMask(call, before);
  const fresh = makeBlockMask(call, core, needed, evaluate(call, 'maskMod', mod as MaskMod, needed));
  // Anew: the function may have attended with itself as its mask.
  own.masks.get(mod as MaskMod)?.dispose();
  keep(own, mod as MaskMod, fresh);
  return openBlockMask(call, fresh);
}
