// A published language model, token by token through the cache, against values of a NumPy forward pass whose text is
// the one that the model is known for.
import { type KvCache, type Tensor, load } from 'headwise';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { VARIANTS, expectSameBits, size } from '../helpers.js';
import { expectWithin } from './expect-within.js';
import { Llama } from './llama.js';
import { type LlamaFile, readLlamaFile } from './llama2c-file.js';
import { LlamaTokenizer } from './llama2c-tokenizer.js';
import { describeModel, float32, utf8 } from './shared-models.js';
import { largestAt, rowOf, softmax } from './steps.js';

/** Of the golden values: they were computed in float32, too. */
const TOLERANCE = 1e-4;

interface Case {
  readonly prompt: string;
  readonly prompt_ids: number[];
  /** Prompt and continuation. */
  readonly greedy_ids: number[];
  readonly text: string;
  readonly next_top5: [id: number, probability: number][];
}
interface Golden {
  readonly cases: Case[];
  readonly attention: { readonly file: string; readonly prompt: string; readonly shape: number[] };
}

describeModel('stories260k', (read) => {
  let file: LlamaFile;
  let tokenizer: LlamaTokenizer;
  let golden: Golden;
  beforeAll(async () => {
    file = readLlamaFile(await read('stories260K.bin'));
    tokenizer = new LlamaTokenizer(await read('tok512.bin'), file.embedding.shape[0]!);
    golden = JSON.parse(utf8(await read('golden.json'))) as Golden;
    expect(golden.cases.length).toBe(4);
  });

  describe('tokenizer', () => {
    test('the golden ids, and the golden text back', () => {
      for (const { prompt, prompt_ids, greedy_ids, text } of golden.cases) {
        expect(tokenizer.encode(prompt)).toEqual(prompt_ids);
        expect(tokenizer.decode(greedy_ids)).toBe(text);
      }
    });

    test('a character without a piece becomes its bytes, each 3 up', () => {
      const space = tokenizer.encode('x')[1];
      expect(tokenizer.decode([space!])).toBe(' ');
      expect(tokenizer.encode('🙂')).toEqual([1, space, 0xf0 + 3, 0x9f + 3, 0x99 + 3, 0x82 + 3]);
    });
  });

  describe.each(VARIANTS)('%s', (variant) => {
    let model: Llama;
    let caches: readonly KvCache[] = [];
    beforeAll(async () => {
      model = new Llama(file, await load({ variant }));
    });
    afterAll(() => model.dispose());

    function newCaches(batch: number): readonly KvCache[] {
      caches.forEach((cache) => cache.dispose());
      caches = model.createCaches(batch, file.maxLength);
      return caches;
    }

    /** The logits of all ids, given in steps of these lengths. */
    function feed(ids: readonly number[], steps: readonly number[]): Float32Array {
      const call = { caches: newCaches(1) };
      let at = 0;
      const parts = steps.map((n) => model.forward([ids.slice(at, (at += n))], call));
      expect(at).toBe(ids.length);
      return Float32Array.from(parts.flatMap(({ data }) => [...data]));
    }
    const ones = (n: number): number[] => Array<number>(n).fill(1);

    test('greedy, token by token from the first on: the golden continuations', () => {
      for (const { prompt_ids, greedy_ids } of golden.cases) {
        const call = { caches: newCaches(1) };
        const ids: number[] = [];
        let next = prompt_ids[0]!;
        while (ids.length < greedy_ids.length) {
          ids.push(next);
          const { data } = model.forward([[next]], call);
          next = prompt_ids[ids.length] ?? largestAt(data);
        }
        expect(tokenizer.decode(ids)).toBe(tokenizer.decode(greedy_ids));
        expect(ids).toEqual(greedy_ids);
      }
    });

    test('all prompts at once, each of its own length, in one batch', () => {
      const call = { caches: newCaches(golden.cases.length) };
      const texts = golden.cases.map(({ prompt_ids }) => [...prompt_ids]);
      let next = texts.map((ids) => [...ids]);
      const growing = (): boolean => texts.some((ids, b) => ids.length < golden.cases[b]!.greedy_ids.length);
      while (growing()) {
        const logits = model.forward(next, call);
        const length = logits.shape[1]!;
        next = next.map((given, b) => {
          // An entry that is complete gives no more tokens and stays as it is.
          if (texts[b]!.length === golden.cases[b]!.greedy_ids.length) return [];
          const id = largestAt(rowOf(logits, b * length + given.length - 1));
          texts[b]!.push(id);
          return [id];
        });
      }
      expect(texts).toEqual(golden.cases.map(({ greedy_ids }) => greedy_ids));
    });

    test('the five likeliest next tokens', () => {
      for (const { prompt_ids, next_top5 } of golden.cases) {
        const logits = model.forward([prompt_ids]);
        const { data } = softmax({ data: rowOf(logits, prompt_ids.length - 1), shape: [logits.shape[2]!] });
        const likeliest = Array.from(data.keys()).sort((a, b) => data[b]! - data[a]!);
        expect(likeliest.slice(0, 5)).toEqual(next_top5.map(([id]) => id));
        expectWithin(
          likeliest.slice(0, 5).map((id) => data[id]!),
          next_top5.map(([, probability]) => probability),
          TOLERANCE,
        );
      }
    });

    describe('attention of every head', () => {
      let want: Float32Array;
      let ids: number[];
      const shape = [5, 8, 16, 16];
      beforeAll(async () => {
        expect(golden.attention.shape).toEqual(shape);
        want = float32(await read(golden.attention.file));
        ids = tokenizer.encode(golden.attention.prompt);
      });

      test('in one pass', () => {
        const maps: Tensor[] = [];
        model.forward([ids], { onAttention: ({ weights }) => maps.push(weights!) });
        expect(maps.map((map) => map.shape)).toEqual(Array(5).fill([1, 8, 16, 16]));
        expectWithin(Float32Array.from(maps.flatMap(({ data }) => [...data])), want, TOLERANCE);
      });

      test('row by row through the cache', () => {
        const call = { caches: newCaches(1) };
        const got = new Float32Array(size(shape));
        ids.forEach((id, i) => {
          let layer = 0;
          const onAttention = ({ weights }: { weights?: Tensor }): void => {
            expect(weights!.shape).toEqual([1, 8, 1, i + 1]);
            for (let h = 0; h < 8; ++h) got.set(rowOf(weights!, h), ((layer * 8 + h) * 16 + i) * 16);
            ++layer;
          };
          model.forward([[id]], { ...call, onAttention });
        });
        expectWithin(got, want, TOLERANCE);
      });
    });

    test('the longest text the model takes, in steps that straddle the tiles of keys', () => {
      const ids = Array.from({ length: file.maxLength }, (_, i) => golden.cases[i % 4]!.greedy_ids[i % 48]!);
      const { data: whole } = model.forward([ids]);
      expectSameBits(feed(ids, [100, 27, 1, 1, 130, 200, ...ones(53)]), whole);
      expect(() => feed([...ids, 1], [file.maxLength, 1])).toThrow('capacity');
    });

    // The contract says bits, not numbers: every sum runs in one order, however a sequence was cut into calls.
    test('prefill and decode give the bits of a single pass', () => {
      for (const { prompt_ids, greedy_ids } of golden.cases) {
        const { data: whole } = model.forward([greedy_ids]);
        const [prompt, rest] = [prompt_ids.length, greedy_ids.length - prompt_ids.length];
        expectSameBits(feed(greedy_ids, [prompt, ...ones(rest)]), whole);
        expectSameBits(feed(greedy_ids, ones(prompt + rest)), whole);
        expectSameBits(feed(greedy_ids, [prompt, 5, 7, rest - 12]), whole);
      }
    });
  });
});
