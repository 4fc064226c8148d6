// From the import of the package, bundled as a page would have it, to the first result.
const begun = performance.now();
const { MultiHeadAttention } = await import('../../../build/bench/bundle/headwise.js');
const mha = await MultiHeadAttention.create({ embedDim: 64, numHeads: 4 });
mha.forward({ data: new Float32Array(16 * 64).fill(0.5), shape: [16, 64] });
globalThis.coldStart = performance.now() - begun;
