// The functions beside attention: what looks into it, joins it, and prepares it.

const ROPES = [
  ['plain', {}],
  ['interleaved, of a part', { interleaved: true, dim: 14 }],
  ['another base', { base: 500000 }],
  ['linear', { scaling: { type: 'linear', factor: 3 } }],
  ['ntk', { scaling: { type: 'ntk', factor: 3 } }],
  ['yarn', { scaling: { type: 'yarn', factor: 4, originalLength: 64 } }],
  ['llama3', { scaling: { type: 'llama3', factor: 8, originalLength: 256 } }],
];

const turn =
  (options) =>
  ({ rotaryEmbedding, runtime, random }) => {
    const x = random.tensor([2, 3, 40, 18]);
    const far = Int32Array.from({ length: 80 }, () => random.between(0, 1000000));
    const before = Int32Array.from({ length: 80 }, () => random.between(-500, 500));
    return [{}, { positions: far }, { positions: before }].map((more) =>
      rotaryEmbedding(x, { ...options, ...more, runtime }),
    );
  };

function parts({ scaledDotProductAttention, mergeAttention, runtime, random }) {
  const query = random.tensor([2, 4, 9, 11], 2);
  const split = [130, 1, 77, 200].map((S) => {
    const [key, value] = [random.tensor([2, 2, S, 11], 2), random.tensor([2, 2, S, 7], 2)];
    const keyLengths = [S, random.between(0, S)];
    return scaledDotProductAttention(query, key, value, { keyLengths, returnLse: true, runtime });
  });
  return [mergeAttention(split, { runtime }), mergeAttention(split.slice(0, 1), { runtime })];
}

function lookInside({ inspect, headStatistics, attentionTile, runtime, random }) {
  const [query, key] = [random.tensor([2, 4, 60, 9], 4), random.tensor([2, 2, 260, 9], 4)];
  const options = { causal: true, queryOffset: 150, alibi: true, softcap: 6, runtime };
  return [
    inspect(query, key, { ...options, entropy: true, topK: 5, pooled: [7, 30], values: true }),
    inspect(query, key, { ...options, kind: 'raw', topK: 4, pooled: [16, 16], heads: [3, 1] }),
    inspect(query, key, { ...options, kind: 'capped', rows: [3, 9], keys: [100, 201] }),
    inspect(query, key, { ...options, kind: 'biased', rows: [5, 50] }),
    headStatistics(query, key, options),
    attentionTile(query, key, { ...options, batch: 1, head: 2, rows: [10, 20], keys: [120, 180] }),
  ];
}

/** Every distance up to some thousands, in tables of many sizes. */
function biases({ relativePositionBias, random }) {
  const of = (buckets, options) => relativePositionBias(random.tensor([buckets, 1]), options);
  const far = { queryLength: 1, keyLength: 6000, queryOffset: 3000 };
  return [
    ...[4, 10, 32, 64, 126].flatMap((buckets) =>
      [64, 100, 128, 1000, 4096].map((maxDistance) => of(buckets, { ...far, maxDistance })),
    ),
    ...[8, 32, 33].map((buckets) => of(buckets, { ...far, bidirectional: false })),
    of(13 * 5, { window: [7, 3] }),
  ];
}

export const FUNCTION_CASES = [
  ...ROPES.map(([name, options]) => [`rotaryEmbedding: ${name}`, turn(options)]),
  ['mergeAttention', parts],
  ['inspect, headStatistics, attentionTile', lookInside],
  ['relativePositionBias', biases],
  [
    'alibiSlopes',
    ({ alibiSlopes }) => [...Array.from({ length: 130 }, (_, i) => alibiSlopes(i + 1)), alibiSlopes(1000)],
  ],
  [
    'Linear',
    ({ Linear, runtime, random }) =>
      [
        [48, 30, true],
        [7, 65, false],
        [129, 3, true],
      ].map(([inFeatures, outFeatures, bias], seed) => {
        const linear = new Linear({ inFeatures, outFeatures, bias, seed, runtime });
        const results = [linear.forward(random.tensor([3, 11, inFeatures])), linear.stateDict()];
        linear.dispose();
        return results;
      }),
  ],
];
