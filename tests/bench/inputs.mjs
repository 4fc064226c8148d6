// Inputs and weights of a workload: the same numbers in every engine and for every package.

/** A generator of numbers in [-1, 1): a linear congruence of 32 bits, whose upper bits are good enough here. */
function numbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  };
}

function filled(size, next, factor) {
  const data = new Float32Array(size);
  for (let i = 0; i < size; i += 1) data[i] = factor * next();
  return data;
}

/**
 * layer      { x, weights: { query, key, value, out }, biases: { … } }, weights [E, E] as PyTorch: [out, in]
 * attention  { query, key, value }, [B, H, L, D]
 * decode     as layer, and { pastKey, pastValue }, [H, cached - 1, D]
 */
export function makeInputs({ kind, batch, length, embedDim, numHeads, cached }) {
  const next = numbers(12345);
  const size = batch * length * embedDim;
  // Uniform numbers have a variance of factor² / 3: with these, every projection and every score has one near 1.
  const unit = Math.sqrt(3);
  if (kind === 'attention') {
    const [query, key, value] = [0, 1, 2].map(() => filled(size, next, unit));
    return { query, key, value };
  }
  const x = filled(size, next, 1);
  const [weights, biases] = [{}, {}];
  for (const name of ['query', 'key', 'value', 'out']) {
    weights[name] = filled(embedDim * embedDim, next, 3 / Math.sqrt(embedDim));
    biases[name] = filled(embedDim, next, 0.1);
  }
  if (kind === 'layer') return { x, weights, biases };
  const past = (cached - 1) * embedDim;
  return { x, weights, biases, numHeads, pastKey: filled(past, next, unit), pastValue: filled(past, next, unit) };
}
