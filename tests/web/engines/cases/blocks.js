// Parts of tensors, cut and joined along an axis. The type of the data stays.
import { sizeOf } from './random.js';

/** A tensor as `outer` blocks of `size` times `inner` elements around the axis. */
function around({ shape }, axis) {
  return { outer: sizeOf(shape.slice(0, axis)), size: shape[axis], inner: sizeOf(shape.slice(axis + 1)) };
}

const resized = (shape, axis, size) => shape.map((n, i) => (i === axis ? size : n));

/** Elements [begin, end) of an axis. */
export function slice(tensor, axis, begin, end) {
  const { outer, size, inner } = around(tensor, axis);
  const length = (end - begin) * inner;
  const data = new tensor.data.constructor(outer * length);
  for (let i = 0; i < outer; ++i) {
    const from = (i * size + begin) * inner;
    data.set(tensor.data.subarray(from, from + length), i * length);
  }
  return { data, shape: resized(tensor.shape, axis, end - begin) };
}

/** Entry b of the batch, as a batch of one. */
export const entry = (tensor, b) => slice(tensor, 0, b, b + 1);

/** Tensors one behind the other along an axis. */
export function join(tensors, axis) {
  const total = tensors.reduce((sum, { shape }) => sum + shape[axis], 0);
  const { outer, inner } = around(tensors[0], axis);
  const data = new tensors[0].data.constructor(outer * total * inner);
  let begin = 0;
  for (const tensor of tensors) {
    const length = tensor.shape[axis] * inner;
    for (let i = 0; i < outer; ++i) {
      data.set(tensor.data.subarray(i * length, (i + 1) * length), i * total * inner + begin);
    }
    begin += length;
  }
  return { data, shape: resized(tensors[0].shape, axis, total) };
}

/** A tensor like this one but for the size of an axis, each element given by fill(). */
function like({ data, shape }, axis, size, fill) {
  const wanted = resized(shape, axis, size);
  const filled = new data.constructor(sizeOf(wanted));
  for (let i = 0; i < filled.length; ++i) filled[i] = fill();
  return { data: filled, shape: wanted };
}

/** `before` and `after` more elements of an axis, each given by fill(). */
export const pad = (tensor, axis, before, after, fill) =>
  join([like(tensor, axis, before, fill), tensor, like(tensor, axis, after, fill)], axis);

/** The batch whose entry `place` is `tensor`, a batch of one; the others are given by fill(). */
export const among = (tensor, place, count, fill) =>
  join([like(tensor, 0, place, fill), tensor, like(tensor, 0, count - 1 - place, fill)], 0);

/** Lengths that add up to `total`, each from 1 to `most`. */
export function cuts(random, total, most) {
  const steps = [];
  for (let left = total; left > 0; left -= steps[steps.length - 1]) steps.push(Math.min(left, random.between(1, most)));
  return steps;
}
