// T-12: bits, not tolerances. The result of a row depends on the keys it sees
// and on their positions, never on batch neighbours, on the padding's side and
// length, on which other rows a call computes, or on how a sequence was split
// into steps.
#include <algorithm>
#include <string>

#include "attention_case.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;
using headwise::SameBits;

HEADWISE_TEST_ALL_TARGETS(DeterminismTest);

AttentionRun RunOk(const AttentionCase& test) {
  const AttentionRun run = RunCore(test);
  EXPECT_TRUE(run.status.ok()) << run.status.message();
  return run;
}

// Sizes whose chunks, tiles and panels all have ragged ends.
AttentionCase MakeCase(size_t batch, size_t rows, size_t keys, Random* random) {
  AttentionCase test(batch, 4, 2, rows, keys, 7, 10);
  test.Fill(random, 2.0f);
  return test;
}

// --------------------------------------------------------------------- cuts

template <typename T>
MaskData<T> EntryOf(const MaskData<T>& mask, size_t b) {
  MaskData<T> entry = mask;
  if (mask.data.empty() || mask.batch == 1) return entry;
  entry.batch = 1;
  const size_t size = entry.size();
  entry.data.assign(mask.data.begin() + b * size,
                    mask.data.begin() + (b + 1) * size);
  return entry;
}

template <typename T>
std::vector<T> EntryOf(const std::vector<T>& values, size_t b, size_t size) {
  if (values.empty()) return {};
  return std::vector<T>(values.begin() + b * size,
                        values.begin() + (b + 1) * size);
}

// Batch entry b as a call of its own.
AttentionCase EntryOf(const AttentionCase& test, size_t b) {
  AttentionCase entry(1, test.heads, test.kv_heads, test.rows, test.keys,
                      test.head_dim, test.v_head_dim);
  entry.query.SetDense(
      EntryOf(test.query.Dense(), b, test.heads * test.rows * test.head_dim));
  entry.key.SetDense(
      EntryOf(test.key.Dense(), b, test.kv_heads * test.keys * test.head_dim));
  entry.value.SetDense(EntryOf(test.value.Dense(), b,
                               test.kv_heads * test.keys * test.v_head_dim));
  entry.scale = test.scale;
  entry.attend = EntryOf(test.attend, b);
  entry.bias = EntryOf(test.bias, b);
  entry.padding = EntryOf(test.padding, b, test.keys);
  entry.key_lengths = EntryOf(test.key_lengths, b, 1);
  entry.query_lengths = EntryOf(test.query_lengths, b, 1);
  entry.query_offsets = EntryOf(test.query_offsets, b, 1);
  entry.causal = test.causal;
  entry.empty_rows = test.empty_rows;
  return entry;
}

// Rows [first, first + count) against the first `keys` keys, as the same
// sequence would be fed in steps. Batch 1; a causal call becomes kStart with
// the offset these rows have.
AttentionCase StepOf(const AttentionCase& test, size_t first, size_t count,
                     size_t keys) {
  AttentionCase step(1, test.heads, test.kv_heads, count, keys, test.head_dim,
                     test.v_head_dim, Layout::kHeadsLast, 1);
  for (size_t h = 0; h < test.heads; ++h) {
    for (size_t i = 0; i < count; ++i) {
      for (size_t d = 0; d < test.head_dim; ++d) {
        step.query.At(0, h, i, d) = test.query.At(0, h, first + i, d);
      }
    }
  }
  for (size_t h = 0; h < test.kv_heads; ++h) {
    for (size_t j = 0; j < keys; ++j) {
      for (size_t d = 0; d < test.head_dim; ++d) {
        step.key.At(0, h, j, d) = test.key.At(0, h, j, d);
      }
      for (size_t d = 0; d < test.v_head_dim; ++d) {
        step.value.At(0, h, j, d) = test.value.At(0, h, j, d);
      }
    }
  }
  step.scale = test.scale;
  step.causal = test.causal;
  if (test.causal != Causal::kNone) {
    EXPECT_EQ(static_cast<int>(test.causal), static_cast<int>(Causal::kStart));
    step.query_offsets = {
        static_cast<int32_t>(first) +
        (test.query_offsets.empty() ? 0 : test.query_offsets[0])};
  }
  if (!test.padding.empty()) {
    step.padding.assign(test.padding.begin(), test.padding.begin() + keys);
  }
  return step;
}

