// Rearranging tensors { data, shape }: all that adapters may do to inputs and outputs. Nothing here multiplies,
// sums over an axis or takes an exponential.

export const sizeOf = (shape) => shape.reduce((product, n) => product * n, 1);

export function sameShape(a, b) {
  return a.length === b.length && a.every((n, i) => n === b[i]);
}

export const shapeText = (shape) => `[${shape.join(',')}]`;

export function reshape(tensor, shape) {
  if (sizeOf(shape) !== tensor.data.length) {
    throw new Error(`cannot reshape ${shapeText(tensor.shape)} to ${shapeText(shape)}`);
  }
  return { data: tensor.data, shape };
}

/** Calls visit(offset in the source) for every element of `shape`, in row-major order. */
function walk(shape, strides, visit) {
  const rank = shape.length;
  if (sizeOf(shape) === 0) return;
  const index = new Array(rank).fill(0);
  let offset = 0;
  for (;;) {
    visit(offset);
    let axis = rank - 1;
    for (; axis >= 0; --axis) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

function stridesOf(shape) {
  const strides = new Array(shape.length);
  let step = 1;
  for (let i = shape.length - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

function gather(tensor, shape, strides) {
  const data = new tensor.data.constructor(sizeOf(shape));
  let n = 0;
  walk(shape, strides, (offset) => {
    data[n++] = tensor.data[offset];
  });
  return { data, shape };
}

/** Axis i of the result is axis order[i] of the source. */
export function permute(tensor, order) {
  const strides = stridesOf(tensor.shape);
  return gather(tensor, order.map((axis) => tensor.shape[axis]), order.map((axis) => strides[axis]));
}

/** Repeats axes of size 1 until the tensor has `shape`, which has the same rank. */
export function broadcastTo(tensor, shape, name = 'tensor') {
  const strides = stridesOf(tensor.shape);
  const fits = tensor.shape.length === shape.length
    && shape.every((n, i) => tensor.shape[i] === n || tensor.shape[i] === 1);
  if (!fits) throw new Error(`${name} ${shapeText(tensor.shape)} does not broadcast to ${shapeText(shape)}`);
  return gather(tensor, shape, strides.map((stride, i) => tensor.shape[i] === 1 ? 0 : stride));
}

/** Makes the last axis `size` long, filling up with `value`. */
export function extendLast(tensor, size, value) {
  const had = tensor.shape.at(-1);
  const rows = sizeOf(tensor.shape.slice(0, -1));
  const data = new tensor.data.constructor(rows * size).fill(value);
  for (let row = 0; row < rows; ++row) {
    data.set(tensor.data.subarray(row * had, (row + 1) * had), row * size);
  }
  return { data, shape: [...tensor.shape.slice(0, -1), size] };
}

/** Puts axes of size 1 in front until the rank is 4. */
export function toRank4(tensor) {
  return { data: tensor.data, shape: [...new Array(4 - tensor.shape.length).fill(1), ...tensor.shape] };
}

/** 0 becomes 1, everything else 0: the other polarity of a mask. */
export function invert(tensor) {
  return { data: tensor.data.map((value) => value ? 0 : 1), shape: tensor.shape };
}

/** The sum of two float masks of one rank; sizes of 1 repeat. */
export function addMasks(a, b) {
  const shape = a.shape.map((n, i) => n === 1 ? b.shape[i] : n);
  const [x, y] = [broadcastTo(a, shape, 'mask'), broadcastTo(b, shape, 'mask')];
  return { data: x.data.map((value, i) => value + y.data[i]), shape };
}

/** The weight of a projection that changes nothing. */
export function identity(size) {
  const data = new Float32Array(size * size);
  for (let i = 0; i < size; ++i) data[i * size + i] = 1;
  return { data, shape: [size, size] };
}

/** Columns [begin, end) of the last axis. */
export function lastColumns(tensor, begin, end) {
  const width = tensor.shape.at(-1);
  const rows = sizeOf(tensor.shape.slice(0, -1));
  const data = new tensor.data.constructor(rows * (end - begin));
  for (let row = 0; row < rows; ++row) {
    data.set(tensor.data.subarray(row * width + begin, row * width + end), row * (end - begin));
  }
  return { data, shape: [...tensor.shape.slice(0, -1), end - begin] };
}
