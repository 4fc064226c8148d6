// The part of the smoke test that does not care how the package was imported.
'use strict';

exports.check = async function check(headwise, safetensors) {
  const variants = headwise.detectFeatures().relaxedSimd ? ['simd', 'relaxed'] : ['simd'];
  const results = {};
  const best = await headwise.load();
  for (const variant of variants) {
    const runtime = await headwise.load({ variant });
    const mha = new headwise.MultiHeadAttention({ embedDim: 2, numHeads: 2, bias: false, scale: 1, runtime });
    const eye = [1, 0, 0, 1];
    const file = safetensors.serializeSafetensors({
      in_proj_weight: { data: Float32Array.from([...eye, ...eye, ...eye]), shape: [6, 2] },
      'out_proj.weight': { data: Float32Array.from(eye), shape: [2, 2] },
    });
    mha.loadStateDict(safetensors.parseSafetensors(file).tensors);
    const x = { data: Float32Array.of(1, 0, 0, 2), shape: [2, 2] };
    const { output, weights } = mha.forward(x, { needWeights: 'perHead' });
    let error = '';
    try {
      mha.forward({ data: new Float32Array(3), shape: [1, 3] });
    } catch (thrown) {
      if (headwise.isHeadwiseError(thrown) && thrown instanceof RangeError) error = thrown.code;
    }
    mha.dispose();
    results[variant] = {
      output: Array.from(output.data),
      weights: Array.from(weights.data),
      simdTarget: runtime.simdTarget,
      runtimeVersion: runtime.version,
      error,
    };
  }
  return { results, best: best.variant, names: [Object.keys(headwise).sort(), Object.keys(safetensors).sort()] };
};
