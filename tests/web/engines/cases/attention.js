// Calls of the functional core. A case is [name, compute]; compute gets the package, a runtime and a Random, and gives
// results of any shape.

const ALL = { returnLse: true, returnMax: true, needWeights: 'perHead' };

/** Queries, keys and values: H = 6 heads over 2, sizes that fit no panel, more keys than one chunk of 128. */
function inputs(random, { B = 2, H = 6, Hkv = 2, L = 13, S = 301, D = 13, Dv = 10, limit = 2 } = {}) {
  return [
    random.tensor([B, H, L, D], limit),
    random.tensor([B, Hkv, S, D], limit),
    random.tensor([B, Hkv, S, Dv], limit),
  ];
}

const attend =
  (options, sizes) =>
  ({ scaledDotProductAttention, runtime, random }) => {
    const given = inputs(random, sizes);
    const more = typeof options === 'function' ? options(random, given) : options;
    return scaledDotProductAttention(...given, { ...ALL, ...more, runtime });
  };

const scattered = (random, { data }, value, parts) => {
  for (let i = 0; i < data.length; ++i) if (random.chance(parts)) data[i] = value;
};

const OPTIONS = [
  ['plain', {}],
  ['averaged weights', { needWeights: 'averaged' }],
  ['causal', { causal: true }],
  ['causal from the end', { causal: 'end' }],
  ['causal at an offset', { causal: true, queryOffset: [250, 31] }],
  ['window', { window: [70, 9], queryOffset: 180 }],
  ['window, causal', { window: [140, -1], causal: 'end' }],
  ['chunks of positions', { attentionChunk: 50, causal: true, queryOffset: 120 }],
  ['prefix', { causal: true, prefixLengths: [200, 5] }],
  ['softcap', { softcap: 1.5 }],
  ['large softcap', { softcap: 50, scale: 3 }],
  ['alibi', { alibi: true, queryOffset: 288 }],
  ['alibi, own slopes', (random) => ({ alibi: random.numbers(6), causal: 'end' })],
  ['sinks', () => ({ sinks: Float32Array.of(0.5, -1.25, 3, -Infinity, 0, 8) })],
  ['head mask', () => ({ headMask: Float32Array.of(1, 0, 0.5, -2, 0.3, 1) })],
  ['attend mask', (random) => ({ attendMask: random.mask([2, 1, 13, 301], 150) })],
  ['attend mask of each head', (random) => ({ attendMask: random.mask([1, 6, 13, 301], 60) })],
  ['padding', (random) => ({ keyPaddingMask: random.mask([2, 301], 70) })],
  ['lengths', { keyLengths: [129, 0], queryLengths: [13, 4] }],
  ['bias', (random) => ({ attnBias: random.tensor([2, 6, 13, 301], 4) })],
  [
    'bias with infinities',
    (random) => {
      const attnBias = random.tensor([1, 6, 13, 301], 4);
      scattered(random, attnBias, -Infinity, 90);
      return { attnBias };
    },
  ],
  ['large finite bias', (random) => ({ attnBias: random.tensor([13, 301], 2 ** 30) })],
  ['empty rows, NaN', (random) => ({ attendMask: random.mask([13, 301], 0), emptyRows: 'nan' })],
  ['small scale', { scale: 0.001 }],
  ['scores raw', { needScores: 'raw', softcap: 3 }],
  ['scores capped', { needScores: 'capped', softcap: 3 }],
  [
    'scores biased',
    (random) => ({ needScores: 'biased', softcap: 3, attnBias: random.tensor([13, 301]), causal: true }),
  ],
  [
    'everything',
    (random) => ({
      causal: 'end',
      window: [150, 3],
      softcap: 4,
      alibi: true,
      sinks: random.numbers(6, 4),
      headMask: random.numbers(6, 2),
      keyLengths: [290, 140],
      keyPaddingMask: random.mask([2, 301], 20),
      attendMask: random.mask([2, 6, 13, 301], 200),
      attnBias: random.tensor([1, 6, 13, 301], 2),
      scale: 0.3,
    }),
  ],
  [
    'extra keys',
    (random) => ({ extraKey: random.tensor([2, 3, 13]), extraValue: random.tensor([2, 3, 10]), causal: true }),
  ],
];

const SIZES = [
  ['one key', { S: 1 }],
  ['one query', { L: 1, S: 129 }],
  ['full panels', { H: 8, Hkv: 4, L: 32, S: 256, D: 64, Dv: 64 }],
  ['one head size', { H: 4, Hkv: 4, L: 9, S: 77, D: 1, Dv: 1 }],
  ['wide values', { H: 4, Hkv: 1, L: 5, S: 140, D: 8, Dv: 96 }],
  ['long', { B: 1, H: 4, Hkv: 2, L: 70, S: 1500, D: 24, Dv: 24 }],
  ['huge scores', { limit: 2 ** 40 }],
  ['scores that overflow', { limit: 2 ** 63 }],
  ['tiny numbers', { limit: 2 ** -70 }],
  ['scores far apart', { limit: 32 }],
];

/** Numbers that are none, in places that are seen and in places that are not. */
function brokenRows({ scaledDotProductAttention, runtime, random }) {
  return [NaN, Infinity, -Infinity].map((value) => {
    const [query, key, values] = inputs(random, { L: 20, S: 270 });
    scattered(random, query, value, 3);
    scattered(random, key, value, 1);
    scattered(random, values, value, 1);
    const keyPaddingMask = random.mask([2, 270], 240);
    return scaledDotProductAttention(query, key, values, { ...ALL, keyPaddingMask, causal: 'end', runtime });
  });
}

export const ATTENTION_CASES = [
  ...OPTIONS.map(([name, options]) => [`attention: ${name}`, attend(options)]),
  ...SIZES.map(([name, sizes]) => [`attention: ${name}`, attend({}, sizes)]),
  ['attention: NaN and infinities', brokenRows],
  [
    'attention: positions before heads',
    ({ scaledDotProductAttention, runtime, random }) => {
      const [query, key] = [random.tensor([2, 19, 4, 9]), random.tensor([2, 150, 2, 9])];
      return scaledDotProductAttention(query, key, key, { ...ALL, layout: 'BLHD', causal: 'end', runtime });
    },
  ],
];
