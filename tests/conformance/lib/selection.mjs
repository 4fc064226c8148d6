// Which cases run. DEFAULT is what the library can do today: widen it as the library grows.
import { KINDS } from './kinds.mjs';

export const DEFAULT = {
  // Gradients come with training.
  kinds: [...KINDS.keys()].filter((kind) => kind !== 'torch_mha_grad'),
  without: [],
};

/** Kinds replace the default's, features add to it, `all` empties it first. */
export function makeSelection({ kinds = [], without = [], all = false }) {
  const base = all ? { kinds: [...KINDS.keys()], without: [] } : DEFAULT;
  return {
    kinds: kinds.length ? kinds : base.kinds,
    // Cases of kinds nobody knows fail unless the kinds were chosen: a misspelt kind must not vanish.
    unknownKindsFail: kinds.length === 0,
    without: [...new Set([...base.without, ...without])],
  };
}

/** Why the selection leaves the case out, or undefined. */
export function leftOut(selection, { kind, features }) {
  if (!selection.kinds.includes(kind)) {
    if (KINDS.get(kind)) return `kind ${kind}`;
    if (KINDS.has(kind)) return `kind ${kind} (no adapter yet)`;
    return selection.unknownKindsFail ? undefined : `kind ${kind} (unknown)`;
  }
  const excluded = features.filter((feature) => selection.without.includes(feature));
  return excluded.length ? `feature ${excluded.join(' + ')}` : undefined;
}
