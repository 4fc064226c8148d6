// The demo's model, on the package, against the golden values that came with its weights (a NumPy forward pass).
import { readFile } from 'node:fs/promises';
import { type Runtime, load } from 'headwise';
import { parseSafetensors } from 'headwise/safetensors';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { erf, gelu, layerNorm, topOfSoftmax } from '../../web/demo/models/arithmetic.js';
import { Bert, type BertConfig } from '../../web/demo/models/bert.js';
import { readNumbers } from '../../web/demo/models/stored.js';
import { Tokenizer } from '../../web/demo/models/tokenizer.js';

const FOLDER = new URL('../../web/demo/models/wordnet-nano/', import.meta.url);
const bytes = (name: string): Promise<Buffer> => readFile(new URL(name, FOLDER));
const text = async (name: string): Promise<string> => (await bytes(name)).toString('utf8');

interface Golden {
  attention: { file: string; text: string; tokens: string[]; ids: number[]; shape: number[] }[];
  fill: { text: string; ids: number[]; top5: [string, number][] }[];
}

async function floats(name: string): Promise<Float32Array> {
  const file = await bytes(name);
  return new Float32Array(file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength));
}

function largestDifference(got: Float32Array, wanted: Float32Array): number {
  expect(got.length).toBe(wanted.length);
  let largest = 0;
  // Written so that NaN counts as the largest of all differences.
  got.forEach((value, i) => {
    const difference = Math.abs(value - (wanted[i] as number));
    if (!(difference <= largest)) largest = difference;
  });
  return largest;
}

let golden: Golden;
let tokenizer: Tokenizer;
let config: BertConfig;
let limit: number;

beforeAll(async () => {
  golden = JSON.parse(await text('golden.json')) as Golden;
  config = JSON.parse(await text('config.json')) as BertConfig;
  tokenizer = new Tokenizer(await text('vocab.txt'));
  limit = config.max_position_embeddings;
});

describe('the tokenizer', () => {
  it('gives the golden ids', () => {
    expect(golden.attention.length + golden.fill.length).toBeGreaterThanOrEqual(8);
    for (const sentence of [...golden.attention, ...golden.fill]) {
      expect(tokenizer.encode(sentence.text, limit).ids, sentence.text).toEqual(sentence.ids);
    }
  });

  it('joins the pieces of a word', () => {
    const { pieces, words } = tokenizer.encode('The bank had strong currents', limit);
    expect(pieces).toEqual(golden.attention[0]?.tokens);
    expect(words.map((word) => word.text)).toEqual(['[CLS]', 'the', 'bank', 'had', 'strong', 'currents', '[SEP]']);
    expect(words.at(-2)).toEqual({ text: 'currents', start: 5, end: 7 });
  });

  it('reads underscores and [mask] as a blank', () => {
    const { ids } = tokenizer.encode('in the [MASK]', limit);
    expect(ids).toContain(tokenizer.maskId);
    for (const blank of ['in the __', 'in the _____', 'In the [mask]']) {
      expect(tokenizer.encode(blank, limit).ids).toEqual(ids);
    }
    expect(tokenizer.encode('a_b', limit).ids).not.toContain(tokenizer.maskId);
  });

  it('takes single other characters apart, and marks what it cannot read', () => {
    const { pieces, words } = tokenizer.encode("don't, 🙂", limit);
    expect(words.map((word) => word.text)).toEqual(['[CLS]', 'don', "'", 't', ',', '🙂', '[SEP]']);
    expect(pieces.at(-2)).toBe('[UNK]');
  });

  it('holds 48 pieces, drops whole words, and says which', () => {
    const long = Array.from({ length: 60 }, () => 'water').join(' ');
    const full = tokenizer.encode(long, limit);
    expect(full.ids.length).toBe(48);
    expect(full.pieces.at(-1)).toBe('[SEP]');
    expect(full.dropped.split(' ').length).toBe(60 - 46);
    // A word of several pieces that does not fit is left out as a whole.
    const { pieces, words, dropped } = tokenizer.encode(`${'water '.repeat(45)}currents`, limit);
    expect(pieces.length).toBe(47);
    expect(words.at(-2)?.text).toBe('water');
    expect(dropped).toBe('currents');
    expect(tokenizer.encode('', limit).pieces).toEqual(['[CLS]', '[SEP]']);
  });
});

