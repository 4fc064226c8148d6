// Known failure A-01's layer: two heads of width 1, identity projections.
import { MultiHeadAttention } from './headwise/web/dist/index.js';

export async function attend() {
  const mha = await MultiHeadAttention.create({ embedDim: 2, numHeads: 2, bias: false, scale: 1 });
  const identity = new Float32Array([1, 0, 0, 1]);
  mha.loadStateDict({
    in_proj_weight: { data: new Float32Array([...identity, ...identity, ...identity]), shape: [6, 2] },
    'out_proj.weight': { data: identity, shape: [2, 2] },
  });
  const { weights } = mha.forward({ data: new Float32Array([1, 0, 0, 2]), shape: [2, 2] }, { needWeights: 'perHead' });
  mha.dispose();
  return [...weights.data];
}
