// What a case hides, as options of the package. A case whose rows without any allowed key are `zero` or `nan` hands
// its masks over as masks. One that says `uniform` or `finite` hides nothing at all: it adds a finite number, which
// the package gets as `attnBias`.
import { broadcastTo } from './tensor.mjs';

export const LOWEST_F32 = -3.4028234663852886e38;

/**
 * @param masks  what hides: attend, bias (rank 4, sizes 1 or full), padding [B,S], keyLengths and queryOffset
 *               (Int32Array [B]), causal
 * @param sizes  { batch, heads, queries, keys }
 * @param finite { value, causal }: the number `uniform` and `finite` add for a hidden key, and whether causality
 *               hides by that number, too, or for good
 */
export function maskOptions(masks, sizes, fullyMasked, finite) {
  if (fullyMasked === 'uniform' || fullyMasked === 'finite') return finiteBias(masks, sizes, finite);
  const options = {};
  if (masks.attend) options.attendMask = masks.attend;
  if (masks.bias) options.attnBias = masks.bias;
  if (masks.padding) options.keyPaddingMask = masks.padding;
  if (masks.keyLengths) options.keyLengths = masks.keyLengths;
  Object.assign(options, causalOptions(masks));
  if (fullyMasked) options.emptyRows = fullyMasked;
  return options;
}

function causalOptions({ causal, queryOffset }) {
  if (!causal) return {};
  return queryOffset ? { causal: true, queryOffset } : { causal: true };
}

function finiteBias(masks, { batch, heads, queries, keys }, finite) {
  const shape = [batch, heads, queries, keys];
  const attend = masks.attend && broadcastTo(masks.attend, shape, 'attend mask').data;
  const data = masks.bias ? broadcastTo(masks.bias, shape, 'float mask').data
    : new Float32Array(batch * heads * queries * keys);
  let n = 0;
  for (let b = 0; b < batch; ++b) {
    const length = masks.keyLengths?.[b] ?? keys;
    const offset = masks.queryOffset?.[b] ?? 0;
    for (let h = 0; h < heads; ++h) {
      for (let i = 0; i < queries; ++i) {
        for (let j = 0; j < keys; ++j, ++n) {
          const hidden = (attend && !attend[n]) || j >= length || masks.padding?.data[b * keys + j]
            || (masks.causal && finite.causal && j > i + offset);
          // Two lowest numbers must not add up to -infinity, which would hide for good.
          if (hidden && data[n] !== -Infinity) data[n] = Math.max(LOWEST_F32, data[n] + finite.value);
        }
      }
    }
  }
  const bias = { attnBias: { data, shape } };
  return finite.causal ? bias : { ...bias, ...causalOptions(masks) };
}

/** The number of a flavour: Keras adds -1e9, older onnxruntime the lowest float32, its contrib operators -10000. */
export function finiteRule(testCase, uniformValue) {
  if (testCase.fullyMasked === 'finite') {
    return { value: testCase.number('mask_filter_value', -10000), causal: false };
  }
  return { value: uniformValue, causal: true };
}