describe('the model', () => {
  let runtime: Runtime;
  let bert: Bert;

  beforeAll(async () => {
    runtime = await load();
    bert = new Bert(parseSafetensors(await bytes('model.safetensors')).tensors, config, runtime);
  });
  afterAll(() => bert.dispose());

  it('has the weights it says', () => {
    expect(bert.weightCount).toBe(1_650_240);
  });

  it('gives the golden attention of every head', async () => {
    expect(golden.attention.length).toBe(2);
    for (const sentence of golden.attention) {
      const { maps } = bert.encode(sentence.ids);
      expect([maps.layers, maps.heads, maps.length, maps.length]).toEqual(sentence.shape);
      expect(largestDifference(maps.data, await floats(sentence.file)), sentence.text).toBeLessThan(1e-4);
    }
  });

  it('fills blanks as the golden values do', () => {
    for (const sentence of golden.fill) {
      const { hidden } = bert.encode(sentence.ids);
      const found = bert.fill(hidden, sentence.ids.indexOf(tokenizer.maskId), 5);
      expect(
        found.map(({ id }) => tokenizer.piece(id)),
        sentence.text,
      ).toEqual(sentence.top5.map(([word]) => word));
      found.forEach(({ probability }, i) => {
        expect(Math.abs(probability - (sentence.top5[i]?.[1] ?? NaN)), sentence.text).toBeLessThan(1e-3);
      });
    }
  });

  it('gives the same numbers again after other lengths', () => {
    const [first, second] = golden.attention.map((sentence) => sentence.ids) as [number[], number[]];
    const before = bert.encode(first).maps.data;
    bert.encode(second);
    expect(bert.encode(first).maps.data).toEqual(before);
  });

  it('takes every length up to its limit', () => {
    for (const length of [2, 3, 47, 48]) {
      const { maps } = bert.encode(Array.from({ length }, (_, i) => 100 + i));
      for (let row = 0; row < maps.data.length; row += length) {
        const sum = maps.data.subarray(row, row + length).reduce((a, b) => a + b, 0);
        expect(Math.abs(sum - 1)).toBeLessThan(1e-5);
      }
    }
  });

  it('refuses weights of another shape, by name', async () => {
    const { tensors } = parseSafetensors(await bytes('model.safetensors'));
    const name = 'bert.embeddings.position_embeddings.weight';
    const without = Object.fromEntries(Object.entries(tensors).filter(([other]) => other !== name));
    expect(() => new Bert(without, config, runtime)).toThrow(`${name} is absent; it must be [48, 128]`);
    expect(() => readNumbers(tensors, name, [2, 128])).toThrow('is [48, 128] of F16; it must be [2, 128]');
  });
});

describe('arithmetic', () => {
  it('computes the error function', () => {
    // Table values, ten digits.
    const table = [
      [0, 0],
      [0.5, 0.5204998778],
      [1, 0.8427007929],
      [2, 0.995322265],
      [3.5, 0.9999992569],
    ] as const;
    for (const [x, y] of table) {
      expect(Math.abs(erf(x) - y)).toBeLessThan(1.5e-7);
      expect(erf(-x)).toBeCloseTo(-y, 6);
    }
    const x = Float32Array.of(-10, -1, 0, 1, 10);
    gelu(x);
    [0, -0.15865525, 0, 0.84134475, 10].forEach((wanted, i) => expect(x[i]).toBeCloseTo(wanted, 6));
  });

  it('normalises rows', () => {
    const x = Float32Array.of(1, 2, 3, 4, 10, 10, 10, 10);
    layerNorm(x, Float32Array.of(1, 1, 1, 2), Float32Array.of(0, 0, 0, 1), 1e-12);
    const unit = Math.sqrt(1.25);
    [-1.5 / unit, -0.5 / unit, 0.5 / unit, 1 + 3 / unit, 0, 0, 0, 1].forEach((wanted, i) =>
      expect(x[i]).toBeCloseTo(wanted, 6),
    );
  });

  it('takes the top of a softmax', () => {
    const top = topOfSoftmax(Float32Array.of(1000, Math.log(3) + 1000, -Infinity), 2);
    expect(top.map(({ id }) => id)).toEqual([1, 0]);
    expect(top[0]?.probability).toBeCloseTo(0.75, 4);
  });
});
