// The names and shapes under which frameworks store the four projections. A layout only says which tensor holds which
// parameter; state-dict.ts does the work.
import type { ResolvedLayer } from './layer-options.js';
import type { WeightSlot } from './raw.js';

/** Parameters that the layer hands to the core with each call. */
export type OwnSlot = 'queryNorm' | 'keyNorm' | 'sinks';
export type ParameterSlot = WeightSlot | OwnSlot;

/** The parameters of a layer in the core's form: weights [out, in], biases [out]. Absent: the layer has none. */
export interface Parameter<Slot extends string = ParameterSlot> {
  readonly slot: Slot;
  readonly size: number;
}

/** A named tensor that holds one parameter, or several one below the other. */
export interface Entry<Slot extends string = ParameterSlot> {
  readonly name: string;
  /** Other names for the same tensor. */
  readonly aliases?: readonly string[];
  readonly shape: readonly number[];
  readonly parts: readonly Parameter<Slot>[];
  /** [inputs, outputs] seen as a matrix: transposed on the way in and out. */
  readonly transpose?: { readonly rows: number; readonly columns: number };
}

/** Ways to store the same parameters, the one stateDict() writes first. Exactly one of them is used. */
export type Group<Slot extends string = ParameterSlot> = readonly (readonly Entry<Slot>[])[];

export interface WeightLayout<Slot extends string = ParameterSlot> {
  readonly groups: readonly Group<Slot>[];
  /** Neighbours under the same prefix that are nobody's mistake. */
  readonly ignored?: readonly string[];
  /** Names that change the result, of options this layer was made without: name to option. */
  readonly refused?: Readonly<Record<string, string>>;
}

/**
 * 'pytorch': torch.nn.MultiheadAttention. 'huggingface': q_proj, k_proj, v_proj, o_proj. 'bert': self.query,
 * self.key, self.value, output.dense. 'keras': query_kernel [E, H, D] and so on, output_kernel [H, Dv, out].
 */
export type LayoutName = 'pytorch' | 'huggingface' | 'bert' | 'keras';
export const LAYOUT_NAMES = ['pytorch', 'huggingface', 'bert', 'keras'] as const satisfies readonly LayoutName[];

interface Projection {
  readonly key: 'query' | 'key' | 'value' | 'out';
  readonly inputs: number;
  readonly outputs: number;
  readonly bias: boolean;
}

function projections(l: ResolvedLayer): Record<Projection['key'], Projection> {
  const { bias } = l;
  return {
    query: { key: 'query', inputs: l.embedDim, outputs: l.numHeads * l.headDim, bias: bias.query },
    key: { key: 'key', inputs: l.kDim, outputs: l.numKvHeads * l.headDim, bias: bias.key },
    value: { key: 'value', inputs: l.vDim, outputs: l.numKvHeads * l.vHeadDim, bias: bias.value },
    out: { key: 'out', inputs: l.numHeads * l.vHeadDim, outputs: l.outDim, bias: bias.out },
  };
}

const weightPart = (p: Projection): Parameter => ({ slot: `${p.key}Weight`, size: p.inputs * p.outputs });
const biasPart = (p: Projection): Parameter => ({ slot: `${p.key}Bias`, size: p.outputs });

function matrix(name: string, p: Projection, aliases: readonly string[] = []): Entry {
  return { name, aliases, shape: [p.outputs, p.inputs], parts: [weightPart(p)] };
}
function vector(name: string, p: Projection, aliases: readonly string[] = []): Entry {
  return { name, aliases, shape: [p.outputs], parts: [biasPart(p)] };
}

/** The parameters in the core's order of slots. */
export function parameters(layer: ResolvedLayer): Parameter[] {
  const ofProjections = Object.values(projections(layer)).flatMap((p) => [
    weightPart(p),
    ...(p.bias ? [biasPart(p)] : []),
  ]);
  return [...ofProjections, ...more(layer).flatMap(({ present, entry }) => (present ? entry.parts : []))];
}

/** What a layer may have beside its projections, under the same names in every layout. */
function more(l: ResolvedLayer): { present: boolean; option: string; entry: Entry }[] {
  const one = (present: boolean, option: string, name: string, slot: ParameterSlot, shape: number[]): object => ({
    present,
    option,
    entry: { name, shape, parts: [{ slot, size: shape.reduce((a, b) => a * b, 1) }] },
  });
  return [
    one(l.addBiasKv, 'addBiasKv', 'bias_k', 'biasK', [1, 1, l.numKvHeads * l.headDim]),
    one(l.addBiasKv, 'addBiasKv', 'bias_v', 'biasV', [1, 1, l.numKvHeads * l.vHeadDim]),
    one(l.qkNorm !== undefined, 'qkNorm', 'q_norm.weight', 'queryNorm', [l.headDim]),
    one(l.qkNorm !== undefined, 'qkNorm', 'k_norm.weight', 'keyNorm', [l.headDim]),
    one(l.sinks !== undefined, 'sinks', 'sinks', 'sinks', [l.numHeads]),
  ] as { present: boolean; option: string; entry: Entry }[];
}

