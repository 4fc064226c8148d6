// Parts of weights and scores, recomputed from the log-sum-exp.
#include <cmath>
#include <vector>

#include "attention_case.h"
#include "headwise/attention.h"
#include "headwise/workspace.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;

HEADWISE_TEST_ALL_TARGETS(AttentionTileTest);

Floats Tile(const AttentionCase& test, const AttentionTileRequest& request) {
  const size_t rows = request.row_end - request.row_begin;
  const size_t keys = request.key_end - request.key_begin;
  Tensor tile(1, rows, keys);
  Workspace workspace;
  const Status status =
      AttentionTile(test.query.in(), test.key.in(), test.Options(), request,
                    tile.out().data, &workspace);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(tile.GuardsIntact()) << "written outside the tile";
  return tile.Dense();
}

// Every kind, any rows, keys and heads, under every mask and option: what the
// dense matrices hold there.
TEST_P(AttentionTileTest, EqualsTheDenseMatrices) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(5000 + seed);
    const size_t rows = random.Between(1, seed % 4 == 0 ? 140 : 20);
    const size_t keys = random.Between(1, seed % 4 == 1 ? 300 : 40);
    AttentionCase test(2, 6, 3, rows, keys, random.Between(1, 12), 5,
                       Layout::kHeadsLast, 2);
    test.Fill(&random);
    AddRandomMasks(&test, &random);
    AddRandomPositions(&test, &random);
    AddRandomScoreOptions(&test, &random);
    PoisonHidden(&test, &random);
    if (seed % 10 == 9) test.query.At(1, 2, 0, 0) = kNan;
    const AttentionRun dense = RunAndCompare(test);
    AttentionTileRequest request;
    request.batch_entry = random.Between(0, 1);
    request.head = random.Between(0, 5);
    request.row_end = random.Between(0, rows);
    request.row_begin = random.Between(0, request.row_end);
    request.key_end = random.Between(0, keys);
    request.key_begin = random.Between(0, request.key_end);
    request.lse = dense.lse.data();
    for (const TileKind kind : {TileKind::kWeights, TileKind::kRaw,
                                TileKind::kCapped, TileKind::kBiased}) {
      request.kind = kind;
      const Floats got = Tile(test, request);
      const Floats& all = kind == TileKind::kWeights  ? dense.weights
                          : kind == TileKind::kRaw    ? dense.raw
                          : kind == TileKind::kCapped ? dense.capped
                                                      : dense.biased;
      size_t n = 0;
      for (size_t i = request.row_begin; i < request.row_end; ++i) {
        const size_t row = (request.batch_entry * 6 + request.head) * rows + i;
        for (size_t j = request.key_begin; j < request.key_end; ++j, ++n) {
          const float want = all[row * keys + j];
          if (kind != TileKind::kWeights) {
            EXPECT_TRUE(SameBits(got[n], want))
                << test.Describe() << " row " << i << " key " << j << ": "
                << got[n] << " and " << want;
          } else if (!std::isfinite(want) || want == 0.0f) {
            EXPECT_TRUE(SameBits(got[n], want))
                << test.Describe() << " row " << i << " key " << j << ": "
                << got[n] << " and " << want;
          } else {
            // exp(score - lse): the LSE is rounded once.
            EXPECT_NEAR(got[n], want,
                        want * (2e-6 + 2e-7 * std::abs(dense.lse[row])));
          }
        }
      }
      if (HasFailure()) return;
    }
  }
}

