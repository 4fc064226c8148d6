#include "attention_case.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "headwise/workspace.h"
#include "tolerance.h"

namespace headwise {
namespace {

const char* Name(Causal causal) {
  switch (causal) {
    case Causal::kNone:
      return "none";
    case Causal::kStart:
      return "start";
    case Causal::kEnd:
      return "end";
  }
  return "?";
}

template <typename T>
const T* DataOrNull(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

template <typename T>
void Describe(std::ostream& out, const char* name, const MaskData<T>& mask) {
  if (mask.data.empty()) return;
  out << ", " << name << " [" << mask.batch << ", " << mask.heads << ", "
      << mask.rows << ", " << mask.keys << "]";
}

template <typename T>
void Describe(std::ostream& out, const char* name,
              const std::vector<T>& values) {
  if (values.empty()) return;
  out << ", " << name << " " << testing::PrintToString(values);
}

// Anything but 0 is true.
uint8_t RandomByte(Random* random, bool set) {
  if (!set) return 0;
  return random->Chance(0.9) ? 1 : 255;
}

// An array with NaN around it.
class Guarded {
 public:
  explicit Guarded(size_t size) : tensor_(1, 1, size) {}
  float* data() { return tensor_.out().data; }
  std::vector<float> Values() const { return tensor_.Dense(); }
  bool intact() const { return tensor_.GuardsIntact(); }

 private:
  Tensor tensor_;
};

}  // namespace

AttentionCase::AttentionCase(size_t batch_in, size_t heads_in,
                             size_t kv_heads_in, size_t rows_in, size_t keys_in,
                             size_t head_dim_in, size_t v_head_dim_in,
                             Layout layout, size_t pad)
    : batch(batch_in),
      heads(heads_in),
      kv_heads(kv_heads_in),
      rows(rows_in),
      keys(keys_in),
      head_dim(head_dim_in),
      v_head_dim(v_head_dim_in),
      out_layout(layout),
      out_pad(pad),
      query(layout, batch, heads, rows, head_dim, pad),
      key(layout, batch, kv_heads, keys, head_dim, pad),
      value(layout, batch, kv_heads, keys, v_head_dim, pad) {}

void AttentionCase::Fill(Random* random, float spread) {
  query.FillUniform(random, -spread, spread);
  key.FillUniform(random, -spread, spread);
  value.FillUniform(random, -1.0f, 1.0f);
}

AttentionOptions AttentionCase::Options() const {
  AttentionOptions options;
  options.scale = scale;
  options.attend_mask = attend.view();
  options.attn_bias = bias.view();
  options.key_padding_mask = DataOrNull(padding);
  options.key_lengths = DataOrNull(key_lengths);
  options.query_lengths = DataOrNull(query_lengths);
  options.query_offsets = DataOrNull(query_offsets);
  options.causal = causal;
  options.empty_rows = empty_rows;
  options.softcap = softcap;
  options.alibi_slopes = DataOrNull(alibi_slopes);
  options.sinks = DataOrNull(sinks);
  options.window_left = window_left;
  options.window_right = window_right;
  options.attention_chunk = attention_chunk;
  options.prefix_lengths = DataOrNull(prefix_lengths);
  options.cumulative_query_lengths = DataOrNull(cumulative_query_lengths);
  options.cumulative_key_lengths = DataOrNull(cumulative_key_lengths);
  if (!cumulative_query_lengths.empty()) {
    options.packed_sequences = cumulative_query_lengths.size() - 1;
  }
  options.block_mask = block_mask;
  options.score_mod = score_mod;
  options.score_context = score_context;
  if (extra_keys() != 0) {
    options.extra_key = extra_key.in();
    options.extra_value = extra_value.in();
  }
  options.head_gates = DataOrNull(head_gates);
  return options;
}

std::string AttentionCase::Describe() const {
  std::ostringstream out;
  out << "B " << batch << ", H " << heads << ", Hkv " << kv_heads << ", L "
      << rows << ", S " << keys << ", D " << head_dim << ", Dv " << v_head_dim
      << ", causal " << Name(causal);
  if (scale.has_value()) out << ", scale " << *scale;
  headwise::Describe(out, "attend_mask", attend);
  headwise::Describe(out, "attn_bias", bias);
  if (!padding.empty()) out << ", key_padding_mask";
  headwise::Describe(out, "key_lengths", key_lengths);
  headwise::Describe(out, "query_lengths", query_lengths);
  headwise::Describe(out, "query_offsets", query_offsets);
  if (softcap != 0.0f) out << ", softcap " << softcap;
  headwise::Describe(out, "alibi_slopes", alibi_slopes);
  headwise::Describe(out, "sinks", sinks);
  if (window_left >= 0 || window_right >= 0) {
    out << ", window " << window_left << " " << window_right;
  }
  if (attention_chunk != 0) out << ", attention_chunk " << attention_chunk;
  headwise::Describe(out, "prefix_lengths", prefix_lengths);
  headwise::Describe(out, "cumulative_query_lengths", cumulative_query_lengths);
  headwise::Describe(out, "cumulative_key_lengths", cumulative_key_lengths);
  if (block_mask != nullptr) out << ", block_mask";
  if (score_mod != nullptr) out << ", score_mod";
  if (extra_keys() != 0) out << ", extra keys " << extra_keys();
  headwise::Describe(out, "head_gates", head_gates);
  return out.str();
}

AttentionCase ListCase(const std::vector<float>& query,
                       const std::vector<float>& key,
                       const std::vector<float>& value) {
  AttentionCase test(1, 1, 1, query.size(), key.size(), 1, 1);
  test.query.SetDense(query);
  test.key.SetDense(key);
  test.value.SetDense(value);
  test.scale = 1.0f;
  return test;
}

AttentionRun RunCore(const AttentionCase& test) {
  struct Kinds {
    WeightsKind weights;
    ScoresKind scores;
  };
  AttentionRun run;
  Workspace workspace;
  const Status reserved = workspace.Reserve(AttentionWorkspaceBytes(
      test.rows, test.keys, test.head_dim, test.v_head_dim, test.extra_keys()));
  EXPECT_TRUE(reserved.ok()) << reserved.message();
  const size_t reserved_bytes = workspace.bytes();
  const size_t rows = test.batch * test.heads * test.rows;
  const size_t columns = test.columns();
  for (const Kinds kinds : {Kinds{WeightsKind::kNone, ScoresKind::kNone},
                            Kinds{WeightsKind::kPerHead, ScoresKind::kRaw},
                            Kinds{WeightsKind::kAveraged, ScoresKind::kCapped},
                            Kinds{WeightsKind::kNone, ScoresKind::kBiased}}) {
    HeadsTensor output(test.out_layout, test.batch, test.heads, test.rows,
                       test.v_head_dim, test.out_pad);
    Guarded lse(rows);
    Guarded row_max(rows);
    Guarded weights(kinds.weights == WeightsKind::kNone ? 0
                    : kinds.weights == WeightsKind::kPerHead
                        ? rows * columns
                        : test.batch * test.rows * columns);
    Guarded scores(kinds.scores == ScoresKind::kNone ? 0 : rows * columns);
    if (workspace.bytes() != 0) {
      std::memset(workspace.data(), 0xFF, workspace.bytes());  // NaN
    }
    AttentionOutputs outputs;
    outputs.output = output.out();
    outputs.weights_kind = kinds.weights;
    outputs.weights =
        kinds.weights == WeightsKind::kNone ? nullptr : weights.data();
    outputs.lse = lse.data();
    outputs.row_max = row_max.data();
    outputs.scores_kind = kinds.scores;
    outputs.scores =
        kinds.scores == ScoresKind::kNone ? nullptr : scores.data();
    run.status = ScaledDotProductAttention(test.query.in(), test.key.in(),
                                           test.value.in(), test.Options(),
                                           outputs, &workspace);
    EXPECT_TRUE(output.GuardsIntact()) << "written outside the output";
    EXPECT_TRUE(lse.intact()) << "written outside the LSE";
    EXPECT_TRUE(row_max.intact()) << "written outside the row maxima";
    EXPECT_TRUE(weights.intact()) << "written outside the weights";
    EXPECT_TRUE(scores.intact()) << "written outside the scores";
    EXPECT_EQ(workspace.bytes(), reserved_bytes)
        << "AttentionWorkspaceBytes was not enough";
    if (!run.status.ok()) return run;
    switch (kinds.scores) {
      case ScoresKind::kNone:
        run.output = output.Dense();
        run.lse = lse.Values();
        run.row_max = row_max.Values();
        continue;
      case ScoresKind::kRaw:
        run.raw = scores.Values();
        run.weights = weights.Values();
        break;
      case ScoresKind::kCapped:
        run.capped = scores.Values();
        run.averaged_weights = weights.Values();
        break;
      case ScoresKind::kBiased:
        run.biased = scores.Values();
        break;
    }
    EXPECT_TRUE(SameBits(run.output, output.Dense()))
        << "the output depends on what else is asked for";
    EXPECT_TRUE(SameBits(run.lse, lse.Values()))
        << "the LSE depends on what else is asked for";
    EXPECT_TRUE(SameBits(run.row_max, row_max.Values()))
        << "the row maximum depends on what else is asked for";
  }
  return run;
}

reference::AttentionResult RunOracle(const AttentionCase& test) {
  return reference::ScaledDotProductAttention(test.query.in(), test.key.in(),
                                              test.value.in(), test.Options());
}

void ExpectMatchesOracle(const AttentionCase& test) {
  ExpectMatchesOracle(test, RunCore(test));
}

void ExpectMatchesOracle(const AttentionCase& test, const AttentionRun& run) {
  SCOPED_TRACE(test.Describe());
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  const reference::AttentionResult expected = RunOracle(test);
  const AttentionBounds bounds =
      BoundAttention(test.query.in(), test.key.in(), test.value.in(),
                     test.Options(), expected);
  EXPECT_TRUE(AllWithin(run.output, expected.output, bounds.output))
      << "output";
  EXPECT_TRUE(AllWithin(run.weights, expected.weights, bounds.weights))
      << "weights per head";
  EXPECT_TRUE(AllWithin(run.averaged_weights, expected.averaged_weights,
                        bounds.averaged_weights))
      << "averaged weights";
  EXPECT_TRUE(AllWithin(run.lse, expected.lse, bounds.lse)) << "LSE";
  EXPECT_TRUE(AllWithin(run.row_max, expected.row_max, bounds.row_max))
      << "row maximum";
  EXPECT_TRUE(AllWithin(run.raw, expected.raw, bounds.raw)) << "raw scores";
  EXPECT_TRUE(AllWithin(run.capped, expected.capped, bounds.capped))
      << "capped scores";
  EXPECT_TRUE(AllWithin(run.biased, expected.scores, bounds.scores))
      << "biased scores";
}

AttentionRun RunAndCompare(const AttentionCase& test) {
  const AttentionRun run = RunCore(test);
  ExpectMatchesOracle(test, run);
  return run;
}

void PoisonHidden(AttentionCase* test, Random* random) {
  const float poisons[] = {kNan, kInf, -kInf};
  const reference::AttentionResult seen = RunOracle(*test);
  const size_t group = test->heads / test->kv_heads;
  for (size_t b = 0; b < test->batch; ++b) {
    for (size_t kv = 0; kv < test->kv_heads; ++kv) {
      for (size_t j = 0; j < test->keys; ++j) {
        bool visible = false;
        for (size_t h = kv * group; h < (kv + 1) * group; ++h) {
          for (size_t i = 0; i < test->rows; ++i) {
            const size_t row = (b * test->heads + h) * test->rows + i;
            visible |= seen.scores[row * test->columns() + j] !=
                       -std::numeric_limits<double>::infinity();
          }
        }
        if (visible) continue;
        for (size_t d = 0; d < test->head_dim; ++d) {
          test->key.At(b, kv, j, d) = poisons[random->Between(0, 2)];
        }
        for (size_t d = 0; d < test->v_head_dim; ++d) {
          test->value.At(b, kv, j, d) = poisons[random->Between(0, 2)];
        }
      }
    }
  }
}

void AddRandomAttendMask(AttentionCase* test, Random* random, unsigned bits,
                         double keep) {
  test->attend = BroadcastMask<uint8_t>(*test, bits);
  test->attend.data.resize(test->attend.size());
  for (uint8_t& value : test->attend.data) {
    value = RandomByte(random, random->Chance(keep));
  }
}

void AddRandomBias(AttentionCase* test, Random* random, unsigned bits,
                   double hide) {
  test->bias = BroadcastMask<float>(*test, bits);
  test->bias.data.resize(test->bias.size());
  for (float& value : test->bias.data) {
    value = random->Chance(hide) ? -kInf : random->Uniform(-3.0f, 3.0f);
  }
}

void AddRandomMasks(AttentionCase* test, Random* random) {
  const int32_t keys = static_cast<int32_t>(test->keys);
  const int32_t rows = static_cast<int32_t>(test->rows);
  if (random->Chance(0.4)) {
    AddRandomAttendMask(test, random,
                        static_cast<unsigned>(random->Between(0, 15)),
                        random->Pick<double>({0.1, 0.5, 0.95}));
  }
  if (random->Chance(0.4)) {
    AddRandomBias(test, random, static_cast<unsigned>(random->Between(0, 15)),
                  random->Pick<double>({0.0, 0.3}));
  }
  if (random->Chance(0.4)) {
    const double hide = random->Pick<double>({0.1, 0.6});
    for (size_t n = 0; n < test->batch * test->keys; ++n) {
      test->padding.push_back(RandomByte(random, random->Chance(hide)));
    }
  }
  for (size_t b = 0; b < test->batch; ++b) {
    if (b == 0 ? random->Chance(0.4) : !test->key_lengths.empty()) {
      test->key_lengths.push_back(random->BetweenSigned(0, keys));
    }
    if (b == 0 ? random->Chance(0.3) : !test->query_lengths.empty()) {
      test->query_lengths.push_back(random->BetweenSigned(0, rows));
    }
  }
  switch (random->Between(0, 3)) {
    case 0:
      break;
    case 1:
      test->causal = Causal::kStart;
      break;
    case 2:
      test->causal = Causal::kEnd;
      break;
    case 3:
      test->causal = Causal::kStart;
      for (size_t b = 0; b < test->batch; ++b) {
        test->query_offsets.push_back(
            random->BetweenSigned(-rows - 3, keys + 3));
      }
      break;
  }
  if (random->Chance(0.2)) test->empty_rows = EmptyRows::kNan;
  if (random->Chance(0.2)) test->scale = random->Uniform(-1.0f, 1.0f);
}

void AddRandomPositions(AttentionCase* test, Random* random) {
  const int32_t keys = static_cast<int32_t>(test->keys);
  const int32_t rows = static_cast<int32_t>(test->rows);
  if (random->Chance(0.4)) test->window_left = random->BetweenSigned(0, keys);
  if (random->Chance(0.4)) test->window_right = random->BetweenSigned(0, keys);
  if (random->Chance(0.3)) {
    test->attention_chunk = random->BetweenSigned(1, keys + 3);
  }
  const bool prefix = test->causal != Causal::kNone && random->Chance(0.5);
  const bool offsets = test->causal == Causal::kNone && random->Chance(0.5);
  for (size_t b = 0; b < test->batch; ++b) {
    if (prefix) test->prefix_lengths.push_back(random->BetweenSigned(0, keys));
    if (offsets) {
      test->query_offsets.push_back(random->BetweenSigned(-rows - 3, keys + 3));
    }
  }
}

void AddRandomScoreOptions(AttentionCase* test, Random* random) {
  if (random->Chance(0.4)) {
    test->softcap = random->Pick<float>({0.5f, 2.0f, 30.0f});
  }
  const bool alibi = random->Chance(0.4);
  const bool sinks = random->Chance(0.4);
  const bool gates = random->Chance(0.3);
  for (size_t h = 0; h < test->heads; ++h) {
    if (alibi) {
      test->alibi_slopes.push_back(
          random->Chance(0.2) ? 0.0f : random->Uniform(-0.1f, 0.5f));
    }
    if (sinks) {
      test->sinks.push_back(random->Chance(0.2)   ? -kInf
                            : random->Chance(0.2) ? 60.0f
                                                  : random->Uniform(-3, 3));
    }
    if (gates) {
      test->head_gates.push_back(random->Chance(0.3) ? 0.0f
                                                     : random->Uniform(-2, 2));
    }
  }
}

void AddRandomExtraKeys(AttentionCase* test, Random* random) {
  const size_t batch = random->Chance(0.5) ? 1 : test->batch;
  const size_t count = random->Pick<size_t>({1, 2, 5, 37, 128});
  const size_t pad = random->Between(0, 3);
  test->extra_key = HeadsTensor(Layout::kHeadsFirst, batch, test->kv_heads,
                                count, test->head_dim, pad);
  test->extra_value =
      HeadsTensor(Layout::kHeadsLast, random->Chance(0.5) ? 1 : test->batch,
                  test->kv_heads, count, test->v_head_dim, pad);
  test->extra_key.FillUniform(random, -1, 1);
  test->extra_value.FillUniform(random, -1, 1);
}

}  // namespace headwise
