// ruvector-attention-wasm and @ruvector/attention-wasm: one query of one head a call, keys and values as arrays of
// arrays, no projections; so those are plain loops, which are nothing beside the rest. Decoding alone: it is the
// smallest workload without a layer's many queries, and attention alone takes a minute a call (W6a).
import { sizesOf } from './layouts.mjs';
import { dense } from './plain.mjs';

const rowsOf = (data, from, count, width) =>
  Array.from({ length: count }, (_, j) => Array.from(data.subarray(from + j * width, from + (j + 1) * width)));

const heads = (data, count, length, width) =>
  Array.from({ length: count }, (_, h) => rowsOf(data, h * length * width, length, width));

function openDecode(attend, w, { x, weights, biases, pastKey, pastValue }) {
  const { S, E, H, D } = sizesOf(w);
  const caches = { key: heads(pastKey, H, S - 1, D), value: heads(pastValue, H, S - 1, D) };
  const projected = new Float32Array(E);
  const joined = new Float32Array(E);
  const project = (name) => {
    dense(x, weights[name], biases[name], 1, E, projected);
    return projected;
  };
  return () => {
    for (const [name, cache] of Object.entries(caches)) {
      const own = project(name);
      for (let h = 0; h < H; h += 1) cache[h][S - 1] = Array.from(own.subarray(h * D, (h + 1) * D));
    }
    const query = project('query');
    for (let h = 0; h < H; h += 1) {
      joined.set(attend(query.subarray(h * D, (h + 1) * D), caches.key[h], caches.value[h]), h * D);
    }
    const y = new Float32Array(E);
    dense(joined, weights.out, biases.out, 1, E, y);
    return y;
  };
}

/** The loader of the package called `name`. */
export const loadRuvector = (name) => async ({ isPage, readPeer }) => {
  const module = await import(`./node_modules/${name}/ruvector_attention_wasm.js`);
  if (isPage) await module.default();
  else module.initSync({ module: readPeer(`${name}/ruvector_attention_wasm_bg.wasm`) });
  const attend = module.scaled_dot_attention;
  return {
    variants: () => ['scaled_dot_attention'],
    open: async (w, inputs) => ({ run: openDecode(attend, w, inputs), close() {} }),
  };
};
