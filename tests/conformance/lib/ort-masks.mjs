// What the contrib operators of onnxruntime share.
import { LOWEST_F32 } from './masks.mjs';

// Scores are far smaller: a key with less added is as good as hidden.
const AS_GOOD_AS_HIDDEN = -1000;

/** attr.mask_filter_value. */
export function ortFinite(c) {
  const finite = c.number('mask_filter_value', -10000);
  return { uniform: LOWEST_F32, finite, always: finite > AS_GOOD_AS_HIDDEN };
}

/** attr.scale, whose 0 is the default, and attr.softcap. */
export function ortOptions(c) {
  const scale = c.number('scale', 0);
  return scale === 0 ? {} : { scale };
}

/** in.attention_bias and causality. */
export function ortBias(c, causal) {
  return { causal, bias: c.input('attention_bias', { ranks: [1, 2, 3, 4] }) };
}

/** Positive: the key is kept. */
export const keepMask = ({ data }, shape) => ({ data: Uint8Array.from(data, (x) => Number(x) > 0 ? 1 : 0), shape });
export const paddingMask = ({ data }, shape) => ({ data: Uint8Array.from(data, (x) => Number(x) > 0 ? 0 : 1), shape });

/** Lengths from 0 to `keys`. */
export const clampedLengths = (data, keys) =>
  Int32Array.from(data, (length) => Math.min(Math.max(Number(length), 0), keys));
