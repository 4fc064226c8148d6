// The same computation for Node and for the page: attention and Linear with masks, from reproducible numbers.

/** Numbers from -1 to 1 that every engine computes alike: integer arithmetic and one exact division. */
function numbers(count, seed) {
  let state = seed;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) / 2 ** 23 - 1;
  });
}

const tensor = (seed, ...shape) => ({
  data: numbers(
    shape.reduce((a, b) => a * b, 1),
    seed,
  ),
  shape,
});

export function compute({ MultiHeadAttention, Linear, scaledDotProductAttention }, runtime) {
  const mha = new MultiHeadAttention({
    embedDim: 48,
    numHeads: 6,
    numKvHeads: 2,
    kDim: 40,
    vDim: 36,
    runtime,
    seed: 7,
  });
  const [q, k, v] = [tensor(1, 3, 50, 48), tensor(2, 3, 300, 40), tensor(3, 3, 300, 36)];
  const keyPaddingMask = { data: Uint8Array.from(numbers(900, 4), (x) => Number(x > 0.5)), shape: [3, 300] };
  const { output, weights, lse } = mha.forward(q, k, v, {
    causal: 'end',
    keyPaddingMask,
    needWeights: 'averaged',
    returnLse: true,
  });
  const linear = new Linear({ inFeatures: 48, outFeatures: 30, seed: 8, runtime });
  const heads = scaledDotProductAttention(tensor(5, 2, 4, 33, 16), tensor(6, 2, 2, 65, 16), tensor(7, 2, 2, 65, 20), {
    runtime,
  });
  const parts = [output, weights, lse, linear.forward(output), heads.output].map(({ data }) => Array.from(data));
  mha.dispose();
  linear.dispose();
  // Text keeps infinities on the way out of the page.
  return parts.flat().map(String);
}
