// Imports the packed files as they are, without a bundler, and reports what happened.
import * as headwise from './headwise/web/dist/index.js';
import { parseSafetensors, serializeSafetensors } from './headwise/web/dist/safetensors.js';
import { compute } from './compute.js';

const { MultiHeadAttention, load } = headwise;

async function run() {
  // Three parts of a page at once, cold: one download, one instance (known failure A-13).
  const options = { embedDim: 4, numHeads: 4 };
  await Promise.all([1, 2, 3].map(() => MultiHeadAttention.create(options)));
  const best = await load();
  const variants = {};
  for (const variant of ['simd', 'relaxed']) {
    const runtime = await load({ variant });
    variants[variant] = { numbers: compute(headwise, runtime), target: runtime.simdTarget };
  }
  const failure = async (wasmUrl) =>
    load({ wasmUrl }).then(
      () => 'loaded',
      ({ code, message }) => `${code}: ${message}`,
    );
  const file = serializeSafetensors({ a: { data: Float32Array.of(1, 2), shape: [2] } });
  let evalError = '';
  try {
    globalThis.eval('1');
  } catch (error) {
    evalError = error.name;
  }
  return {
    variants,
    report: best.report(),
    isolated: globalThis.crossOriginIsolated,
    missing: await failure('./nothing.wasm'),
    html: await failure('./index.html'),
    tensors: Array.from(parseSafetensors(file).tensors.a.data),
    evalError,
  };
}

run().then(
  (result) => (globalThis.result = result),
  (error) => (globalThis.result = { error: `${error.stack}` }),
);
