// The key/value cache as a store: formats, lengths, and what is still held.
#include "headwise/kv_cache.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "cache_case.h"
#include "memory.h"
#include "test_util.h"

namespace headwise {
namespace {

using Floats = std::vector<float>;
using Counts = std::vector<int32_t>;

constexpr CacheType kTypes[] = {CacheType::kFloat32, CacheType::kFloat16,
                                CacheType::kBFloat16, CacheType::kInt8};

// One entry, one head, one token of these values.
std::unique_ptr<KvCache> CacheOfRow(CacheType type, const Floats& row) {
  KvCacheConfig config;
  config.num_kv_heads = 1;
  config.head_dim = row.size();
  config.capacity = 2;
  config.type = type;
  std::unique_ptr<KvCache> cache = PoisonedCache(config);
  if (cache == nullptr) return nullptr;
  const auto view =
      HeadsView<const float>::HeadsFirst(row.data(), 1, 1, 1, row.size());
  const Status status = cache->Append(view, view, nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
  return cache;
}

Floats StoredAs(CacheType type, const Floats& row) {
  const auto cache = CacheOfRow(type, row);
  Floats key(row.size());
  Floats value(row.size());
  cache->Unpack(0, 0, 0, 1, key.data(), value.data());
  EXPECT_TRUE(SameBits(key, value));
  return key;
}

// Keys and values that tell where they belong: batch 3, Hkv 2, D 5, Dv 4.
AttentionCase Tokens(size_t count, uint64_t seed) {
  Random random(seed);
  AttentionCase test(3, 4, 2, count, count, 5, 4);
  test.Fill(&random);
  return test;
}

Status AppendRows(const AttentionCase& tokens, size_t begin, size_t end,
                  const int32_t* counts, KvCache* cache) {
  return cache->Append(RowsOf(tokens.key.in(), begin, end),
                       RowsOf(tokens.value.in(), begin, end), counts);
}

TEST(KvCacheTest, K06Int8CodesAndScale) {
  const auto cache = CacheOfRow(CacheType::kInt8, {.1f, -.5f, 1.27f, -1.0f});
  int8_t key[4];
  int8_t value[4];
  float key_scale = 0;
  float value_scale = 0;
  ASSERT_OK(cache->Read(0, 0, 0, 1, key, &key_scale, value, &value_scale));
  EXPECT_FLOAT_EQ(key_scale, 0.01f);
  EXPECT_EQ(std::vector<int>(key, key + 4),
            (std::vector<int>{10, -50, 127, -100}));
  EXPECT_EQ(std::memcmp(key, value, 4), 0);
  EXPECT_EQ(key_scale, value_scale);
}

TEST(KvCacheTest, K06RowOfZeros) {
  const auto cache = CacheOfRow(CacheType::kInt8, {0, 0, -0.0f});
  int8_t key[3];
  int8_t value[3];
  float scale = kNan;
  float value_scale = kNan;
  ASSERT_OK(cache->Read(0, 0, 0, 1, key, &scale, value, &value_scale));
  EXPECT_EQ(scale, 0.0f);
  EXPECT_EQ(std::vector<int>(key, key + 3), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(StoredAs(CacheType::kInt8, {0, 0, 0}), (Floats{0, 0, 0}));
}

TEST(KvCacheTest, K06Int8ErrorIsHalfAStep) {
  Random random(6);
  for (size_t n = 0; n < 50; ++n) {
    const Floats row = random.Floats(17, -3.0f, 3.0f);
    float largest = 0;
    for (const float x : row) largest = std::max(largest, std::fabs(x));
    const Floats stored = StoredAs(CacheType::kInt8, row);
    for (size_t d = 0; d < row.size(); ++d) {
      EXPECT_LE(std::fabs(stored[d] - row[d]), 0.5001f * largest / 127.0f);
    }
  }
}

// A row that is no number stays recognisable as such.
TEST(KvCacheTest, K06Int8OfNanAndInfinity) {
  for (const float poison : {kNan, kInf, -kInf}) {
    for (const float x : StoredAs(CacheType::kInt8, {1.0f, poison})) {
      EXPECT_TRUE(std::isnan(x));
    }
  }
}

TEST(KvCacheTest, Float32IsExact) {
  const Floats row = {1.0f, -0.0f, 1e-45f, 3.4e38f, kInf, -kInf, kNan};
  EXPECT_TRUE(SameBits(StoredAs(CacheType::kFloat32, row), row));
}

TEST(KvCacheTest, Float16RoundsToNearestEven) {
  const Floats row = {1.0f,     65504.0f,     65519.99f,       65520.0f,
                      -1e9f,    0x1p-24f,     0x1p-25f,        0x1.8p-25f,
                      0x1p-14f, 0x1.ff8p-15f, 1.0f + 0x1p-11f, 1.0f + 0x3p-11f,
                      kNan};
  const Floats want = {
      1.0f,     65504.0f, 65504.0f,     kInf, -kInf,          0x1p-24f, 0.0f,
      0x1p-24f, 0x1p-14f, 0x1.ff8p-15f, 1.0f, 1.0f + 0x1p-9f, kNan};
  EXPECT_TRUE(SameBits(StoredAs(CacheType::kFloat16, row), want));
}

TEST(KvCacheTest, BFloat16RoundsToNearestEven) {
  const Floats row = {1.0f, 1.0f + 0x1p-8f, 1.0f + 0x3p-8f, 3e38f,
                      kInf, kNan,           -2.5f};
  const Floats got = StoredAs(CacheType::kBFloat16, row);
  EXPECT_EQ(got[0], 1.0f);
  EXPECT_EQ(got[1], 1.0f);
  EXPECT_EQ(got[2], 1.0f + 0x1p-6f);
  EXPECT_NEAR(got[3], 3e38f, 3e38f / 256);
  EXPECT_EQ(got[4], kInf);
  EXPECT_TRUE(std::isnan(got[5]));
  EXPECT_EQ(got[6], -2.5f);
}

// What is stored once is stored again without a change.
TEST(KvCacheTest, StoringAgainChangesNothing) {
  Random random(8);
  for (const CacheType type : kTypes) {
    const Floats once = StoredAs(type, random.Floats(33, -4.0f, 4.0f));
    const Floats twice = StoredAs(type, once);
    for (size_t d = 0; d < once.size(); ++d) {
      EXPECT_NEAR(twice[d], once[d], 1e-6f);
    }
    if (type != CacheType::kInt8) EXPECT_TRUE(SameBits(once, twice));
  }
}

TEST(KvCacheTest, K10PastTheCapacityNothingIsAppended) {
  const AttentionCase tokens = Tokens(5, 10);
  const auto cache = PoisonedCache(CacheConfig(tokens, 4));
  ExpectError(AppendRows(tokens, 0, 5, nullptr, cache.get()),
              StatusCode::kInvalidArgument, {"0 tokens", "4", "5", "capacity"});
  EXPECT_EQ(cache->max_length(), 0u);
  ASSERT_OK(AppendRows(tokens, 0, 4, nullptr, cache.get()));
  std::unique_ptr<KvCache> before;
  ASSERT_OK(cache->Fork(&before));
  // Entries 0 and 1 have room for no more, entry 2 asks for none.
  const Counts counts = {0, 1, 0};
  ExpectError(AppendRows(tokens, 4, 5, counts.data(), cache.get()),
              StatusCode::kInvalidArgument, {"entry 1", "4", "1 more"});
  EXPECT_TRUE(SameHeldTokens(*cache, *before));
  ExpectError(cache->CheckRoom(1, nullptr), StatusCode::kInvalidArgument,
              {"entry 0"});
  ASSERT_OK(cache->CheckRoom(0, nullptr));
}

TEST(KvCacheTest, RefusesConfigurationsThatContradict) {
  KvCacheConfig good;
  good.num_kv_heads = 2;
  good.head_dim = 3;
  good.capacity = 4;
  std::unique_ptr<KvCache> cache;
  const auto refused = [&](auto change, const std::vector<std::string>& parts) {
    KvCacheConfig config = good;
    change(&config);
    ExpectError(KvCache::Create(config, &cache), StatusCode::kInvalidConfig,
                parts);
    EXPECT_EQ(cache, nullptr);
  };
  refused([](KvCacheConfig* c) { c->batch = 0; }, {"batch", "0", "1"});
  refused([](KvCacheConfig* c) { c->num_kv_heads = 0; }, {"num_kv_heads"});
  refused([](KvCacheConfig* c) { c->head_dim = 0; }, {"head_dim"});
  refused([](KvCacheConfig* c) { c->capacity = 0; }, {"capacity"});
  refused([](KvCacheConfig* c) { c->sink_tokens = 3; },
          {"sink_tokens", "3", "window"});
  refused([](KvCacheConfig* c) { c->window = 5; },
          {"capacity 4", "window 5", "contradict"});
  ASSERT_OK(KvCache::Create(good, &cache));
  EXPECT_EQ(cache->config().v_head_dim, 3u);
}

TEST(KvCacheTest, MoreThanTheMachineHasIsAnError) {
  KvCacheConfig config;
  config.num_kv_heads = SIZE_MAX / 4;
  config.head_dim = 64;
  config.capacity = 1000;
  std::unique_ptr<KvCache> cache;
  ExpectError(KvCache::Create(config, &cache), StatusCode::kOutOfMemory,
              {"KvCache"});
  EXPECT_EQ(cache, nullptr);
}

// Positions are int32; sums of sizes must not wrap on the way to a check.
TEST(KvCacheTest, NumbersAtTheEndOfTheRange) {
  constexpr size_t kMost = INT32_MAX;
  std::unique_ptr<KvCache> cache;
  KvCacheConfig config;
  config.num_kv_heads = 1;
  config.head_dim = 1;
  for (const size_t huge : {kMost + 1, SIZE_MAX - 65, SIZE_MAX}) {
    KvCacheConfig rolling = config;
    rolling.window = huge;
    ExpectError(KvCache::Create(rolling, &cache), StatusCode::kOutOfMemory,
                {"KvCache"});
    rolling.window = 1;
    rolling.sink_tokens = huge;
    ExpectError(KvCache::Create(rolling, &cache), StatusCode::kOutOfMemory,
                {"KvCache"});
  }
  EXPECT_EQ(cache, nullptr);

  KvCacheConfig fixed = config;
  fixed.capacity = 4;
  ASSERT_OK(KvCache::Create(fixed, &cache));
  const float row[2] = {1, 2};
  for (const size_t first : {SIZE_MAX, SIZE_MAX - 1, size_t{3}}) {
    ExpectError(cache->Write(0, 0, first, 2, row, nullptr, row, nullptr),
                StatusCode::kInvalidArgument, {"outside"});
  }
  ASSERT_OK(cache->Write(0, 0, 2, 2, row, nullptr, row, nullptr));
  ExpectError(cache->Fork(nullptr), StatusCode::kInvalidArgument, {"out"});
  ExpectError(cache->Reorder(nullptr), StatusCode::kInvalidArgument,
              {"source"});

  KvCacheConfig rolling = config;
  rolling.window = 3;
  ASSERT_OK(KvCache::Create(rolling, &cache));
  ExpectError(cache->SetLength(0, kMost + 1, kMost - 3),
              StatusCode::kInvalidArgument, {"2147483648"});
  ASSERT_OK(cache->SetLength(0, kMost - 1, kMost - 4));
  ASSERT_OK(cache->CheckRoom(1, nullptr));
  ExpectError(cache->CheckRoom(2, nullptr), StatusCode::kInvalidArgument,
              {"do not fit"});
}

TEST(KvCacheTest, AppendOfAnotherShapeChangesNothing) {
  const AttentionCase tokens = Tokens(3, 11);
  const auto cache = PoisonedCache(CacheConfig(tokens, 7));
  HeadsView<const float> key = tokens.key.in();
  key.cols = 4;
  ExpectError(cache->Append(key, tokens.value.in(), nullptr),
              StatusCode::kShapeMismatch, {"key", "4", "5"});
  key = tokens.key.in();
  key.heads = 1;
  ExpectError(cache->Append(key, tokens.value.in(), nullptr),
              StatusCode::kShapeMismatch, {"[3, 2, n, 5]"});
  key = tokens.key.in();
  key.rows = 2;
  ExpectError(cache->Append(key, tokens.value.in(), nullptr),
              StatusCode::kShapeMismatch, {"3", "2"});
  const Counts counts = {1, 4, 0};
  ExpectError(cache->Append(tokens.key.in(), tokens.value.in(), counts.data()),
              StatusCode::kInvalidArgument, {"counts[1]", "4", "0 to 3"});
  const Counts negative = {-1, 0, 0};
  ExpectError(
      cache->Append(tokens.key.in(), tokens.value.in(), negative.data()),
      StatusCode::kInvalidArgument, {"counts[0]", "-1"});
  EXPECT_EQ(cache->max_length(), 0u);
}

TEST(KvCacheTest, RaggedAppendForkReorderCropClear) {
  const AttentionCase tokens = Tokens(9, 12);
  for (const CacheType type : kTypes) {
    const auto cache = PoisonedCache(CacheConfig(tokens, 9, 0, 0, type));
    const Counts counts = {4, 0, 2};
    ASSERT_OK(AppendRows(tokens, 0, 5, counts.data(), cache.get()));
    EXPECT_EQ(cache->length(0), 4u);
    EXPECT_EQ(cache->length(1), 0u);
    EXPECT_EQ(cache->length(2), 2u);
    EXPECT_EQ(cache->max_length(), 4u);
    EXPECT_TRUE(cache->Holds(0, 3));
    EXPECT_FALSE(cache->Holds(0, 4));
    EXPECT_FALSE(cache->Holds(1, 0));

    std::unique_ptr<KvCache> fork;
    ASSERT_OK(cache->Fork(&fork));
    EXPECT_TRUE(SameHeldTokens(*cache, *fork));
    EXPECT_EQ(cache->bytes(), fork->bytes());
    ASSERT_OK(AppendRows(tokens, 5, 7, nullptr, fork.get()));
    EXPECT_EQ(cache->length(0), 4u) << "a fork is a copy";
    ASSERT_OK(fork->Crop(0, 4));
    ASSERT_OK(fork->Crop(1, 0));
    ASSERT_OK(fork->Crop(2, 2));
    EXPECT_TRUE(SameHeldTokens(*cache, *fork));

    // Entry 0 goes to two places, and is itself replaced.
    const Counts source = {2, 0, 0};
    ASSERT_OK(fork->Reorder(source.data()));
    EXPECT_EQ(fork->length(0), 2u);
    EXPECT_EQ(fork->length(1), 4u);
    EXPECT_EQ(fork->length(2), 4u);
    Floats got(5), want(5), value(4);
    fork->Unpack(1, 1, 3, 1, got.data(), value.data());
    cache->Unpack(0, 1, 3, 1, want.data(), value.data());
    EXPECT_TRUE(SameBits(got, want));
    fork->Unpack(0, 0, 1, 1, got.data(), value.data());
    cache->Unpack(2, 0, 1, 1, want.data(), value.data());
    EXPECT_TRUE(SameBits(got, want));
    const Counts wrong = {0, 3, 1};
    ExpectError(fork->Reorder(wrong.data()), StatusCode::kInvalidArgument,
                {"source[1]", "3", "0 to 2"});
    EXPECT_EQ(fork->length(0), 2u);

    ExpectError(cache->Crop(0, 5), StatusCode::kInvalidArgument,
                {"entry 0", "5", "4"});
    ExpectError(cache->Crop(3, 0), StatusCode::kInvalidArgument, {"entry 3"});
    cache->Clear();
    EXPECT_EQ(cache->max_length(), 0u);
  }
}

TEST(KvCacheTest, BytesAreWhatIsStored) {
  const AttentionCase tokens = Tokens(1, 13);
  const size_t rows = 3 * 2 * 7;
  const size_t scales = 2 * sizeof(float);
  const size_t want[] = {rows * 9 * 4, rows * 9 * 2, rows * 9 * 2,
                         rows * (9 + scales)};
  for (size_t n = 0; n < 4; ++n) {
    EXPECT_EQ(PoisonedCache(CacheConfig(tokens, 7, 0, 0, kTypes[n]))->bytes(),
              want[n]);
  }
}

// Everything a cache holds can be read out and written into another.
TEST(KvCacheTest, ReadAndWriteRoundTrip) {
  const AttentionCase tokens = Tokens(150, 14);
  for (const CacheType type : kTypes) {
    for (const size_t window : {0, 6}) {
      const KvCacheConfig config =
          CacheConfig(tokens, 150, window, window == 0 ? 0 : 2, type);
      const auto cache = PoisonedCache(config);
      const Counts counts = {150, 90, 1};
      ASSERT_OK(AppendRows(tokens, 0, 150, counts.data(), cache.get()));
      const auto restored = PoisonedCache(config);
      std::vector<unsigned char> key(5 * 4);
      std::vector<unsigned char> value(4 * 4);
      float key_scale = 0;
      float value_scale = 0;
      for (size_t b = 0; b < 3; ++b) {
        for (size_t head = 0; head < 2; ++head) {
          for (size_t p = 0; p < cache->length(b); ++p) {
            const Status status =
                cache->Read(b, head, p, 1, key.data(), &key_scale, value.data(),
                            &value_scale);
            EXPECT_EQ(status.ok(), cache->Holds(b, p));
            if (!status.ok()) continue;
            ASSERT_OK(restored->Write(b, head, p, 1, key.data(), &key_scale,
                                      value.data(), &value_scale));
          }
        }
        ASSERT_OK(restored->SetLength(b, cache->length(b)));
      }
      EXPECT_TRUE(SameHeldTokens(*cache, *restored));
      ExpectError(cache->Read(2, 0, 1, 1, key.data(), &key_scale, value.data(),
                              &value_scale),
                  StatusCode::kInvalidArgument, {"token 1", "not held"});
      if (window != 0) continue;
      ExpectError(cache->SetLength(0, 151), StatusCode::kInvalidArgument,
                  {"151", "150"});
      ExpectError(cache->Write(0, 0, 149, 2, key.data(), &key_scale,
                               value.data(), &value_scale),
                  StatusCode::kInvalidArgument, {"149"});
      EXPECT_EQ(cache->length(0), 150u);
    }
  }
}

TEST(KvCacheTest, RollingKeepsTheFirstAndTheLast) {
  const AttentionCase tokens = Tokens(400, 15);
  const auto cache = PoisonedCache(CacheConfig(tokens, 0, 16, 4));
  for (size_t row = 0; row < 400; row += 8) {
    ASSERT_OK(AppendRows(tokens, row, row + 8, nullptr, cache.get()));
    const size_t length = row + 8;
    ASSERT_EQ(cache->length(1), length);
    Floats key(5), value(4);
    for (size_t p = 0; p < length; ++p) {
      if (p < 4 || p + 16 >= length) EXPECT_TRUE(cache->Holds(1, p)) << p;
      cache->Unpack(1, 1, p, 1, key.data(), value.data());
      for (size_t d = 0; d < 5; ++d) {
        EXPECT_EQ(key[d],
                  cache->Holds(1, p) ? tokens.key.At(1, 1, p, d) : 0.0f);
      }
    }
  }
  EXPECT_FALSE(cache->Holds(1, 4));
  EXPECT_FALSE(cache->Holds(1, 300));
}

// What later tokens have overwritten does not come back by cropping.
TEST(KvCacheTest, RollingCropMindsWhatIsGone) {
  const AttentionCase tokens = Tokens(300, 16);
  const auto cache = PoisonedCache(CacheConfig(tokens, 0, 16, 4));
  ASSERT_OK(AppendRows(tokens, 0, 300, nullptr, cache.get()));
  size_t oldest = 299;
  while (cache->Holds(0, oldest - 1)) --oldest;
  ExpectError(cache->Crop(0, 100), StatusCode::kInvalidArgument,
              {"dropped", "100"});
  EXPECT_EQ(cache->length(0), 300u);
  // In two steps as in one.
  ASSERT_OK(cache->Crop(0, 290));
  EXPECT_EQ(cache->Holds(0, oldest), true);
  EXPECT_EQ(cache->Holds(0, oldest - 1), false);
  ExpectError(cache->Crop(0, oldest + 15), StatusCode::kInvalidArgument,
              {"dropped"});
  EXPECT_EQ(cache->length(0), 290u);
  ASSERT_OK(cache->Crop(0, oldest + 16));
  Floats key(5), value(4);
  cache->Unpack(0, 1, oldest, 1, key.data(), value.data());
  EXPECT_EQ(key[0], tokens.key.At(0, 1, oldest, 0));
  // Back into the sink tokens: a fresh start.
  ASSERT_OK(cache->Crop(0, 3));
  ASSERT_OK(AppendRows(tokens, 3, 40, nullptr, cache.get()));
  for (size_t p = 0; p < 40; ++p) {
    ASSERT_TRUE(cache->Holds(0, p)) << p;
    cache->Unpack(0, 1, p, 1, key.data(), value.data());
    EXPECT_EQ(key[0], tokens.key.At(0, 1, p, 0)) << p;
  }
}

// A restored cache holds what was written, and no more.
TEST(KvCacheTest, RollingRestoreKnowsItsOldestToken) {
  const AttentionCase tokens = Tokens(200, 18);
  const auto cache = PoisonedCache(CacheConfig(tokens, 0, 16, 4));
  ASSERT_OK(AppendRows(tokens, 0, 200, nullptr, cache.get()));
  ASSERT_OK(cache->SetLength(0, 190, 170));
  EXPECT_TRUE(cache->Holds(0, 3));
  EXPECT_FALSE(cache->Holds(0, 169));
  EXPECT_TRUE(cache->Holds(0, 170));
  EXPECT_FALSE(cache->Holds(0, 190));
  ExpectError(cache->Crop(0, 180), StatusCode::kInvalidArgument, {"dropped"});
}

// M-15: the caches of finished generations are freed; one that goes on takes
// no more than it had.
TEST(KvCacheTest, M15AppendingAllocatesNothing) {
  const AttentionCase tokens = Tokens(64, 17);
  for (const size_t window : {0, 8}) {
    const auto cache = PoisonedCache(CacheConfig(tokens, 64, window, 0));
    const size_t bytes = cache->bytes();
    const size_t count = AllocationCount();
    for (size_t generation = 0; generation < 20; ++generation) {
      ASSERT_OK(AppendRows(tokens, 0, 64, nullptr, cache.get()));
      cache->Clear();
    }
    EXPECT_EQ(AllocationCount(), count);
    EXPECT_EQ(cache->bytes(), bytes);
  }
}

}  // namespace
}  // namespace headwise
