// From the import of the package to the first result, in a fresh process.
const begun = performance.now();
const { MultiHeadAttention } = await import('headwise');
const mha = await MultiHeadAttention.create({ embedDim: 64, numHeads: 4 });
mha.forward({ data: new Float32Array(16 * 64).fill(0.5), shape: [16, 64] });
console.log(JSON.stringify({ ms: performance.now() - begun }));