// The results of rows [first, first + count) of one batch entry, their
// weights cut to keys [first_key, first_key + keys).
AttentionRun RowsOf(const AttentionRun& run, const AttentionCase& test,
                    size_t b, size_t first, size_t count, size_t first_key,
                    size_t keys) {
  AttentionRun part;
  const auto append = [](Floats* to, const Floats& from, size_t at, size_t n) {
    to->insert(to->end(), from.begin() + at, from.begin() + at + n);
  };
  for (size_t h = 0; h < test.heads; ++h) {
    for (size_t i = first; i < first + count; ++i) {
      const size_t row = (b * test.heads + h) * test.rows + i;
      append(&part.output, run.output, row * test.v_head_dim, test.v_head_dim);
      append(&part.lse, run.lse, row, 1);
      append(&part.weights, run.weights, row * test.keys + first_key, keys);
    }
  }
  for (size_t i = first; i < first + count; ++i) {
    append(&part.averaged_weights, run.averaged_weights,
           (b * test.rows + i) * test.keys + first_key, keys);
  }
  return part;
}

testing::AssertionResult SameBits(const AttentionRun& a,
                                  const AttentionRun& b) {
  const std::pair<const char*, Floats AttentionRun::*> fields[] = {
      {"output", &AttentionRun::output},
      {"LSE", &AttentionRun::lse},
      {"weights", &AttentionRun::weights},
      {"averaged weights", &AttentionRun::averaged_weights}};
  for (const auto& [name, field] : fields) {
    const testing::AssertionResult result = SameBits(a.*field, b.*field);
    if (!result)
      return testing::AssertionFailure() << name << ": " << result.message();
  }
  return testing::AssertionSuccess();
}

// -------------------------------------------------------------------- batch

TEST_P(DeterminismTest, BatchNeighbours) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(100 + seed);
    AttentionCase test =
        MakeCase(4, random.Between(1, 70), random.Between(1, 300), &random);
    AddRandomMasks(&test, &random);
    const AttentionRun together = RunOk(test);
    SCOPED_TRACE(test.Describe());
    for (size_t b = 0; b < test.batch; ++b) {
      ASSERT_TRUE(
          SameBits(RunOk(EntryOf(test, b)),
                   RowsOf(together, test, b, 0, test.rows, 0, test.keys)))
          << "batch entry " << b;
    }
  }
}

// ------------------------------------------------------------------ padding

// `left` keys before and `right` keys after, all NaN or infinite, behind the
// padding mask; positions move along.
AttentionCase Padded(const AttentionCase& test, size_t left, size_t right,
                     Random* random) {
  AttentionCase padded(test.batch, test.heads, test.kv_heads, test.rows,
                       left + test.keys + right, test.head_dim, test.v_head_dim,
                       Layout::kHeadsLast, 2);
  padded.query.SetDense(test.query.Dense());
  const float poisons[] = {kNan, kInf, -kInf};
  for (size_t b = 0; b < test.batch; ++b) {
    for (size_t j = 0; j < padded.keys; ++j) {
      const bool inside = j >= left && j < left + test.keys;
      for (size_t h = 0; h < test.kv_heads; ++h) {
        for (size_t d = 0; d < test.head_dim; ++d) {
          padded.key.At(b, h, j, d) = inside ? test.key.At(b, h, j - left, d)
                                             : poisons[random->Between(0, 2)];
        }
        for (size_t d = 0; d < test.v_head_dim; ++d) {
          padded.value.At(b, h, j, d) = inside
                                            ? test.value.At(b, h, j - left, d)
                                            : poisons[random->Between(0, 2)];
        }
      }
      const uint8_t hidden = !inside ? 1
                             : test.padding.empty()
                                 ? 0
                                 : test.padding[b * test.keys + j - left];
      padded.padding.push_back(hidden);
    }
  }
  padded.causal = test.causal;
  if (test.causal != Causal::kNone) {
    for (size_t b = 0; b < test.batch; ++b) {
      padded.query_offsets.push_back(
          static_cast<int32_t>(left) +
          (test.query_offsets.empty() ? 0 : test.query_offsets[b]));
    }
  }
  return padded;
}

