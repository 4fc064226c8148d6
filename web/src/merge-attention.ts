// Joining attention over disjoint sets of keys, computed apart.
import { checkOptions } from './arguments.js';
import { describe, showShape } from './describe.js';
import { rangeError, typeError } from './errors.js';
import { type Runtime, coreFor } from './runtime.js';
import { type Tensor, type TensorInput, product, readTensor } from './tensor.js';
import { checkedView } from './typed-arrays.js';

/** What an attention call with returnLse gives. */
export interface AttentionPart {
  /** [..., L, Dv]. */
  readonly output: Tensor;
  /** [..., L]: the same axes without the last. */
  readonly lse?: Tensor | undefined;
}

export interface MergeAttentionOptions {
  /** Default: the first one that was loaded and is alive. */
  readonly runtime?: Runtime | undefined;
}

const CALL = 'mergeAttention()';
const KNOWN: ReadonlySet<string> = new Set(['runtime'] satisfies (keyof MergeAttentionOptions)[]);
const MAX_PARTS = 256;

/**
 * lse = log Σ exp(lseₚ), output = Σ exp(lseₚ - lse) · outputₚ: what attention over all keys at once gives, up to
 * rounding. A part whose lse is -Infinity saw nothing and changes nothing. Outputs are of layout 'BHLD'.
 */
export function mergeAttention(
  parts: readonly AttentionPart[],
  options?: MergeAttentionOptions,
): { output: Tensor; lse: Tensor } {
  const { runtime } = checkOptions<MergeAttentionOptions>(CALL, options, KNOWN);
  if (!Array.isArray(parts)) {
    const wanted = 'an Array of { output, lse }';
    const wayOut = 'give what attention with returnLse: true returned';
    throw typeError({ call: CALL, argument: 'parts', got: describe(parts), wanted, wayOut });
  }
  const count = parts.length;
  if (count < 1 || count > MAX_PARTS) {
    const wanted = `1 to ${MAX_PARTS} long`;
    const wayOut = 'merge many parts in groups';
    throw rangeError({ call: CALL, argument: 'parts', got: `${count} long`, wanted, wayOut });
  }
  const list: PartInput[] = [];
  for (let i = 0; i < count; ++i) list.push(readPart(parts[i], i, list[0]?.output.shape));
  const { output: first, lse: firstLse } = list[0] as PartInput;
  const rows = product(firstLse.shape);
  const cols = first.shape.at(-1) as number;
  const core = coreFor(CALL, runtime);

  return core.exclusively(CALL, () => {
    core.begin();
    const offsets = core.place(16 * list.length);
    const places = list.map(({ output, lse }) => [core.place(4 * output.length), core.place(4 * lse.length)]);
    const [outputAt, lseAt] = [core.place(4 * rows * cols), core.place(4 * rows)];
    const base = core.commit(CALL, () => `${list.length} parts of ${rows} x ${cols}`);
    const { HEAPF32, HEAPF64 } = core.alive(CALL);
    list.forEach(({ output, lse }, i) => {
      const [o, l] = (places[i] as [number, number]).map((at) => base + at) as [number, number];
      const write = (name: string, { data, length }: TensorInput, at: number): void =>
        HEAPF32.set(checkedView(CALL, `parts[${i}].${name}.data`, Float32Array, data, length), at / 4);
      write('output', output, o);
      write('lse', lse, l);
      HEAPF64[(base + offsets) / 8 + 2 * i] = o;
      HEAPF64[(base + offsets) / 8 + 2 * i + 1] = l;
    });
    const raw = core.alive(CALL);
    const merge = (): number =>
      raw.mergeAttention(base + offsets, list.length, rows, cols, base + outputAt, base + lseAt);
    if (rows > 0) core.check(CALL, merge());
    const f32 = raw.HEAPF32;
    const copy = (at: number, size: number): Float32Array => f32.slice((base + at) / 4, (base + at) / 4 + size);
    return {
      output: { data: copy(outputAt, rows * cols), shape: first.shape },
      lse: { data: copy(lseAt, rows), shape: firstLse.shape },
    };
  });
}

interface PartInput {
  readonly output: TensorInput;
  readonly lse: TensorInput;
}

const sameShape = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((size, i) => size === b[i]);

function readPart(part: unknown, i: number, firstShape: readonly number[] | undefined): PartInput {
  const name = `parts[${i}]`;
  if (typeof part !== 'object' || part === null) {
    const wayOut = 'give what attention with returnLse: true returned';
    throw typeError({ call: CALL, argument: name, got: describe(part), wanted: '{ output, lse }', wayOut });
  }
  const { output: givenOutput, lse: givenLse } = part as Partial<AttentionPart>;
  const output = readTensor(CALL, `${name}.output`, givenOutput);
  if (givenLse === undefined) {
    const wayOut = 'call attention with returnLse: true';
    throw typeError({ call: CALL, argument: `${name}.lse`, got: 'undefined', wanted: 'a tensor', wayOut });
  }
  const lse = readTensor(CALL, `${name}.lse`, givenLse);
  const wrong = (argument: string, shape: readonly number[], wanted: string): never => {
    const wayOut = "parts are of the same queries, in layout 'BHLD'";
    throw rangeError({ call: CALL, argument, got: showShape(shape), wanted, wayOut }, 'wrong-shape');
  };
  if (output.shape.length < 1) wrong(`${name}.output.shape`, output.shape, '[..., L, Dv]');
  if (firstShape !== undefined && !sameShape(output.shape, firstShape)) {
    wrong(`${name}.output.shape`, output.shape, `${showShape(firstShape)}, as that of parts[0]`);
  }
  const rows = output.shape.slice(0, -1);
  if (!sameShape(lse.shape, rows)) {
    wrong(`${name}.lse.shape`, lse.shape, `${showShape(rows)}, output.shape without its last size`);
  }
  return { output, lse };
}
