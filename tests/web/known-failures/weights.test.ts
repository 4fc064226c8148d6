// What others got wrong with weights and layouts of the layer: weights per head, unbatched input.
import { MultiHeadAttention, type Runtime, type Tensor, load } from 'headwise';
import { beforeAll, describe, expect, test } from 'vitest';
import { Random, VARIANTS, expectSameBits } from '../helpers.js';
import { expectNear, floats, sigmoid } from '../lists.js';

describe.each(VARIANTS)('%s build', (variant) => {
  let runtime: Runtime;
  beforeAll(async () => {
    runtime = await load({ variant });
  });

  test('weights per head and averaged, and their shapes (A-01)', () => {
    const mha = new MultiHeadAttention({ embedDim: 2, numHeads: 2, scale: 1, bias: false, runtime });
    const identity = [1, 0, 0, 1];
    mha.loadStateDict({
      in_proj_weight: floats([6, 2], ...identity, ...identity, ...identity),
      'out_proj.weight': floats([2, 2], ...identity),
    });
    const x = floats([2, 2], 1, 0, 0, 2);
    // 0.731059 .268941; 0.5; 0.017986 .982014.
    const [one, four] = [sigmoid(1), sigmoid(4)];
    const perHead = mha.forward(x, { needWeights: 'perHead' }).weights;
    expect(perHead.shape).toEqual([2, 2, 2]);
    expectNear(perHead.data, [one, 1 - one, 0.5, 0.5, 0.5, 0.5, 1 - four, four]);
    const averaged = mha.forward(x, { needWeights: 'averaged' }).weights;
    expect(averaged.shape).toEqual([2, 2]);
    // 0.615529 .384471; .258993 .741007.
    expectNear(averaged.data, [(one + 0.5) / 2, (1.5 - one) / 2, (1.5 - four) / 2, (four + 0.5) / 2]);
  });

  test('unbatched input gives unbatched output, the bits of batch 1 (A-04)', () => {
    const random = new Random(4);
    const mha = new MultiHeadAttention({ embedDim: 12, numHeads: 4, numKvHeads: 2, runtime });
    const [x, y] = [random.tensor(5, 12), random.tensor(7, 12)];
    const batch = ({ data, shape }: Tensor): Tensor => ({ data, shape: [1, ...shape] });
    const one = mha.forward(x, y);
    const many = mha.forward(batch(x), batch(y));
    expect([one.output.shape, many.output.shape]).toEqual([
      [5, 12],
      [1, 5, 12],
    ]);
    expectSameBits(one.output.data, many.output.data);
  });
});
