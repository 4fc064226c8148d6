// TensorFlow.js, its wasm backend: one batched product for all heads, or one product for each head.
import { causalBias, scaled, sizesOf, transposed } from './layouts.mjs';

const TFJS = './node_modules/@tensorflow/';

async function importTf({ isPage, loadScript, require }) {
  if (isPage) {
    await loadScript(new URL(`${TFJS}tfjs/dist/tf.min.js`, import.meta.url));
    await loadScript(new URL(`${TFJS}tfjs-backend-wasm/dist/tf-backend-wasm.min.js`, import.meta.url));
    return { tf: globalThis.tf, wasm: globalThis.tf.wasm };
  }
  return { tf: require('@tensorflow/tfjs'), wasm: require('@tensorflow/tfjs-backend-wasm') };
}

function batched(tf, query, key, value, bias) {
  const scores = tf.matMul(query, key, false, true);
  return tf.matMul(tf.softmax(bias ? tf.add(scores, bias) : scores), value);
}

/** Only a product of two matrices, none turned, is XNNPACK's in this backend. */
function perHead(tf, query, key, value, bias) {
  const { shape } = query;
  const matrices = (x) => tf.unstack(x.reshape([-1, ...x.shape.slice(2)]));
  const [queries, keys, values] = [query, tf.transpose(key, [0, 1, 3, 2]), value].map(matrices);
  const heads = queries.map((matrix, i) => {
    const scores = tf.matMul(matrix, keys[i]);
    return tf.matMul(tf.softmax(bias ? tf.add(scores, bias) : scores), values[i]);
  });
  return tf.stack(heads).reshape(shape);
}

const VARIANTS = { batched, perHead };

export async function load(env) {
  const { tf, wasm } = await importTf(env);
  if (env.isPage) wasm.setWasmPaths(new URL(`${TFJS}tfjs-backend-wasm/dist/`, import.meta.url).href);
  wasm.setThreadsCount(env.threads);
  await tf.setBackend('wasm');
  await tf.ready();

  /** tidy() looks into what it returns, each number of an array included: the array is made outside. */
  function readTidy(compute) {
    const y = tf.tidy(compute);
    const data = y.dataSync();
    y.dispose();
    return data;
  }

  function openAttention(w, inputs, attend) {
    const { B, L, H, D } = sizesOf(w);
    return {
      run: () => readTidy(() => {
        const [query, key, value] = ['query', 'key', 'value'].map((name) => tf.tensor(inputs[name], [B, H, L, D]));
        return attend(tf, tf.mul(query, 1 / Math.sqrt(D)), key, value);
      }),
      close() {},
    };
  }

  function openLayer(w, inputs, attend) {
    const { B, L, S, E, H, D } = sizesOf(w);
    const kept = {};
    for (const [name, factor] of [['query', 1 / Math.sqrt(D)], ['key', 1], ['value', 1], ['out', 1]]) {
      kept[name] = tf.tensor(scaled(transposed(inputs.weights[name], E, E), factor), [E, E]);
      kept[`${name}Bias`] = tf.tensor(scaled(inputs.biases[name], factor), [E]);
    }
    if (w.causal) kept.bias = tf.tensor(causalBias(L), [L, L]);
    if (w.kind === 'decode') {
      for (const name of ['pastKey', 'pastValue']) kept[name] = tf.tensor(inputs[name], [B, H, S - 1, D]);
    }
    const dense = (a, name) => tf.fused.matMul({ a, b: kept[name], bias: kept[`${name}Bias`] });
    return {
      run: () => readTidy(() => {
        const x = tf.tensor(inputs.x, [B * L, E]);
        const [query, ...own] = ['query', 'key', 'value'].map((name) =>
          tf.transpose(dense(x, name).reshape([B, L, H, D]), [0, 2, 1, 3]));
        const [key, value] = w.kind === 'decode'
          ? [tf.concat([kept.pastKey, own[0]], 2), tf.concat([kept.pastValue, own[1]], 2)] : own;
        const heads = tf.transpose(attend(tf, query, key, value, kept.bias), [0, 2, 1, 3]).reshape([B * L, E]);
        return dense(heads, 'out');
      }),
      close: () => Object.values(kept).forEach((tensor) => tensor.dispose()),
    };
  }

  return {
    variants: () => Object.keys(VARIANTS),
    open: async (w, inputs, variant) =>
      (w.kind === 'attention' ? openAttention : openLayer)(w, inputs, VARIANTS[variant]),
  };
}
