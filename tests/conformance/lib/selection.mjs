// Which cases run. DEFAULT is what the library can do today: widen it as the library grows.
import { KINDS } from './kinds.mjs';

export const DEFAULT = {
  kinds: ['torch_mha', 'keras_mha', 'onnx_attention', 'ort_onnx_attention'],
  without: [
    // A cache of earlier keys and values.
    'past',
    'softcap', 'window',
    // Extra keys, and keys that are given projected.
    'add_bias_kv', 'add_zero_attn', 'static_kv',
    // Scores before the softmax; mode 3 is the weights.
    'qk_output_mode0', 'qk_output_mode1', 'qk_output_mode2',
  ],
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
