// A model file of llama2.c, version 0: seven numbers, then float32 tensors in a fixed order, layers stacked.
import type { Tensor } from 'headwise';
import { ByteReader } from './byte-reader.js';
import { slice } from './steps.js';

export interface LlamaLayer {
  readonly attentionNorm: Tensor;
  readonly query: Tensor;
  readonly key: Tensor;
  readonly value: Tensor;
  readonly output: Tensor;
  readonly feedForwardNorm: Tensor;
  readonly gate: Tensor;
  readonly down: Tensor;
  readonly up: Tensor;
}

export interface LlamaFile {
  readonly width: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly maxLength: number;
  /** Serves as the output projection, too. */
  readonly embedding: Tensor;
  readonly layers: readonly LlamaLayer[];
  readonly finalNorm: Tensor;
}

export function readLlamaFile(bytes: Uint8Array): LlamaFile {
  const reader = new ByteReader(bytes);
  const header = Array.from({ length: 7 }, () => reader.i32());
  const [width, hidden, count, heads, kvHeads, vocabulary, maxLength] = header as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  // A negative size would say that the output has a projection of its own.
  if (vocabulary <= 0) throw new RangeError(`a vocabulary of ${vocabulary}; only shared embeddings are read`);
  const headDim = width / heads;
  const embedding = reader.tensor(vocabulary, width);
  const stacked = {
    attentionNorm: reader.tensor(count, width),
    query: reader.tensor(count, width, width),
    key: reader.tensor(count, kvHeads * headDim, width),
    value: reader.tensor(count, kvHeads * headDim, width),
    output: reader.tensor(count, width, width),
    feedForwardNorm: reader.tensor(count, width),
    gate: reader.tensor(count, hidden, width),
    down: reader.tensor(count, width, hidden),
    up: reader.tensor(count, hidden, width),
  };
  const finalNorm = reader.tensor(width);
  const unused = 2 * 4 * maxLength * (headDim / 2);
  if (reader.left !== unused) throw new RangeError(`${reader.left} bytes follow the weights, not ${unused}`);
  const layers = Array.from({ length: count }, (_, i) => {
    const layer = Object.entries(stacked).map(([name, { data, shape }]) => {
      const one = slice({ data, shape }, i, i + 1);
      return [name, { data: one.data, shape: shape.slice(1) }];
    });
    return Object.fromEntries(layer) as unknown as LlamaLayer;
  });
  return { width, heads, kvHeads, maxLength, embedding, layers, finalNorm };
}
