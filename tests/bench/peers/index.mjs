// Who is measured: { name: { load(env), absent?(env, workload) } }. load() gives { variants(workload), open(workload, inputs,
// variant) }, and open() gives { run, close, toHeadsFirst? }: run() takes and returns arrays of JavaScript, with a
// promise or without; toHeadsFirst(output) gives attention alone as [B, H, L, D]. Modules are imported when they sit down.
const ruvector = (name) => ({
  load: async (env) => (await import('./ruvector.mjs')).loadRuvector(name)(env),
  absent: (env, { kind }) => (kind === 'decode' ? undefined : 'a call for each query'),
});
const of = (module) => ({ load: async (env) => (await import(module)).load(env) });

export const PEERS = {
  headwise: of('./headwise.mjs'),
  'onnxruntime-web': of('./onnxruntime.mjs'),
  'LiteRT.js': { ...of('./litert.mjs'), absent: ({ isPage }) => (isPage ? undefined : 'in a page only') },
  'TensorFlow.js': of('./tfjs.mjs'),
  'jax-js': of('./jax.mjs'),
  'ruvector-attention-wasm': ruvector('ruvector-attention-wasm'),
  '@ruvector/attention-wasm': ruvector('@ruvector/attention-wasm'),
  'plain loops': of('./plain.mjs'),
};
