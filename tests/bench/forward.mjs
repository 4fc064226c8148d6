// GFLOP/s of one layer's forward pass beside the engine's own peak, in the Node that runs this file:
//   node tests/bench/forward.mjs           (npm run bench runs it in Node 24)
// Counted are the products only, 2 m n k each: four projections, Q Kᵀ and weights · V. Copies in and out count as time.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MultiHeadAttention, detectFeatures, load } from 'headwise';
import { BUILD } from '../../cpp/toolchain/paths.mjs';
import { interleave } from './measure.mjs';

const [batch, length, embedDim, numHeads] = [1, 128, 768, 12];
const FLOP = batch * (8 * length * embedDim ** 2 + 4 * length ** 2 * embedDim);
const PEAK_ROUNDS = 200_000;
const PEAK_FLOP = PEAK_ROUNDS * 96; // 12 vectors × 4 lanes × (multiply + add)

async function peakOf(variant) {
  const bytes = readFileSync(join(BUILD, `wasm-${variant}`, 'tests/bench/headwise_peak.wasm'));
  const { instance } = await WebAssembly.instantiate(bytes, {});
  return () => instance.exports.Peak(PEAK_ROUNDS);
}

async function layerOf(variant) {
  const runtime = await load({ variant });
  const mha = new MultiHeadAttention({ embedDim, numHeads, runtime });
  const data = Float32Array.from({ length: batch * length * embedDim }, (_, i) => Math.sin(i * 0.37));
  const x = { data, shape: [batch, length, embedDim] };
  return () => mha.forward(x);
}

const variants = detectFeatures().relaxedSimd ? ['simd', 'relaxed'] : ['simd'];
const tasks = {};
for (const variant of variants) {
  tasks[`peak ${variant}`] = await peakOf(variant);
  tasks[`forward ${variant}`] = await layerOf(variant);
}
const times = interleave(tasks);

// A fused multiply-add is the most the engine can do in one instruction, so it is the peak for both builds.
const peak = Math.max(...variants.map((variant) => PEAK_FLOP / times[`peak ${variant}`] / 1e6));
console.log(`Node ${process.version}, L=${length}, E=${embedDim}, H=${numHeads}, one thread`);
console.log(`peak of the engine: ${peak.toFixed(1)} GFLOP/s`);
for (const variant of variants) {
  const ms = times[`forward ${variant}`];
  const rate = FLOP / ms / 1e6;
  console.log(`forward, ${variant}: ${ms.toFixed(2)} ms, ${rate.toFixed(1)} GFLOP/s, ` +
    `${((100 * rate) / peak).toFixed(0)} % of the peak`);
}