TEST_P(DeterminismTest, LeftAndRightPadding) {
  for (const size_t keys : {5, 31, 120, 128, 129, 150, 257, 290}) {
    for (size_t pad = 1; pad <= 17; ++pad) {
      Random random(200 + 20 * keys + pad);
      AttentionCase test = MakeCase(1, 6, keys, &random);
      switch (pad % 3) {
        case 0:
          test.causal = Causal::kStart;
          test.query_offsets = {static_cast<int32_t>(keys) - 6};
          break;
        case 1:
          // Holes between the first and the last key stay where they are.
          for (size_t j = 0; j < keys; ++j) {
            test.padding.push_back(j != 0 && j + 1 != keys &&
                                   random.Chance(0.3));
          }
          break;
      }
      const AttentionRun plain = RunOk(test);
      const size_t sides[][2] = {{pad, 0}, {0, pad}, {pad, 18 - pad}};
      for (const auto& [left, right] : sides) {
        const AttentionCase padded = Padded(test, left, right, &random);
        ASSERT_TRUE(
            SameBits(RowsOf(RunOk(padded), padded, 0, 0, 6, left, keys), plain))
            << keys << " keys, " << left << " before, " << right << " after";
      }
    }
  }
}

// Key lengths and a padding mask that say the same are the same.
TEST_P(DeterminismTest, KeyLengthsEqualPaddingMaskAndShorterKeys) {
  for (const size_t length : {0, 1, 7, 127, 128, 130, 260}) {
    Random random(300 + length);
    const AttentionCase all = MakeCase(1, 5, 270, &random);
    AttentionCase by_length = all;
    by_length.key_lengths = {static_cast<int32_t>(length)};
    AttentionCase by_mask = all;
    for (size_t j = 0; j < 270; ++j) by_mask.padding.push_back(j >= length);
    const AttentionCase shorter = StepOf(all, 0, 5, length);
    const AttentionRun run = RunOk(by_length);
    EXPECT_TRUE(SameBits(run, RunOk(by_mask)));
    EXPECT_TRUE(
        SameBits(RowsOf(run, by_length, 0, 0, 5, 0, length), RunOk(shorter)));
  }
}

// Entries of a batch, each padded on the left to the longest: as alone.
TEST_P(DeterminismTest, RaggedBatchPaddedOnTheLeft) {
  Random random(310);
  const size_t lengths[] = {290, 131, 128, 3};
  AttentionCase batch = MakeCase(4, 4, 290, &random);
  batch.causal = Causal::kStart;
  batch.query_offsets.assign(4, 286);
  for (size_t b = 0; b < 4; ++b) {
    for (size_t j = 0; j < 290; ++j) {
      batch.padding.push_back(j < 290 - lengths[b]);
    }
  }
  PoisonHidden(&batch, &random);
  const AttentionRun together = RunOk(batch);
  for (size_t b = 0; b < 4; ++b) {
    const size_t left = 290 - lengths[b];
    AttentionCase alone(1, 4, 2, 4, lengths[b], 7, 10);
    for (size_t h = 0; h < 4; ++h) {
      for (size_t i = 0; i < 4; ++i) {
        for (size_t d = 0; d < 7; ++d) {
          alone.query.At(0, h, i, d) = batch.query.At(b, h, i, d);
        }
      }
    }
    for (size_t h = 0; h < 2; ++h) {
      for (size_t j = 0; j < lengths[b]; ++j) {
        for (size_t d = 0; d < 7; ++d) {
          alone.key.At(0, h, j, d) = batch.key.At(b, h, left + j, d);
        }
        for (size_t d = 0; d < 10; ++d) {
          alone.value.At(0, h, j, d) = batch.value.At(b, h, left + j, d);
        }
      }
    }
    alone.causal = Causal::kStart;
    alone.query_offsets = {static_cast<int32_t>(lengths[b]) - 4};
    EXPECT_TRUE(SameBits(RunOk(alone),
                         RowsOf(together, batch, b, 0, 4, left, lengths[b])))
        << "batch entry " << b;
  }
}

// -------------------------------------------------------------------- steps

// A causal prefill of n tokens, and the same token by token over the keys
// there are so far.
TEST_P(DeterminismTest, PrefillEqualsTokenByToken) {
  for (const size_t length : {9, 70, 135, 261}) {
    Random random(400 + length);
    AttentionCase test = MakeCase(1, length, length, &random);
    test.causal = Causal::kStart;
    const AttentionRun prefill = RunOk(test);
    for (size_t i = 0; i < length; ++i) {
      ASSERT_TRUE(SameBits(RunOk(StepOf(test, i, 1, i + 1)),
                           RowsOf(prefill, test, 0, i, 1, 0, i + 1)))
          << "token " << i << " of " << length;
    }
  }
}

