// The ways to say a workload in ONNX: { variant: (w, inputs) => { model, feeds, result } }, feeds { name: [data, dims] }.
// mha and attention are com.microsoft's operators, attention23 is ONNX's own, decomposed is MatMul and Softmax.
import { OnnxGraph } from './onnx-file.mjs';
import { causalBias, scaled, sizesOf, swapped, transposed } from './layouts.mjs';

const MICROSOFT = 'com.microsoft';
/** Inputs that the calls change from step to step; how decoding returns its longer cache. */
const PRESENT = ['presentKey', 'presentValue'];

function projection(graph, input, name, { weights, biases }, E, factor = 1) {
  const weight = graph.weight([E, E], scaled(transposed(weights[name], E, E), factor));
  return graph.node('Add', [graph.node('MatMul', [input, weight]), graph.weight([E], scaled(biases[name], factor))]);
}

function begin(w, inputs) {
  const { B, L, E } = sizesOf(w);
  const graph = new OnnxGraph();
  return { graph, x: graph.input('x', [B, L, E]), feeds: { x: [inputs.x, [B, L, E]] } };
}

function finish(w, inputs, { graph, feeds }, heads) {
  const { B, L, E } = sizesOf(w);
  const weight = graph.weight([E, E], transposed(inputs.weights.out, E, E));
  const bias = graph.weight([E], inputs.biases.out);
  graph.node('Add', [graph.node('MatMul', [heads, weight]), bias], { outputs: ['y'] });
  graph.output('y', [B, L, E]);
  return { model: graph.bytes(), feeds };
}

function pastInputs(w, inputs, { graph, feeds }) {
  const { B, S, H, D } = sizesOf(w);
  feeds.pastKey = [inputs.pastKey, [B, H, S - 1, D]];
  feeds.pastValue = [inputs.pastValue, [B, H, S - 1, D]];
  for (const name of PRESENT) graph.output(name, [B, H, S, D]);
  return ['pastKey', 'pastValue'].map((name) => graph.input(name, [B, H, S - 1, D]));
}

function mha(w, inputs) {
  const { E, H } = sizesOf(w);
  const open = begin(w, inputs);
  const { graph, x } = open;
  const [query, key, value] = ['query', 'key', 'value'].map((name) => graph.node('MatMul',
    [x, graph.weight([E, E], transposed(inputs.weights[name], E, E))]));
  const { query: q, key: k, value: v } = inputs.biases;
  const bias = graph.weight([3 * E], Float32Array.of(...q, ...k, ...v));
  const past = w.kind === 'decode' ? pastInputs(w, inputs, open) : undefined;
  const heads = graph.node('MultiHeadAttention', [query, key, value, bias, ...(past ? ['', '', ...past] : [])], {
    domain: MICROSOFT, attributes: { num_heads: H, ...(w.causal && { unidirectional: 1 }) },
    ...(past && { outputs: ['heads', ...PRESENT] }),
  });
  return finish(w, inputs, open, heads);
}

function attention(w, inputs) {
  const { E, H } = sizesOf(w);
  const open = begin(w, inputs);
  const { graph, x } = open;
  const packed = new Float32Array(3 * E * E);
  ['query', 'key', 'value'].forEach((name, i) => packed.set(inputs.weights[name], i * E * E));
  const { query: q, key: k, value: v } = inputs.biases;
  const heads = graph.node('Attention', [x, graph.weight([E, 3 * E], transposed(packed, 3 * E, E)),
    graph.weight([3 * E], Float32Array.of(...q, ...k, ...v))],
  { domain: MICROSOFT, attributes: { num_heads: H, ...(w.causal && { unidirectional: 1 }) } });
  return finish(w, inputs, open, heads);
}

function attention23(w, inputs) {
  const { E, H } = sizesOf(w);
  const open = begin(w, inputs);
  const { graph, x } = open;
  const projected = ['query', 'key', 'value'].map((name) => projection(graph, x, name, inputs, E));
  const past = w.kind === 'decode' ? pastInputs(w, inputs, open) : undefined;
  const heads = graph.node('Attention', [...projected, ...(past ? ['', ...past] : [])], {
    attributes: { q_num_heads: H, kv_num_heads: H, ...(w.causal && { is_causal: 1 }) },
    ...(past && { outputs: ['heads', ...PRESENT] }),
  });
  return finish(w, inputs, open, heads);
}

function decomposed(w, inputs) {
  const { B, L, E, H, D } = sizesOf(w);
  const open = begin(w, inputs);
  const { graph, x } = open;
  const shape = graph.shape(B, L, H, D);
  const [query, key, value] = [['query', [0, 2, 1, 3]], ['key', [0, 2, 3, 1]], ['value', [0, 2, 1, 3]]]
    .map(([name, perm]) => graph.node('Transpose', [graph.node('Reshape',
      [projection(graph, x, name, inputs, E, name === 'query' ? 1 / Math.sqrt(D) : 1), shape])], { attributes: { perm } }));
  let scores = graph.node('MatMul', [query, key]);
  if (w.causal) scores = graph.node('Add', [scores, graph.weight([L, L], causalBias(L))]);
  const weighted = graph.node('MatMul', [graph.node('Softmax', [scores], { attributes: { axis: -1 } }), value]);
  const turned = graph.node('Transpose', [weighted], { attributes: { perm: [0, 2, 1, 3] } });
  return finish(w, inputs, open, graph.node('Reshape', [turned, graph.shape(B, L, E)]));
}

/** Attention alone, [B, H, L, D]. */
function decomposedCore(w, inputs) {
  const { B, L, H, D } = sizesOf(w);
  const graph = new OnnxGraph();
  const dims = [B, H, L, D];
  const [query, key, value] = ['query', 'key', 'value'].map((name) => graph.input(name, dims));
  const turned = graph.node('Transpose', [key], { attributes: { perm: [0, 1, 3, 2] } });
  const factor = graph.weight([], Float32Array.of(1 / Math.sqrt(D)));
  const scores = graph.node('MatMul', [graph.node('Mul', [query, factor]), turned]);
  graph.node('MatMul', [graph.node('Softmax', [scores], { attributes: { axis: -1 } }), value], { outputs: ['y'] });
  graph.output('y', dims);
  return {
    model: graph.bytes(),
    feeds: Object.fromEntries(['query', 'key', 'value'].map((name) => [name, [inputs[name], dims]])),
  };
}

/** Attention alone, [B, L, E], as com.microsoft's operator wants it. */
function mhaCore(w, inputs) {
  const { B, L, E, H, D } = sizesOf(w);
  const graph = new OnnxGraph();
  const names = ['query', 'key', 'value'];
  for (const name of names) graph.input(name, [B, L, E]);
  graph.node('MultiHeadAttention', names, { domain: MICROSOFT, attributes: { num_heads: H }, outputs: ['y'] });
  graph.output('y', [B, L, E]);
  return {
    model: graph.bytes(),
    feeds: Object.fromEntries(names.map((name) => [name, [swapped(inputs[name], B, H, L, D), [B, L, E]]])),
    toHeadsFirst: (y) => swapped(y, B, L, H, D),
  };
}

export const ONNX_GRAPHS = {
  layer: { mha, attention, attention23, decomposed },
  decode: { mha, attention23 },
  attention: { mha: mhaCore, decomposed: decomposedCore },
};
