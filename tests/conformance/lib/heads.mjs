// Tensors with heads, as cases bring them: of rank 4 [B, H, L, D], or with the heads side by side, [B, L, H*D].
import { CaseError } from './case-file.mjs';
import { lastColumns, permute, reshape, shapeText } from './tensor.mjs';

/** A tensor of rank 4 in `layout`, with its sizes by name. */
export function heads(tensor, layout) {
  const [batch, a, b, cols] = tensor.shape;
  const [count, rows] = layout === 'BHLD' ? [a, b] : [b, a];
  return { tensor, layout, batch, heads: count, rows, cols };
}

/** Of rank 3 or 4; rank 3 needs the number of heads, which rank 4 must have if it is given. */
export function readHeads(name, tensor, count, source) {
  const { shape } = tensor;
  if (shape.length === 4) {
    if (count !== undefined && count !== shape[1]) {
      throw new CaseError(`${source} is ${count}, but ${name} has ${shape[1]} heads`);
    }
    return heads(tensor, 'BHLD');
  }
  if (!(count > 0) || shape.length !== 3 || shape[2] % count !== 0) {
    throw new CaseError(`${name} ${shapeText(shape)} does not divide into ${source}=${count} heads`);
  }
  return heads(reshape(tensor, [shape[0], shape[1], count, shape[2] / count]), 'BLHD');
}

/** Part `part` of [B, L, H, parts, D]. */
export function packedPart(tensor, part) {
  const [batch, rows, count, parts, cols] = tensor.shape;
  const flat = lastColumns(reshape(tensor, [batch, rows, count, parts * cols]), part * cols, (part + 1) * cols);
  return heads(flat, 'BLHD');
}

/** Heads [begin, end) of those that lie side by side. */
export function selectHeads({ tensor, batch, rows, heads: count, cols }, begin, end) {
  const flat = lastColumns(reshape(tensor, [batch, rows, count * cols]), begin * cols, end * cols);
  return heads(reshape(flat, [batch, rows, end - begin, cols]), 'BLHD');
}

export function headsFirst(x) {
  return x.layout === 'BHLD' ? x.tensor : permute(x.tensor, [0, 2, 1, 3]);
}

/** [B, L, H*D]. */
export function sideBySide(x) {
  const tensor = x.layout === 'BLHD' ? x.tensor : permute(x.tensor, [0, 2, 1, 3]);
  return reshape(tensor, [x.batch, x.rows, x.heads * x.cols]);
}
