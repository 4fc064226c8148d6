// Whole layers, their first weights included, and caches of every kind of storage.

const LAYERS = [
  ['plain', { embedDim: 24, numHeads: 4 }],
  ['seed', { embedDim: 24, numHeads: 4, seed: 123456789 }],
  ['no bias', { embedDim: 24, numHeads: 4, bias: false }],
  ['grouped heads', { embedDim: 30, numHeads: 6, numKvHeads: 2, headDim: 7, vHeadDim: 9, outDim: 11 }],
  ['rope', { embedDim: 32, numHeads: 4, numKvHeads: 2, rope: true }],
  [
    'rope, interleaved and scaled',
    {
      embedDim: 32,
      numHeads: 4,
      rope: { interleaved: true, scaling: { type: 'yarn', factor: 4, originalLength: 32 } },
    },
  ],
  ['qkNorm', { embedDim: 40, numHeads: 4, numKvHeads: 2, qkNorm: true }],
  ['rope and qkNorm', { embedDim: 40, numHeads: 4, rope: { base: 1000000 }, qkNorm: { epsilon: 0.00001 } }],
  ['extra keys', { embedDim: 24, numHeads: 4, addBiasKv: true, addZeroAttn: true }],
  [
    'softcap, alibi, sinks, window',
    { embedDim: 24, numHeads: 4, softcap: 2, alibi: true, sinks: true, window: [100, 0] },
  ],
];

const layer =
  (options) =>
  ({ MultiHeadAttention, runtime, random }) => {
    const mha = new MultiHeadAttention({ ...options, runtime });
    const [x, y] = [random.tensor([2, 150, options.embedDim], 2), random.tensor([2, 37, options.embedDim], 2)];
    const more = { needWeights: 'averaged', returnLse: true, returnHeads: true };
    const results = [
      mha.stateDict(),
      mha.forward(x, { ...more, causal: true }),
      mha.forward(y, x, x, { ...more, keyPaddingMask: random.mask([2, 150], 60), needWeights: 'perHead' }),
      mha.forward({ data: x.data.subarray(0, options.embedDim), shape: [1, options.embedDim] }),
    ];
    mha.dispose();
    return results;
  };

function otherWidths({ MultiHeadAttention, runtime, random }) {
  const mha = new MultiHeadAttention({
    embedDim: 48,
    numHeads: 6,
    numKvHeads: 2,
    kDim: 40,
    vDim: 36,
    runtime,
    seed: 7,
  });
  const [q, k, v] = [random.tensor([3, 50, 48]), random.tensor([3, 300, 40]), random.tensor([3, 300, 36])];
  const outputGate = random.tensor([3, 50, 48]);
  return mha.forward(q, k, v, { causal: 'end', outputGate, needWeights: 'averaged', returnLse: true });
}

/** Weights as files hold them, in 16 bits. */
function halfWeights({ MultiHeadAttention, runtime, random }) {
  const mha = new MultiHeadAttention({ embedDim: 24, numHeads: 4, runtime });
  // Exponents that keep sums finite: of float16 from tiny ones to 1, of bfloat16 around 1.
  const bits = (count, least, most) => Uint16Array.from({ length: count }, () => random.between(least, most));
  mha.loadStateDict({
    in_proj_weight: { dtype: 'F16', shape: [72, 24], data: bits(72 * 24, 0, 0x3c00) },
    in_proj_bias: { dtype: 'BF16', shape: [72], data: bits(72, 0x3e00, 0x3f80) },
    'out_proj.weight': { dtype: 'BF16', shape: [24, 24], data: bits(24 * 24, 0xbe00, 0xbf80) },
    'out_proj.bias': { dtype: 'F16', shape: [24], data: bits(24, 0x8000, 0xbc00) },
  });
  const results = [mha.stateDict(), mha.forward(random.tensor([2, 9, 24]))];
  mha.dispose();
  return results;
}

/** A prefill, steps of some tokens, and single ones; the file at the end tells what is held. */
const cached =
  (layerOptions, cacheOptions) =>
  ({ MultiHeadAttention, runtime, random }) => {
    const E = 24;
    const mha = new MultiHeadAttention({ embedDim: E, numHeads: 4, numKvHeads: 2, ...layerOptions, runtime });
    const cache = mha.createCache({ batch: 2, ...cacheOptions });
    const results = [131, 5, 3, 1, 1, 1].map((n) =>
      mha.forward(random.tensor([2, n, E], 2), { cache, causal: true, returnLse: true }),
    );
    const counts = [4, 2];
    results.push(mha.forward(random.tensor([2, 4, E], 2), { cache, causal: true, queryLengths: counts }));
    const saved = cache.save();
    cache.dispose();
    mha.dispose();
    return [results, saved];
  };

function ofItsOwn({ KvCache, scaledDotProductAttention, runtime, random }) {
  return ['f32', 'f16', 'bf16', 'int8'].map((dtype) => {
    const cache = KvCache.create({ batch: 2, numKvHeads: 2, headDim: 7, vHeadDim: 5, capacity: 200, dtype, runtime });
    // Large and tiny numbers, too: rounding to 16 bits has edges.
    for (const [n, limit] of [
      [140, 1],
      [9, 2 ** 17],
      [8, 2 ** -20],
      [1, 4],
    ]) {
      cache.append(random.tensor([2, 2, n, 7], limit), random.tensor([2, 2, n, 5], limit));
    }
    const query = random.tensor([2, 4, 3, 7], 2 ** -4);
    const result = scaledDotProductAttention(query, { cache, needWeights: 'perHead', returnLse: true, runtime });
    cache.crop(130);
    cache.reorder([1, 0]);
    const saved = cache.save();
    cache.dispose();
    return [result, saved];
  });
}

export const LAYER_CASES = [
  ...LAYERS.map(([name, options]) => [`layer: ${name}`, layer(options)]),
  ['layer: other widths, gate', otherWidths],
  ['layer: 16-bit weights', halfWeights],
  ...['f32', 'f16', 'bf16', 'int8'].flatMap((dtype) => [
    [`cache: ${dtype}`, cached({}, { capacity: 160, dtype })],
    [`cache: ${dtype}, rope and qkNorm`, cached({ rope: true, qkNorm: true, bias: false }, { capacity: 160, dtype })],
    [`cache: ${dtype}, rolling with sinks`, cached({ rope: true }, { window: 20, sinkTokens: 3, dtype })],
  ]),
  ['cache: of its own', ofItsOwn],
];