// weights of rows 5 to 9 of head 2 at L = 8192, without L x L.
TEST_P(AttentionTileTest, A03RowsOfALongSequence) {
  const size_t length = 8192;
  Random random(3);
  AttentionCase test(1, 4, 2, length, length, 8, 8);
  test.Fill(&random);
  // The forward pass of these rows; the others are not needed.
  AttentionCase few = test;
  few.rows = 10;
  few.query = HeadsTensor(Layout::kHeadsFirst, 1, 4, 10, 8, 0);
  for (size_t h = 0; h < 4; ++h) {
    for (size_t i = 0; i < 10; ++i) {
      for (size_t d = 0; d < 8; ++d) {
        few.query.At(0, h, i, d) = test.query.At(0, h, i, d);
      }
    }
  }
  const AttentionRun dense = RunCore(few);
  ASSERT_OK(dense.status);
  Floats lse(4 * length, kNan);
  for (size_t h = 0; h < 4; ++h) {
    for (size_t i = 0; i < 10; ++i) lse[h * length + i] = dense.lse[h * 10 + i];
  }
  AttentionTileRequest request;
  request.head = 2;
  request.row_begin = 5;
  request.row_end = 10;
  request.key_end = length;
  request.lse = lse.data();
  Floats tile(5 * length, kNan);
  Workspace workspace;
  ASSERT_OK(AttentionTile(test.query.in(), test.key.in(), test.Options(),
                          request, tile.data(), &workspace));
  // Its keys, packed, and little else; L x L floats would be 256 MiB.
  EXPECT_LT(workspace.bytes(), length * 8 * sizeof(float) + (64 << 10));
  for (size_t r = 0; r < 5; ++r) {
    double sum = 0.0;
    for (size_t j = 0; j < length; ++j) {
      const float want = dense.weights[(2 * 10 + 5 + r) * length + j];
      ASSERT_NEAR(tile[r * length + j], want, want * 4e-6);
      sum += static_cast<double>(tile[r * length + j]);
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
  }
  // One cell costs next to nothing.
  request.row_end = 6;
  request.key_begin = 4000;
  request.key_end = 4001;
  Workspace small;
  ASSERT_OK(AttentionTile(test.query.in(), test.key.in(), test.Options(),
                          request, tile.data(), &small));
  EXPECT_LT(small.bytes(), size_t{16} << 10);
  EXPECT_NEAR(tile[0], dense.weights[(2 * 10 + 5) * length + 4000], 1e-8);
}

TEST_P(AttentionTileTest, RefusesWhatIsNotThere) {
  Random random(4);
  AttentionCase test(2, 4, 2, 7, 11, 5, 3);
  test.Fill(&random);
  const Floats lse(2 * 4 * 7);
  const auto refused = [&](auto change, const std::vector<std::string>& parts) {
    AttentionTileRequest request;
    request.row_end = 7;
    request.key_end = 11;
    request.lse = lse.data();
    change(&request);
    Floats tile(7 * 11, 42.0f);
    Workspace workspace;
    ExpectError(AttentionTile(test.query.in(), test.key.in(), test.Options(),
                              request, tile.data(), &workspace),
                StatusCode::kInvalidArgument, parts);
    EXPECT_EQ(tile, Floats(7 * 11, 42.0f));
  };
  using Request = AttentionTileRequest;
  refused([](Request* r) { r->batch_entry = 2; }, {"entry 2", "[2, 4, 7, 11]"});
  refused([](Request* r) { r->head = 4; }, {"head 4"});
  refused([](Request* r) { r->row_end = 8; }, {"rows 0 to 8"});
  refused([](Request* r) { r->key_end = 12; }, {"keys 0 to 12"});
  refused([](Request* r) { r->row_begin = 9; }, {"rows 9 to 7"});
  refused([](Request* r) { r->lse = nullptr; }, {"lse"});
  refused([](Request* r) { r->kind = static_cast<TileKind>(4); }, {"tile"});
  AttentionTileRequest request;
  request.row_end = 1;
  request.key_end = 1;
  request.lse = lse.data();
  Workspace workspace;
  ExpectError(AttentionTile(test.query.in(), test.key.in(), test.Options(),
                            request, nullptr, &workspace),
              StatusCode::kInvalidArgument, {"null"});
}

}  // namespace
}  // namespace headwise
