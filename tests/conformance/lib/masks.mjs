// What a case hides, as options of the package. A case whose rows without any allowed key are `zero` or `nan` hands
// its masks over as masks. One that says `uniform` or `finite` hides nothing at all: it adds a finite number, which
// the package gets as `attnBias`.
import { broadcastTo, toRank4 } from './tensor.mjs';

export const LOWEST_F32 = -3.4028234663852886e38;

/**
 * @param masks  what hides: attend, bias (sizes 1 or full, to be broadcast from the right), padding [B,S], keyLengths
 *               and queryOffset (Int32Array [B]), causal, window [left, right] with -1 for no limit
 * @param sizes  { batch, heads, queries, keys }
 * @param finite the numbers that sources add: { uniform } for `uniform`, { finite } for keys a mask hides under
 *               `finite`, where causality and windows add the lowest float32; `always`: the number is so small that it
 *               is added, whatever the case says
 */
export function maskOptions(masks, sizes, fullyMasked, finite) {
  if (fullyMasked === 'uniform') return finiteBias(masks, sizes, finite.uniform, finite.uniform);
  if (fullyMasked === 'finite' || finite.always) return finiteBias(masks, sizes, finite.finite ?? -10000, LOWEST_F32);
  const options = {};
  if (masks.attend) options.attendMask = toRank4(masks.attend);
  if (masks.bias) options.attnBias = toRank4(masks.bias);
  if (masks.padding) options.keyPaddingMask = masks.padding;
  if (masks.keyLengths) options.keyLengths = masks.keyLengths;
  if (masks.causal) options.causal = true;
  const window = masks.window?.map((side) => Math.min(side, 2 ** 31 - 1));
  if (window?.some((side) => side !== -1)) options.window = window;
  // Refused where no position counts.
  if (masks.queryOffset && (options.causal || options.window)) options.queryOffset = masks.queryOffset;
  if (fullyMasked) options.emptyRows = fullyMasked;
  return options;
}

const padded = (masks, keys, b, j) => j >= (masks.keyLengths?.[b] ?? keys) || masks.padding?.data[b * keys + j];

function outOfReach({ causal, queryOffset, window }, b, i, j) {
  const ahead = j - (i + (queryOffset?.[b] ?? 0));
  const [left, right] = window ?? [-1, -1];
  return (causal && ahead > 0) || (left >= 0 && -ahead > left) || (right >= 0 && ahead > right);
}

/** Every hidden key gets a number added instead: `beyond` where positions hide it, else `masked`. */
function finiteBias(masks, { batch, heads, queries, keys }, masked, beyond) {
  const shape = [batch, heads, queries, keys];
  const attend = masks.attend && broadcastTo(toRank4(masks.attend), shape, 'attend mask').data;
  const data = masks.bias ? broadcastTo(toRank4(masks.bias), shape, 'float mask').data
    : new Float32Array(batch * heads * queries * keys);
  let n = 0;
  for (let b = 0; b < batch; ++b) {
    for (let h = 0; h < heads; ++h) {
      for (let i = 0; i < queries; ++i) {
        for (let j = 0; j < keys; ++j, ++n) {
          let value = 0;
          if (outOfReach(masks, b, i, j)) value = beyond;
          else if (padded(masks, keys, b, j) || (attend && !attend[n])) value = masked;
          // Two lowest numbers must not add up to -infinity, which would hide for good.
          if (value && data[n] !== -Infinity) data[n] = Math.max(LOWEST_F32, data[n] + value);
        }
      }
    }
  }
  return { attnBias: { data, shape } };
}

/** The masks with their paddings in the attend mask: a cache takes no others. */
export function foldPadding(masks, { batch, keys }) {
  if (!masks.padding && !masks.keyLengths) return masks;
  const attend = toRank4(masks.attend ?? { data: new Uint8Array(keys).fill(1), shape: [keys] });
  const shape = [batch, attend.shape[1], attend.shape[2], keys];
  const whole = broadcastTo(attend, shape, 'attend mask');
  const rows = shape[1] * shape[2];
  const data = whole.data.map((seen, n) => padded(masks, keys, Math.floor(n / keys / rows), n % keys) ? 0 : seen);
  return { ...masks, attend: { data, shape }, padding: undefined, keyLengths: undefined };
}
