// B-01: which instruction set runs. A WASM build that lost -msimd128 computes
// the same numbers in scalar emulation, so nothing else would notice.
#include <cstdio>
#include <cstring>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "headwise/info.h"
#include "kernels/kernels.h"
#include "test_util.h"

namespace headwise {
namespace {

TEST(TargetsTest, B01TheExpectedTargetRuns) {
#ifdef HEADWISE_EXPECT_TARGET
  EXPECT_STREQ(SimdTarget(), HEADWISE_EXPECT_TARGET);
#else
  // Where real vectors are compiled in, emulation is never what runs.
  bool vectors = false;
  for (const size_t target : AvailableTargets()) {
    const std::string name = kernels::TestTargetName(target);
    vectors |= name != "EMU128" && name != "SCALAR";
  }
  EXPECT_TRUE(vectors) << "this build has no vector instructions";
  EXPECT_STRNE(SimdTarget(), "EMU128");
  EXPECT_STRNE(SimdTarget(), "SCALAR");
#endif
}

TEST(TargetsTest, EachTargetCanBeForced) {
  std::string available;
  std::set<std::string> names;
  for (const size_t target : AvailableTargets()) {
    ASSERT_TRUE(kernels::UseTestTarget(target));
    const std::string name = kernels::TestTargetName(target);
    // "WASM+relaxed" is still Highway's WASM.
    EXPECT_EQ(std::string(SimdTarget()).rfind(name, 0), 0u)
        << SimdTarget() << " runs where " << name << " was asked for";
    EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
    available += " " + name;
  }
  kernels::UseBestTarget();
  ASSERT_FALSE(names.empty());
  std::string absent;
  for (size_t i = 0; i < kernels::TestTargetCount(); ++i) {
    if (names.count(kernels::TestTargetName(i)) == 0) {
      absent += std::string(" ") + kernels::TestTargetName(i);
    }
  }
  std::printf("tested:%s; compiled in but not on this machine:%s\n",
              available.c_str(), absent.empty() ? " none" : absent.c_str());
}

TEST(TargetsTest, VersionIsThatOfThePackage) {
  EXPECT_STREQ(Version(), HEADWISE_VERSION);
}

}  // namespace
}  // namespace headwise
