// Compiled in strict mode under every module resolution; never run. Each assertion fails to compile when a type is
// `any`, missing, or not what the documentation says.
import {
  HeadwiseLoadError,
  HeadwiseRangeError,
  Linear,
  MultiHeadAttention,
  type ForwardOptions,
  type ForwardResult,
  type HeadStatistics,
  type InspectResult,
  type LayerInspectOptions,
  type LoadOptions,
  type ProjectedHeads,
  type Runtime,
  type StateDict,
  type Tensor,
  type WeightedResult,
  UseAfterDisposeError,
  detectFeatures,
  load,
  scaledDotProductAttention,
} from 'headwise';
import { SafetensorsError, type Safetensors, parseSafetensors, serializeSafetensors } from 'headwise/safetensors';

type IsAny<T> = 0 extends 1 & T ? true : false;
type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const not = (..._any: false[]): void => undefined;
const yes = (..._equal: true[]): void => undefined;

export async function use(bytes: ArrayBuffer, options: LoadOptions): Promise<void> {
  const runtime = await load(options);
  const mha = await MultiHeadAttention.create({ embedDim: 8, numHeads: 2, bias: { key: false }, runtime });
  const x: Tensor = { data: new Float32Array(16), shape: [2, 8] };
  const result = mha.forward(x, { causal: 'end', needWeights: 'perHead' });
  const cross = mha.forward(x, x, undefined, { attendMask: { data: [true, false, true, true], shape: [2, 2] } });
  const file = parseSafetensors(bytes);
  const dict: StateDict = file.tensors;
  mha.loadStateDict(dict, { prefix: 'a.', layout: 'keras' });
  const linear = new Linear({ inFeatures: 8, outFeatures: 3 });
  const saved: Uint8Array = serializeSafetensors({ ...linear.stateDict(), ...mha.stateDict() });
  const heads = scaledDotProductAttention(x, x, x, { layout: 'BLHD', runtime });
  const inside = mha.withBuffers({ queryLength: 2 }, ({ query, run }) => {
    run();
    return query.length;
  });
  const looked = mha.inspect(x, { causal: true, topK: 1 });
  const crossLooked = mha.inspect(x, x, { rows: [0, 1], emptyRows: 'nan' });
  const statistics = mha.headStatistics(x, undefined, { window: [1, 1] });
  const projected = mha.projectHeads(x, { queryOffset: 1 });
  const { relaxedSimd } = detectFeatures();
  yes(
    true as Equal<typeof result, WeightedResult>,
    true as Equal<typeof cross, ForwardResult>,
    true as Equal<typeof runtime, Runtime>,
    true as Equal<typeof file, Safetensors>,
    true as Equal<typeof inside, number>,
    true as Equal<typeof relaxedSimd, boolean>,
    true as Equal<typeof looked, InspectResult>,
    true as Equal<typeof crossLooked, InspectResult>,
    true as Equal<typeof statistics, HeadStatistics>,
    true as Equal<typeof projected, ProjectedHeads>,
    true as Equal<typeof result.output.data, Float32Array>,
    true as Equal<typeof result.weights, Tensor>,
    true as Equal<typeof cross.weights, Tensor | undefined>,
    true as Equal<ReturnType<typeof runtime.report>['variant'], 'simd' | 'relaxed'>,
  );
  not(
    false as IsAny<typeof mha>,
    false as IsAny<typeof cross.output>,
    false as IsAny<typeof heads.lse>,
    false as IsAny<ForwardOptions['attnBias']>,
    false as IsAny<LayerInspectOptions['positions']>,
    false as IsAny<ConstructorParameters<typeof MultiHeadAttention>[0]>,
    false as IsAny<typeof saved>,
    false as IsAny<HeadwiseLoadError['code']>,
    false as IsAny<HeadwiseRangeError>,
    false as IsAny<SafetensorsError>,
    false as IsAny<UseAfterDisposeError['cause']> | false,
  );
  // @ts-expect-error needWeights has no true
  mha.forward(x, { needWeights: true });
  // @ts-expect-error an unknown option
  mha.forward(x, { isCausal: true });
  // @ts-expect-error a layer's heads have one layout
  mha.inspect(x, { layout: 'BLHD' });
  // @ts-expect-error a cache is refused
  mha.withBuffers({ queryLength: 1, options: { cache: mha.createCache({ capacity: 1 }) } }, () => 0);
  // @ts-expect-error floats are no mask
  mha.forward(x, { attendMask: { data: new Float32Array(4), shape: [2, 2] } });
  // @ts-expect-error a runtime is made by load() only
  new MultiHeadAttention({ embedDim: 8, numHeads: 2, runtime: {} });
  mha.dispose();
}