function pytorch(layer: ResolvedLayer): WeightLayout {
  const { query, key, value, out } = projections(layer);
  const inputs = [query, key, value];
  const separate = [matrix('q_proj_weight', query), matrix('k_proj_weight', key), matrix('v_proj_weight', value)];
  const rows = query.outputs + key.outputs + value.outputs;
  const packed: Entry = { name: 'in_proj_weight', shape: [rows, layer.embedDim], parts: inputs.map(weightPart) };
  // PyTorch packs when, and only when, all three have the width of the queries.
  const oneWidth = layer.kDim === layer.embedDim && layer.vDim === layer.embedDim;
  const groups: Group[] = [oneWidth ? [[packed], separate] : [separate]];
  const withBias = inputs.filter((p) => p.bias);
  // PyTorch has all three biases or none; a layer with some of them has names of the same make.
  const biases = withBias.map((p) => vector(`${p.key[0]}_proj_bias`, p));
  if (withBias.length === 3) {
    groups.push([[{ name: 'in_proj_bias', shape: [rows], parts: withBias.map(biasPart) }], biases]);
  } else if (withBias.length > 0) {
    groups.push([biases]);
  }
  groups.push([[matrix('out_proj.weight', out)]]);
  if (out.bias) groups.push([[vector('out_proj.bias', out)]]);
  return { groups };
}

function named(
  layer: ResolvedLayer,
  names: Record<Projection['key'], readonly [string, ...string[]]>,
  ignored: readonly string[] = [],
): WeightLayout {
  const groups: Group[] = [];
  for (const p of Object.values(projections(layer))) {
    const [name, ...aliases] = names[p.key];
    const suffixed = (suffix: string): string[] => aliases.map((alias) => alias + suffix);
    groups.push([[matrix(`${name}.weight`, p, suffixed('.weight'))]]);
    if (p.bias) groups.push([[vector(`${name}.bias`, p, suffixed('.bias'))]]);
  }
  return { groups, ignored };
}

function keras(layer: ResolvedLayer): WeightLayout {
  const { query, key, value, out } = projections(layer);
  const { numHeads, numKvHeads, headDim, vHeadDim } = layer;
  const groups: Group[] = [];
  const add = (name: string, p: Projection, shape: number[], biasShape: number[]): void => {
    const transpose = { rows: p.inputs, columns: p.outputs };
    groups.push([[{ name: `${name}_kernel`, shape, parts: [weightPart(p)], transpose }]]);
    if (p.bias) groups.push([[{ name: `${name}_bias`, shape: biasShape, parts: [biasPart(p)] }]]);
  };
  add('query', query, [query.inputs, numHeads, headDim], [numHeads, headDim]);
  add('key', key, [key.inputs, numKvHeads, headDim], [numKvHeads, headDim]);
  add('value', value, [value.inputs, numKvHeads, vHeadDim], [numKvHeads, vHeadDim]);
  add('output', out, [numHeads, vHeadDim, out.outputs], [out.outputs]);
  return { groups };
}

export function weightLayout(name: LayoutName, layer: ResolvedLayer): WeightLayout {
  const layout = projectionLayout(name, layer);
  const groups = [...layout.groups];
  const refused: Record<string, string> = {};
  for (const { present, option, entry } of more(layer)) {
    if (present) groups.push([[entry]]);
    else refused[entry.name] = option;
  }
  return { ...layout, groups, refused };
}

function projectionLayout(name: LayoutName, layer: ResolvedLayer): WeightLayout {
  switch (name) {
    case 'pytorch':
      return pytorch(layer);
    case 'huggingface':
      return named(layer, { query: ['q_proj'], key: ['k_proj'], value: ['v_proj'], out: ['o_proj', 'out_proj'] });
    case 'bert':
      return named(layer, { query: ['self.query'], key: ['self.key'], value: ['self.value'], out: ['output.dense'] }, [
        'output.LayerNorm.weight',
        'output.LayerNorm.bias',
        'output.LayerNorm.gamma',
        'output.LayerNorm.beta',
      ]);
    case 'keras':
      return keras(layer);
  }
}
