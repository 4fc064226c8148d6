// The parameters of a layer on their way in or out: WASM memory for the length of one call, one piece a parameter.
import type { Core } from './core.js';
import type { RawModule } from './raw.js';
import type { ParameterViews } from './state-dict.js';
import type { Parameter } from './weight-layouts.js';

const BYTES = 4;
const ALIGNMENT = 64;

/** Calls f with a view and an offset for each parameter. No call inside f may grow the memory but the last. */
export function withParameters<Slot extends string, R>(
  core: Core,
  call: string,
  parameters: readonly Parameter<Slot>[],
  f: (views: ParameterViews<Slot>, offsets: ReadonlyMap<Slot, number>, raw: RawModule) => R,
): R {
  let bytes = 0;
  const starts = parameters.map(({ size }) => {
    const start = bytes;
    bytes += Math.ceil((size * BYTES) / ALIGNMENT) * ALIGNMENT;
    return start;
  });
  const count = (): string => `${parameters.length} parameters`;
  return core.withTemporary(call, bytes, count, (base) => {
    const raw = core.alive(call);
    const views = new Map<Slot, Float32Array>();
    const offsets = new Map<Slot, number>();
    parameters.forEach(({ slot, size }, i) => {
      const offset = base + (starts[i] as number);
      offsets.set(slot, offset);
      views.set(slot, raw.HEAPF32.subarray(offset / BYTES, offset / BYTES + size));
    });
    return f(views, offsets, raw);
  });
}
