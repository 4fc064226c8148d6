// Kinds `onnx_rotary` and `ort_rotary`: rotary embedding from tables of cosines and sines, a row of which belongs to a
// position.
import { CaseError } from './case-file.mjs';
import { heads, headsFirst, readHeads, sideBySide } from './heads.mjs';
import { lastColumns, reshape, shapeText, sizeOf } from './tensor.mjs';

export function runRotary(c, api) {
  const onnx = c.kind === 'onnx_rotary';
  const ids = c.input('position_ids', { dtypes: ['I64', 'I32'], ranks: onnx ? [2] : [0, 1, 2] });
  if (!ids && !onnx) throw new CaseError('in.position_ids is missing');
  const ranks = [ids ? 2 : 3];
  const [cos, sin] = ['cos_cache', 'sin_cache'].map((name) => c.requiredInput(name, { ranks }));
  const dim = c.integer('rotary_embedding_dim', 0);
  if (dim < 0) throw new CaseError('attr.rotary_embedding_dim is negative');
  const x = readInput(c, onnx ? 'X' : 'input', dim, cos.shape.at(-1), onnx);
  const turned = turn(x, {
    // A row for every row of x where there are no positions.
    cos: rowsOf(cos), sin: rowsOf(sin), pairs: (dim || x.cols) / 2,
    interleaved: c.flag('interleaved', false), ...placeOf(ids, x, cos.shape),
  }, api);
  return { [onnx ? 'Y' : 'output']: x.layout === 'BLHD' ? sideBySide(turned) : headsFirst(turned) };
}

/**
 * x of heads(), its first 2 * pairs elements turned by the rows of `positions` [B, L], or of `offset` and those behind
 * it. Of wider tables the first columns are taken.
 */
export function turn(x, { cos, sin, pairs, interleaved, ...where }, api) {
  if (String(cos.shape) !== String(sin.shape)) throw new CaseError('in.cos_cache and in.sin_cache differ in shape');
  if (cos.shape[1] < pairs) throw new CaseError(`in.cos_cache is ${cos.shape[1]} wide, want ${pairs}`);
  const table = (tensor) => tensor.shape[1] === pairs ? tensor : lastColumns(tensor, 0, pairs);
  const turned = api.rotaryEmbedding(x.tensor, {
    layout: x.layout, cos: table(cos), sin: table(sin), interleaved, ...where, ...api.options,
  });
  return heads(turned, x.layout);
}

const rowsOf = (table) => reshape(table, [sizeOf(table.shape.slice(0, -1)), table.shape.at(-1)]);

function readInput(c, name, dim, tableWidth, onnx) {
  const tensor = c.requiredInput(name, { ranks: [3, 4] });
  const count = c.integer('num_heads', 0) || undefined;
  if (tensor.shape.length === 4) return readHeads(`in.${name}`, tensor, count, 'attr.num_heads');
  if (onnx || dim !== 0) {
    if (!count) throw new CaseError('attr.num_heads is missing');
    return readHeads(`in.${name}`, tensor, count, 'attr.num_heads');
  }
  // The table says how wide a head is.
  const byTable = tensor.shape[2] / (2 * tableWidth);
  if (!Number.isInteger(byTable)) {
    throw new CaseError(`in.${name} ${shapeText(tensor.shape)} does not divide into heads of ${2 * tableWidth}`);
  }
  if (count !== undefined && count !== byTable) {
    throw new CaseError('attr.num_heads contradicts the width of the tables');
  }
  return readHeads(`in.${name}`, tensor, byTable, 'the width of the tables');
}

function placeOf(ids, { batch, rows }, tableShape) {
  const shape = [batch, rows];
  if (!ids) {
    if (tableShape[0] !== batch || tableShape[1] !== rows) {
      throw new CaseError(`in.cos_cache ${shapeText(tableShape)} has no row for each row of the input`);
    }
    return { positions: Int32Array.from({ length: batch * rows }, (_, n) => n) };
  }
  if (ids.shape.length === 2) {
    if (String(ids.shape) !== String(shape)) {
      throw new CaseError(`in.position_ids is ${shapeText(ids.shape)}, want ${shapeText(shape)}`);
    }
    return { positions: Int32Array.from(ids.data, Number) };
  }
  if (ids.data.length !== 1) throw new CaseError(`in.position_ids has ${ids.data.length} values, want one start`);
  return { offset: Number(ids.data[0]) };
}
