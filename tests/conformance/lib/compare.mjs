// The tolerance rule: |got - want| <= tol_abs + tol_rel * |want|, NaN exactly where NaN is wanted, infinities equal.
import { sameShape, shapeText } from './tensor.mjs';

/** 0 to 1: within what is allowed, and how much of it is used up; above 1: off. */
export function excess(got, want, tolerance) {
  if (Number.isNaN(want)) return Number.isNaN(got) ? 0 : Infinity;
  if (!Number.isFinite(want)) return got === want ? 0 : Infinity;
  if (!Number.isFinite(got)) return Infinity;
  const difference = Math.abs(got - want);
  if (difference === 0) return 0;
  const allowed = tolerance.abs + tolerance.rel * Math.abs(want);
  // The quotient may round to either side of 1; the rule itself decides.
  return difference <= allowed ? Math.min(1, difference / allowed)
    : Math.max(1 + Number.EPSILON, difference / allowed);
}

function indexText(flat, shape) {
  const index = [];
  for (let axis = shape.length - 1; axis >= 0; --axis) {
    index.unshift(flat % shape[axis]);
    flat = Math.floor(flat / shape[axis]);
  }
  return shapeText(index);
}

/** Compares a result with what is wanted: { worst } (the largest excess), with `problem` when it is not within. */
export function compare(got, want, tolerance) {
  if (!sameShape(got.shape, want.shape)) {
    return { worst: Infinity, problem: `has shape ${shapeText(got.shape)}, want ${shapeText(want.shape)}` };
  }
  if (got.data.length !== want.data.length) {
    return { worst: Infinity, problem: `holds ${got.data.length} elements, want ${want.data.length}` };
  }
  let worst = 0;
  let at = -1;
  let off = 0;
  for (let i = 0; i < want.data.length; ++i) {
    // 1 where the source leaves open what stands there.
    if (got.unspecified?.[i]) continue;
    const e = excess(Number(got.data[i]), Number(want.data[i]), tolerance);
    if (e > 1) off += 1;
    if (e > worst) {
      worst = e;
      at = i;
    }
  }
  if (off === 0) return { worst };
  const [g, w] = [Number(got.data[at]), Number(want.data[at])];
  const allowed = tolerance.abs + tolerance.rel * Math.abs(w);
  return {
    worst,
    problem: `${off} of ${want.data.length} elements off, worst at ${indexText(at, want.shape)}: got ${g}, want ${w}, `
      + (Number.isFinite(w) ? `allowed ±${allowed.toPrecision(3)}` : 'allowed exactly that'),
  };
}
