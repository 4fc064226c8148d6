// What is measured, and how its work is counted.
//
// kind   layer      x [B, L, E] → projections, attention, output projection
//        attention  query, key, value [B, H, L, D] → attention alone
//        decode     one token through the layer, its cache then holds `cached` tokens, this one included
export const WORKLOADS = [
  { id: 'W1', title: 'whole layer', kind: 'layer', batch: 1, length: 128, embedDim: 768, numHeads: 12 },
  { id: 'W2', title: 'whole layer', kind: 'layer', batch: 1, length: 512, embedDim: 768, numHeads: 12 },
  { id: 'W3', title: 'whole layer', kind: 'layer', batch: 1, length: 2048, embedDim: 768, numHeads: 12 },
  { id: 'W4', title: 'whole layer, D = 32', kind: 'layer', batch: 1, length: 128, embedDim: 384, numHeads: 12 },
  {
    id: 'W5', title: 'whole layer, causal', kind: 'layer', batch: 1, length: 1024, embedDim: 768, numHeads: 12,
    causal: true,
  },
  { id: 'W6a', title: 'attention alone', kind: 'attention', batch: 1, length: 512, embedDim: 768, numHeads: 12 },
  { id: 'W6b', title: 'attention alone', kind: 'attention', batch: 1, length: 4096, embedDim: 768, numHeads: 12 },
  {
    id: 'W7a', title: 'decode, 1024 cached', kind: 'decode', batch: 1, length: 1, embedDim: 768, numHeads: 12,
    cached: 1024,
  },
  {
    id: 'W7b', title: 'decode, 4096 cached', kind: 'decode', batch: 1, length: 1, embedDim: 768, numHeads: 12,
    cached: 4096,
  },
  { id: 'W8', title: 'tiny layer', kind: 'layer', batch: 1, length: 16, embedDim: 64, numHeads: 4 },
  { id: 'W9', title: 'whole layer, batch 8', kind: 'layer', batch: 8, length: 128, embedDim: 768, numHeads: 12 },
];

export const workload = (id) => {
  const found = WORKLOADS.find((candidate) => candidate.id === id);
  if (!found) throw new Error(`there is no workload ${id}: use one of ${WORKLOADS.map((w) => w.id).join(', ')}`);
  return found;
};

/** S. */
export const keyLength = ({ cached, length }) => cached ?? length;

/** Floating-point operations of the matrix products, 2 m n k each; what causal hides is counted, too. */
export function flop(w) {
  const projections = w.kind === 'attention' ? 0 : 4 * 2 * w.batch * w.length * w.embedDim ** 2;
  return projections + 2 * 2 * w.batch * w.length * keyLength(w) * w.embedDim;
}

/** Bytes a decoding step must read: four weight matrices, and the keys and values. */
export const decodeBytes = (w) => 4 * (4 * w.embedDim ** 2 + 2 * w.cached * w.embedDim);
