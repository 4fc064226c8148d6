// jax-js: nn.dotProductAttention, jitted with the projections, its wasm backend. Arrays are counted: .ref keeps one.
import { sizesOf, swapped, transposed } from './layouts.mjs';

export async function load() {
  const { defaultDevice, init, jit, nn, numpy: np } = await import('./node_modules/@jax-js/jax/dist/index.js');
  await init('wasm');
  defaultDevice('wasm');
  const array = (data, shape) => np.array(data).reshape(shape);

  function openAttention(w, inputs) {
    const { B, L, H, D } = sizesOf(w);
    const attend = jit((query, key, value) => nn.dotProductAttention(query, key, value));
    const [query, key, value] = ['query', 'key', 'value'].map((name) => swapped(inputs[name], B, H, L, D));
    return {
      run: () => attend(array(query, [B, L, H, D]), array(key, [B, L, H, D]), array(value, [B, L, H, D])).data(),
      toHeadsFirst: (y) => swapped(y, B, L, H, D),
      close() {},
    };
  }

  function openLayer(w, inputs) {
    const { B, L, S, E, H, D } = sizesOf(w);
    const kept = [];
    for (const name of ['query', 'key', 'value', 'out']) {
      kept.push(array(transposed(inputs.weights[name], E, E), [E, E]), array(inputs.biases[name].slice(), [E]));
    }
    if (w.kind === 'decode') {
      for (const name of ['pastKey', 'pastValue']) {
        kept.push(array(swapped(inputs[name], B, H, S - 1, D), [B, S - 1, H, D]));
      }
    }
    const layer = jit((x, wq, bq, wk, bk, wv, bv, wo, bo, pastKey, pastValue) => {
      const dense = (input, weight, bias) => np.matmul(input, weight).add(bias);
      const heads = (input) => input.reshape([B, L, H, D]);
      const query = heads(dense(x.ref, wq, bq));
      let [key, value] = [heads(dense(x.ref, wk, bk)), heads(dense(x, wv, bv))];
      if (pastKey) {
        key = np.concatenate([pastKey, key], 1);
        value = np.concatenate([pastValue, value], 1);
      }
      const y = nn.dotProductAttention(query, key, value, w.causal ? { isCausal: true } : {});
      return dense(y.reshape([B * L, E]), wo, bo);
    });
    return {
      run: () => layer(array(inputs.x, [B * L, E]), ...kept.map((entry) => entry.ref)).data(),
      close: () => kept.forEach((entry) => entry.dispose()),
    };
  }

  return {
    variants: () => ['dotProductAttention'],
    open: async (w, inputs) => (w.kind === 'attention' ? openAttention : openLayer)(w, inputs),
  };
}
