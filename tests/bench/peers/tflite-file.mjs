// Writes TFLite models: the few tables of its schema that a graph with weights needs. Numbers of fields and of enum
// values are the schema's.
import { Builder } from './node_modules/flatbuffers/mjs/flatbuffers.js';

const [FLOAT32, INT32] = [0, 2];
const ALIGNMENT = 16;

/** operator: [its code, the code of its options, (builder) => table of options]. */
const OPERATORS = {
  ADD: [0, 11, (b) => table(b, 2, [])],
  CONCATENATION: [2, 10, (b, { axis }) => table(b, 2, [(t) => t.addFieldInt32(0, axis, 0)])],
  FULLY_CONNECTED: [9, 8, (b) => table(b, 4, [(t) => t.addFieldInt8(2, 1, 0)])], // keep_num_dims
  MUL: [18, 21, (b) => table(b, 1, [])],
  RESHAPE: [22, 17, (b) => table(b, 1, [])],
  SOFTMAX: [25, 9, (b) => table(b, 1, [(t) => t.addFieldFloat32(0, 1, 0)])], // beta
  TRANSPOSE: [39, 26, (b) => table(b, 0, [])],
  BATCH_MATMUL: [126, 101, (b, { adjY = false }) => table(b, 3, [(t) => t.addFieldInt8(1, adjY ? 1 : 0, 0)])],
};

function table(builder, fields, fill) {
  builder.startObject(fields);
  for (const add of fill) add(builder);
  return builder.endObject();
}

function offsets(builder, list) {
  builder.startVector(4, list.length, 4);
  for (const offset of list.toReversed()) builder.addOffset(offset);
  return builder.endVector();
}

function integers(builder, list) {
  builder.startVector(4, list.length, 4);
  for (const value of list.toReversed()) builder.addInt32(value);
  return builder.endVector();
}

function blob(builder, data) {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  builder.startVector(1, bytes.length, ALIGNMENT);
  builder.space -= bytes.length;
  builder.bb.bytes().set(bytes, builder.space);
  return builder.endVector();
}

/** A graph to fill: input, weight, node, output; bytes() is the model. Values are numbers of tensors. */
export class TfliteGraph {
  #tensors = [];
  #nodes = [];
  #codes = [];
  #inputs = [];
  #outputs = [];

  #tensor(shape, data, type = FLOAT32) {
    return this.#tensors.push({ shape, data, type }) - 1;
  }

  input(shape) {
    const value = this.#tensor(shape);
    this.#inputs.push(value);
    return value;
  }

  weight(shape, data) {
    return this.#tensor(shape, data);
  }

  integers(...list) {
    return this.#tensor([list.length], Int32Array.from(list), INT32);
  }

  node(name, inputs, shape, options = {}) {
    if (!this.#codes.includes(name)) this.#codes.push(name);
    const output = this.#tensor(shape);
    this.#nodes.push({ name, inputs, output, options });
    return output;
  }

  output(value) {
    this.#outputs.push(value);
  }

  bytes() {
    const size = this.#tensors.reduce((sum, { data }) => sum + (data?.byteLength ?? 0) + 256, 65536);
    const b = new Builder(size);
    // Buffer 0 is the empty one of everything that is computed.
    const buffers = [table(b, 1, [])];
    const bufferOf = this.#tensors.map(({ data }) => {
      if (!data) return 0;
      const content = blob(b, data);
      return buffers.push(table(b, 1, [(t) => t.addFieldOffset(0, content, 0)])) - 1;
    });
    const tensors = this.#tensors.map(({ shape, type }, i) => {
      const [name, dims] = [b.createString(`t${i}`), integers(b, shape)];
      return table(b, 4, [(t) => t.addFieldOffset(0, dims, 0), (t) => t.addFieldInt8(1, type, 0),
        (t) => t.addFieldInt32(2, bufferOf[i], 0), (t) => t.addFieldOffset(3, name, 0)]);
    });
    const operators = this.#nodes.map(({ name, inputs, output, options }) => {
      const [, optionsType, makeOptions] = OPERATORS[name];
      const [given, made, chosen] = [integers(b, inputs), integers(b, [output]), makeOptions(b, options)];
      return table(b, 5, [(t) => t.addFieldInt32(0, this.#codes.indexOf(name), 0),
        (t) => t.addFieldOffset(1, given, 0), (t) => t.addFieldOffset(2, made, 0),
        (t) => t.addFieldInt8(3, optionsType, 0), (t) => t.addFieldOffset(4, chosen, 0)]);
    });
    const parts = [offsets(b, tensors), integers(b, this.#inputs), integers(b, this.#outputs), offsets(b, operators)];
    const subgraph = table(b, 5, parts.map((part, field) => (t) => t.addFieldOffset(field, part, 0)));
    const codes = offsets(b, this.#codes.map((name) => {
      const [code] = OPERATORS[name];
      return table(b, 4, [(t) => t.addFieldInt8(0, code, 0), (t) => t.addFieldInt32(2, 1, 0),
        (t) => t.addFieldInt32(3, code, 0)]);
    }));
    const [subgraphs, contents] = [offsets(b, [subgraph]), offsets(b, buffers)];
    const model = table(b, 5, [(t) => t.addFieldInt32(0, 3, 0), (t) => t.addFieldOffset(1, codes, 0),
      (t) => t.addFieldOffset(2, subgraphs, 0), (t) => t.addFieldOffset(4, contents, 0)]);
    b.finish(model, 'TFL3');
    return b.asUint8Array();
  }
}
