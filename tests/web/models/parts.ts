// Weights by name, and the package's Linear with given ones.
import { Linear, type Runtime, type Tensor } from 'headwise';

export type Tensors = ReadonlyMap<string, Tensor>;

export function tensorNamed(tensors: Tensors, name: string): Tensor {
  const tensor = tensors.get(name);
  if (tensor === undefined) throw new RangeError(`there is no tensor ${name}`);
  return tensor;
}

export function linearOf(runtime: Runtime, weight: Tensor, bias?: Tensor): Linear {
  const [outFeatures, inFeatures] = weight.shape as [number, number];
  const linear = new Linear({ inFeatures, outFeatures, bias: bias !== undefined, runtime });
  linear.loadStateDict(bias === undefined ? { weight } : { weight, bias });
  return linear;
}

/** The linear layer whose variables are `name` + weight and bias, with the separator of its file before these. */
export const linearNamed = (runtime: Runtime, tensors: Tensors, name: string): Linear =>
  linearOf(runtime, tensorNamed(tensors, `${name}weight`), tensorNamed(tensors, `${name}bias`));
