// Resolve: defaults, and errors that name the field, what it is and what it
// must be.
#include "headwise/config.h"

#include <cstdint>
#include <memory>

#include "headwise/multi_head_attention.h"
#include "test_util.h"

namespace headwise {
namespace {

Config Basic() {
  Config config;
  config.embed_dim = 12;
  config.num_heads = 4;
  return config;
}

void ExpectRefused(const Config& config,
                   const std::vector<std::string>& parts) {
  Config resolved = Basic();
  resolved.seed = 77;
  ExpectError(Resolve(config, &resolved), StatusCode::kInvalidConfig, parts);
  EXPECT_EQ(resolved.seed, 77u) << "changed on an error";
  // Construction refuses what Resolve refuses, and makes nothing.
  std::unique_ptr<MultiHeadAttention> layer;
  ExpectError(MultiHeadAttention::Create(config, &layer),
              StatusCode::kInvalidConfig, parts);
  EXPECT_EQ(layer, nullptr);
}

TEST(ConfigTest, FillsInDefaults) {
  Config resolved;
  ASSERT_OK(Resolve(Basic(), &resolved));
  EXPECT_EQ(resolved.num_kv_heads, 4u);
  EXPECT_EQ(resolved.head_dim, 3u);
  EXPECT_EQ(resolved.v_head_dim, 3u);
  EXPECT_EQ(resolved.k_dim, 12u);
  EXPECT_EQ(resolved.v_dim, 12u);
  EXPECT_EQ(resolved.out_dim, 12u);
  EXPECT_FALSE(resolved.scale.has_value());
  EXPECT_TRUE(resolved.query_bias);
}

TEST(ConfigTest, KeepsWhatIsGiven) {
  Config config = Basic();
  config.num_kv_heads = 2;
  config.head_dim = 5;
  config.v_head_dim = 6;
  config.k_dim = 7;
  config.v_dim = 8;
  config.out_dim = 9;
  config.scale = 0.0f;
  config.key_bias = false;
  config.seed = 3;
  Config resolved;
  ASSERT_OK(Resolve(config, &resolved));
  EXPECT_EQ(resolved.num_kv_heads, 2u);
  EXPECT_EQ(resolved.head_dim, 5u);
  EXPECT_EQ(resolved.v_head_dim, 6u);
  EXPECT_EQ(resolved.k_dim, 7u);
  EXPECT_EQ(resolved.v_dim, 8u);
  EXPECT_EQ(resolved.out_dim, 9u);
  EXPECT_EQ(resolved.scale, 0.0f);
  EXPECT_FALSE(resolved.key_bias);
  EXPECT_EQ(resolved.seed, 3u);
  // Resolving again changes nothing.
  Config again;
  ASSERT_OK(Resolve(resolved, &again));
  EXPECT_EQ(again.head_dim, 5u);
  EXPECT_EQ(again.v_head_dim, 6u);
}

TEST(ConfigTest, HeadsNeedNotDivideTheWidthWhenHeadDimIsGiven) {
  Config config = Basic();
  config.embed_dim = 13;
  ExpectRefused(config, {"embed_dim", "13", "num_heads", "4", "head_dim"});
  config.head_dim = 3;
  Config resolved;
  EXPECT_TRUE(Resolve(config, &resolved).ok());
}

TEST(ConfigTest, RefusesZeros) {
  Config config = Basic();
  config.embed_dim = 0;
  ExpectRefused(config, {"embed_dim", "is 0", "must be 1"});
  config = Basic();
  config.num_heads = 0;
  ExpectRefused(config, {"num_heads", "is 0", "must be 1"});
}

TEST(ConfigTest, RefusesMoreHeadsThanWidth) {
  Config config = Basic();
  config.num_heads = 24;
  ExpectRefused(config, {"embed_dim", "12", "num_heads", "24"});
}

TEST(ConfigTest, RefusesKeyHeadsThatDoNotDivide) {
  for (const size_t kv_heads : {3, 5, 8}) {
    Config config = Basic();
    config.num_kv_heads = kv_heads;
    ExpectRefused(config,
                  {"num_heads", "4", "num_kv_heads", std::to_string(kv_heads)});
  }
}

TEST(ConfigTest, RefusesScalesThatAreNoNumbers) {
  for (const float scale : {kNan, kInf, -kInf}) {
    Config config = Basic();
    config.scale = scale;
    ExpectRefused(config, {"scale", "finite"});
  }
}

TEST(ConfigTest, RefusesAbsurdSizesByName) {
  const std::pair<const char*, size_t Config::*> fields[] = {
      {"embed_dim", &Config::embed_dim}, {"num_heads", &Config::num_heads},
      {"head_dim", &Config::head_dim},   {"v_head_dim", &Config::v_head_dim},
      {"k_dim", &Config::k_dim},         {"v_dim", &Config::v_dim},
      {"out_dim", &Config::out_dim},
  };
  for (const auto& [name, field] : fields) {
    for (const size_t value : {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 4}) {
      Config config = Basic();
      config.*field = value;
      ExpectRefused(config, {name, std::to_string(value)});
    }
  }
}

// Each is fine, their product is not.
TEST(ConfigTest, RefusesProductsThatOverflow) {
  Config config = Basic();
  config.num_heads = size_t{1} << 20;
  config.head_dim = size_t{1} << 20;
  config.v_head_dim = 1;
  ExpectRefused(config, {"num_heads * head_dim"});
  config.head_dim = 1;
  config.v_head_dim = size_t{1} << 20;
  ExpectRefused(config, {"num_heads * v_head_dim"});
}

}  // namespace
}  // namespace headwise
