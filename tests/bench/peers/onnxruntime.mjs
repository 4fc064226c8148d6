// onnxruntime-web, the wasm execution provider.
import { ONNX_GRAPHS } from './onnx-graphs.mjs';

const DIST = './node_modules/onnxruntime-web/dist/';

export async function load({ isPage, threads }) {
  const ort = await import(`${DIST}${isPage ? 'ort.wasm.min.mjs' : 'ort.node.min.mjs'}`);
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = 'error';
  if (isPage) ort.env.wasm.wasmPaths = new URL(DIST, import.meta.url).href;
  return {
    variants: ({ kind }) => Object.keys(ONNX_GRAPHS[kind]),
    async open(w, inputs, variant) {
      const { model, feeds, toHeadsFirst } = ONNX_GRAPHS[w.kind][variant](w, inputs);
      const session = await ort.InferenceSession.create(model, { executionProviders: ['wasm'] });
      return {
        // Tensors are views of the caller's arrays; the copies are made in run().
        async run() {
          const given = Object.fromEntries(Object.entries(feeds)
            .map(([name, [data, dims]]) => [name, new ort.Tensor('float32', data, dims)]));
          return (await session.run(given)).y.data;
        },
        toHeadsFirst,
        close: () => session.release(),
      };
    },
  };
}
