// LiteRT.js: a TFLite graph on XNNPACK. In a page only.
import { TfliteGraph } from './tflite-file.mjs';
import { causalBias, scaled, sizesOf } from './layouts.mjs';

const CORE = './node_modules/@litertjs/core/';

function attend(graph, w, query, key, value) {
  const { B, L, S, H, D } = sizesOf(w);
  let scores = graph.node('BATCH_MATMUL', [query, key], [B, H, L, S], { adjY: true });
  if (w.causal) scores = graph.node('ADD', [scores, graph.weight([1, 1, L, S], causalBias(L))], [B, H, L, S]);
  const weights = graph.node('SOFTMAX', [scores], [B, H, L, S]);
  return graph.node('BATCH_MATMUL', [weights, value], [B, H, L, D]);
}

function attentionGraph(w, { query, key, value }) {
  const { B, L, H, D } = sizesOf(w);
  const graph = new TfliteGraph();
  const dims = [B, H, L, D];
  const [q, k, v] = [graph.input(dims), graph.input(dims), graph.input(dims)];
  const factor = graph.weight([1], Float32Array.of(1 / Math.sqrt(D)));
  graph.output(attend(graph, w, graph.node('MUL', [q, factor], dims), k, v));
  return { model: graph.bytes(), feeds: [[query, dims], [key, dims], [value, dims]] };
}

function layerGraph(w, { x, weights, biases, pastKey, pastValue }) {
  const { B, L, S, E, H, D } = sizesOf(w);
  const graph = new TfliteGraph();
  const dense = (input, name, factor = 1) => graph.node('FULLY_CONNECTED', [input,
    graph.weight([E, E], scaled(weights[name], factor)), graph.weight([E], scaled(biases[name], factor))], [B, L, E]);
  const feeds = [[x, [B, L, E]]];
  const input = graph.input([B, L, E]);
  const order = graph.integers(0, 2, 1, 3);
  const [query, newKey, newValue] = [['query', 1 / Math.sqrt(D)], ['key', 1], ['value', 1]].map(([name, factor]) =>
    graph.node('TRANSPOSE', [graph.node('RESHAPE', [dense(input, name, factor), graph.integers(B, L, H, D)],
      [B, L, H, D]), order], [B, H, L, D]));
  let [key, value] = [newKey, newValue];
  if (w.kind === 'decode') {
    const dims = [B, H, S - 1, D];
    feeds.push([pastKey, dims], [pastValue, dims]);
    const [keys, values] = [graph.input(dims), graph.input(dims)];
    key = graph.node('CONCATENATION', [keys, newKey], [B, H, S, D], { axis: 2 });
    value = graph.node('CONCATENATION', [values, newValue], [B, H, S, D], { axis: 2 });
  }
  const heads = graph.node('TRANSPOSE', [attend(graph, w, query, key, value), order], [B, L, H, D]);
  graph.output(dense(graph.node('RESHAPE', [heads, graph.integers(B, L, E)], [B, L, E]), 'out'));
  // The caller keeps the cache: the rows that are new.
  if (w.kind === 'decode') for (const part of [newKey, newValue]) graph.output(part);
  return { model: graph.bytes(), feeds };
}

export async function load({ threads }) {
  const { Tensor, loadAndCompile, loadLiteRt } = await import(`${CORE}dist/index.js`);
  await loadLiteRt(new URL(`${CORE}wasm/`, import.meta.url).href, { threads: threads > 1 });
  return {
    variants: () => ['tflite'],
    async open(w, inputs) {
      const { model, feeds } = w.kind === 'attention' ? attentionGraph(w, inputs) : layerGraph(w, inputs);
      const compiled = await loadAndCompile(model, { accelerator: 'wasm', cpuOptions: { numThreads: threads } });
      return {
        async run() {
          const tensors = feeds.map(([data, dims]) => Tensor.fromTypedArray(data, dims));
          const results = await compiled.run(tensors);
          const copies = await Promise.all(results.map((result) => result.data()));
          for (const tensor of [...tensors, ...results]) tensor.delete();
          return copies[0];
        },
        close: () => compiled.delete(),
      };
    },
  };
}