TEST_P(DeterminismTest, PrefillEqualsStepsOfAnySize) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Random random(500 + seed);
    const size_t length = random.Between(20, 280);
    AttentionCase test = MakeCase(1, length, length, &random);
    test.causal = Causal::kStart;
    // A padded prefix full of NaN, and holes.
    const size_t prefix = seed % 3 == 0 ? 0 : random.Between(1, 17);
    for (size_t j = 0; j < length; ++j) {
      test.padding.push_back(j < prefix ||
                             (seed % 2 == 0 && random.Chance(0.1)));
    }
    PoisonHidden(&test, &random);
    const AttentionRun prefill = RunOk(test);
    for (size_t first = 0; first < length;) {
      const size_t count = std::min(length - first, random.Between(1, 40));
      const size_t keys = first + count;
      ASSERT_TRUE(SameBits(RunOk(StepOf(test, first, count, keys)),
                           RowsOf(prefill, test, 0, first, count, 0, keys)))
          << "seed " << seed << ", rows " << first << " to " << keys;
      first = keys;
    }
  }
}

// Any block of rows, without causal: which rows share a call does not matter.
TEST_P(DeterminismTest, RowsAreIndependent) {
  Random random(600);
  const AttentionCase test = MakeCase(1, 131, 200, &random);
  const AttentionRun all = RunOk(test);
  for (size_t first = 0; first < 131;) {
    const size_t count = std::min<size_t>(131 - first, random.Between(1, 30));
    ASSERT_TRUE(SameBits(RunOk(StepOf(test, first, count, 200)),
                         RowsOf(all, test, 0, first, count, 0, 200)))
        << "rows from " << first;
    first += count;
  }
}

// A mask that hides what causal hides gives what causal gives.
TEST_P(DeterminismTest, CausalEqualsItsMask) {
  Random random(610);
  AttentionCase test = MakeCase(2, 60, 150, &random);
  test.causal = Causal::kEnd;
  const AttentionRun by_flag = RunOk(test);
  test.causal = Causal::kNone;
  test.attend = BroadcastMask<uint8_t>(test, 3);
  for (size_t i = 0; i < 60; ++i) {
    for (size_t j = 0; j < 150; ++j) test.attend.data.push_back(j <= i + 90);
  }
  EXPECT_TRUE(SameBits(by_flag, RunOk(test)));
}

// Memory order of inputs and outputs changes no bit.
TEST_P(DeterminismTest, LayoutsAndStrides) {
  Random random(620);
  const AttentionCase plain = MakeCase(3, 11, 140, &random);
  const AttentionRun expected = RunOk(plain);
  for (const Layout layout :
       {Layout::kHeadsFirst, Layout::kHeadsLast, Layout::kRowsFirst}) {
    for (const size_t pad : {0, 1, 5}) {
      AttentionCase test(3, 4, 2, 11, 140, 7, 10, layout, pad);
      test.query.SetDense(plain.query.Dense());
      test.key.SetDense(plain.key.Dense());
      test.value.SetDense(plain.value.Dense());
      EXPECT_TRUE(SameBits(RunOk(test), expected)) << "pad " << pad;
    }
  }
}

TEST_P(DeterminismTest, TwiceTheSame) {
  Random random(630);
  AttentionCase test = MakeCase(2, 33, 170, &random);
  AddRandomMasks(&test, &random);
  EXPECT_TRUE(SameBits(RunOk(test), RunOk(test)));
}

// Where floats no longer hold every position, each is rounded by itself.
TEST_P(DeterminismTest, AlibiFarOutDoesNotDependOnTheRowsOfACall) {
  Random random(77);
  AttentionCase all = MakeCase(1, 6, 20, &random);
  all.alibi_slopes = {0.5f, 0.25f, 0.5f, 1.0f};
  const int32_t first = (1 << 24) + 1;
  all.query_offsets = {first};
  const AttentionRun run = RunOk(all);
  for (size_t i = 0; i < 6; ++i) {
    AttentionCase one = MakeCase(1, 1, 20, &random);
    one.key = all.key;
    one.value = all.value;
    for (size_t h = 0; h < 4; ++h) {
      for (size_t d = 0; d < 7; ++d) {
        one.query.At(0, h, 0, d) = all.query.At(0, h, i, d);
      }
    }
    one.alibi_slopes = all.alibi_slopes;
    one.query_offsets = {first + static_cast<int32_t>(i)};
    const AttentionRun alone = RunOk(one);
    for (size_t h = 0; h < 4; ++h) {
      EXPECT_TRUE(SameBits(alone.lse[h], run.lse[h * 6 + i])) << i;
      EXPECT_TRUE(SameBits(alone.output[h * 10], run.output[(h * 6 + i) * 10]));
    }
  }
}

}  // namespace
}  // namespace headwise
