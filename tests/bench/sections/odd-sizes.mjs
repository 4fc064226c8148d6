// Sizes that no vector divides, beside the neighbouring multiple of 8: time per element.
import { makeInputs } from '../inputs.mjs';
import { interleave } from '../measure.mjs';
import { variantsOf } from '../ours.mjs';

const [HEADS, LENGTH, WIDTH] = [4, 64, 64];
const [MAX_WIDTH, MAX_LENGTH] = [300, 70];

const neighbour = (size) => Math.max(8, 8 * Math.round(size / 8));

function task({ headwise, runtime }, length, width) {
  const inputs = makeInputs({ kind: 'attention', batch: 1, length, embedDim: HEADS * width, numHeads: HEADS });
  const shape = [1, HEADS, length, width];
  const [query, key, value] = ['query', 'key', 'value'].map((name) => ({ data: inputs[name], shape }));
  return () => headwise.scaledDotProductAttention(query, key, value, { runtime });
}

/** From here on a size is measured again: a busy machine makes outliers, and a slow size stays slow. */
const SUSPICIOUS = 1.3;
const LOOKS = 3;

/** Each size in turns with its neighbour: { size, near, ratio } of time per element. */
function against(env, sizes, of) {
  return sizes.filter((size) => size !== neighbour(size)).map((size) => {
    const near = neighbour(size);
    let ratio = Infinity;
    for (let look = 0; look < LOOKS && ratio > SUSPICIOUS; look += 1) {
      const times = interleave({ odd: of(size), near: of(near) }, env.effort);
      ratio = Math.min(ratio, times.odd / size / (times.near / near));
    }
    return { size, near, ratio };
  });
}

const upTo = (n) => Array.from({ length: n }, (_, i) => i + 1);

/** { build: { width: [{ size, near, ratio }, …], length: […] } }: D at L = S = 64, and L = S at D = 64, H = 4. */
export async function oddSizes(env) {
  const result = {};
  const { turns, turn, warmUp } = env.effort;
  // Hundreds of sizes: little time for each.
  const effort = { turns: Math.min(turns, 9), turn: Math.min(turn, 4), warmUp: Math.min(warmUp, 10) };
  const [widths, lengths] = env.quick ? [[9], [9]] : [upTo(MAX_WIDTH), upTo(MAX_LENGTH)];
  for (const variant of variantsOf(env.headwise)) {
    const inside = { ...env, effort, runtime: await env.headwise.load({ variant }) };
    result[variant] = {
      width: against(inside, widths, (width) => task(inside, LENGTH, width)),
      length: against(inside, lengths, (length) => task(inside, length, WIDTH)),
    };
  }
  return result;
}
