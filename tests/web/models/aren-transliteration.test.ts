// An encoder and decoder that write Arabic names in Latin letters: cross-attention over another sequence, in batches
// with padding, from float32 and int8 weights.
import { type Runtime, load } from 'headwise';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { VARIANTS, expectSameBits } from '../helpers.js';
import { type MakeCrossAttention, crossByCache, crossByLayer } from './cross-attention.js';
import { readCTranslate2File } from './ctranslate2-file.js';
import { type Decoded, Decoder } from './decoder.js';
import { Encoder, type Side } from './encoder.js';
import { expectWithin } from './expect-within.js';
import type { Tensors } from './parts.js';
import { describeModel } from './shared-models.js';
import { Vocabulary } from './vocabulary.js';

const LAYERS = 6;
/** The first is what the tests of the model's own project expect, the others are from a NumPy forward pass. */
const WORDS = [
  ['آتزمون', 'atzmon'],
  ['آشتيا', 'ashtia'],
  ['سلام', 'slam'],
] as const;
const arabic = WORDS.map(([word]) => word);
const latin = WORDS.map(([, word]) => word);

describeModel('aren-transliteration', (read) => {
  let source: Vocabulary;
  let target: Vocabulary;
  beforeAll(async () => {
    source = new Vocabulary(await read('source_vocabulary.txt'));
    target = new Vocabulary(await read('target_vocabulary.txt'));
  });

  test('int8 weights are the float32 ones, to a step of their row', async () => {
    const [exact, rounded] = await Promise.all(['model.bin', 'model-int8.bin'].map(read));
    const [wanted, got] = [readCTranslate2File(exact!), readCTranslate2File(rounded!)];
    const scaled = [...got.keys()].filter((name) => got.has(`${name}_scale`));
    // Embeddings, the projection, and the matrices of six layers on both sides.
    expect(scaled.length).toBe(3 + 6 * 4 + 6 * 7);
    for (const name of scaled) {
      const { data, shape } = got.get(name)!;
      const scales = got.get(`${name}_scale`)!.data;
      const want = wanted.get(name)!;
      expect(shape).toEqual(want.shape);
      // Rounded towards zero: at most a step off, which float32 may have computed a little too small.
      const off = data.findIndex(
        (x, i) => !(Math.abs(x - want.data[i]!) * scales[Math.floor(i / shape[1]!)]! < 1.0001),
      );
      expect(off, `${name}: ${data[off]} is not ${want.data[off]}`).toBe(-1);
    }
  });

  const FILES = ['model.bin', 'model-int8.bin'];
  describe.each(FILES.flatMap((name) => VARIANTS.map((variant) => [name, variant] as const)))(
    '%s, %s',
    (name, variant) => {
      let runtime: Runtime;
      let tensors: Tensors;
      let encoder: Encoder;
      const decoders = new Map<MakeCrossAttention, Decoder>();
      beforeAll(async () => {
        runtime = await load({ variant });
        tensors = readCTranslate2File(await read(name));
        encoder = new Encoder(tensors, LAYERS, runtime);
        for (const cross of [crossByLayer, crossByCache]) {
          decoders.set(cross, new Decoder(tensors, LAYERS, runtime, cross));
        }
      });
      afterAll(() => [encoder, ...decoders.values()].forEach((part) => part.dispose()));

      function decode(words: readonly string[], side: Side = 'right', cross = crossByLayer): Decoded[] {
        const ids = words.map((word) => [...word].map((letter) => source.id(letter)));
        return decoders.get(cross)!.decode(encoder.encode(ids, side));
      }
      const alone = (): Decoded[] => arabic.map((word) => decode([word])[0]!);
      const written = (results: readonly Decoded[]): string[] =>
        results.map(({ ids }) => ids.map((id) => target.entry(id)).join(''));

      test('the vocabularies are those of the embeddings', () => {
        expect([source.size, target.size]).toEqual([51, 43]);
        expect(tensors.get('encoder/embeddings/weight')!.shape).toEqual([51, 32]);
        expect(tensors.get('decoder/embeddings/weight')!.shape).toEqual([43, 32]);
      });

      test('one word at a time', () => {
        expect(written(alone())).toEqual(latin);
      });

      // The contract: bits do not depend on the neighbours in a batch, nor on the side of the padding.
      test.each(['right', 'left'] as const)('three lengths in one batch, padding on the %s: the same bits', (side) => {
        const together = decode(arabic, side);
        expect(written(together)).toEqual(latin);
        alone().forEach(({ logits }, b) => {
          expect(together[b]!.logits.length).toBe(logits.length);
          logits.forEach((row, i) => expectSameBits(together[b]!.logits[i]!, row));
        });
      });

      test('the memory projected once, into a cache', () => {
        const cached = decode(arabic, 'right', crossByCache);
        expect(written(cached)).toEqual(latin);
        decode(arabic).forEach(({ logits, weights }, b) => {
          logits.forEach((row, i) => expectWithin(cached[b]!.logits[i]!, row, 1e-5));
          expectWithin(
            cached[b]!.weights.flat(2).flatMap((row) => [...row]),
            weights.flat(2).flatMap((row) => [...row]),
            1e-5,
          );
        });
      });

      // Known of the float32 weights only; those of int8 turn heads a little.
      if (name !== 'model.bin') return;
      test('letters of the target look at those of the source', () => {
        const { weights } = decode(arabic)[0]!;
        // [layer, head, letter written, letter read, weight], two decimals from a NumPy forward pass.
        const known = [
          ...[1, 0.61, 0.93, 0.83, 0.55, 0.84].map((weight, i) => [2, 1, i, i, weight] as const),
          [5, 6, 0, 1, 0.96],
          [5, 6, 2, 2, 0.99],
        ] as const;
        for (const [layer, head, writes, reads, weight] of known) {
          const got = weights[writes]![layer]![head]![reads]!;
          // Half of the last decimal, and what float32 may add.
          expect(Math.abs(got - weight), `${layer} ${head} ${writes}: ${got}, not ${weight}`).toBeLessThan(
            0.005 + 1e-4,
          );
        }
      });
    },
  );
});
