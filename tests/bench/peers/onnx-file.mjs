// Writes ONNX models: the few messages of its protobuf format that a graph with weights needs.
const encoder = new TextEncoder();
const [VARINT, BYTES, FIXED32] = [0, 2, 5];
const FLOAT_TENSOR = 1;
const INT64_TENSOR = 7;
const [ATTRIBUTE_FLOAT, ATTRIBUTE_INT, ATTRIBUTE_INTS] = [1, 2, 7];

function varint(value) {
  const bytes = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  do {
    const low = Number(rest & 127n);
    rest >>= 7n;
    bytes.push(rest > 0n ? low | 128 : low);
  } while (rest > 0n);
  return Uint8Array.from(bytes);
}

function joined(parts) {
  const result = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    result.set(part, at);
    at += part.length;
  }
  return result;
}

const integer = (field, value) => joined([varint((field << 3) | VARINT), varint(value)]);
const bytes = (field, data) => joined([varint((field << 3) | BYTES), varint(data.length), data]);
const text = (field, value) => bytes(field, encoder.encode(value));
const float = (field, value) =>
  joined([varint((field << 3) | FIXED32), new Uint8Array(Float32Array.of(value).buffer)]);

function attribute(name, value) {
  if (Array.isArray(value)) {
    return joined([text(1, name), ...value.map((entry) => integer(8, entry)), integer(20, ATTRIBUTE_INTS)]);
  }
  if (typeof value === 'object') return joined([text(1, name), float(2, value.float), integer(20, ATTRIBUTE_FLOAT)]);
  return joined([text(1, name), integer(3, value), integer(20, ATTRIBUTE_INT)]);
}

function tensor(name, dims, data) {
  const isInteger = data instanceof BigInt64Array;
  const raw = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return joined([...dims.map((dim) => integer(1, dim)), integer(2, isInteger ? INT64_TENSOR : FLOAT_TENSOR),
    text(8, name), bytes(9, raw)]);
}

function valueInfo(name, dims) {
  const shape = joined(dims.map((dim) => bytes(1, integer(1, dim))));
  const type = bytes(1, joined([integer(1, FLOAT_TENSOR), bytes(2, shape)]));
  return joined([text(1, name), bytes(2, type)]);
}

/** A graph to fill: input, weight, node, output; bytes() is the model. */
export class OnnxGraph {
  #parts = [];
  #names = 0;

  input(name, dims) {
    this.#parts.push(bytes(11, valueInfo(name, dims)));
    return name;
  }

  output(name, dims) {
    this.#parts.push(bytes(12, valueInfo(name, dims)));
    return name;
  }

  weight(dims, data) {
    const name = `weight${(this.#names += 1)}`;
    this.#parts.push(bytes(5, tensor(name, dims, data)));
    return name;
  }

  shape(...dims) {
    return this.weight([dims.length], BigInt64Array.from(dims, BigInt));
  }

  /** Returns the name of the first output. '' among inputs is one that is left out. */
  node(type, inputs, { attributes = {}, domain = '', outputs = [`value${(this.#names += 1)}`] } = {}) {
    this.#parts.push(bytes(1, joined([
      ...inputs.map((name) => text(1, name)), ...outputs.map((name) => text(2, name)), text(4, type), text(7, domain),
      ...Object.entries(attributes).map(([name, value]) => bytes(5, attribute(name, value)))])));
    return outputs[0];
  }

  bytes() {
    const opset = (domain, version) => bytes(8, joined([text(1, domain), integer(2, version)]));
    const graph = joined([text(2, 'attention'), ...this.#parts]);
    return joined([integer(1, 10), text(2, 'headwise'), bytes(7, graph), opset('', 23), opset('com.microsoft', 1)]);
  }
}
