// Owns the tests of targets: names, PTX versions and the choice for a device.
#include "lathe/codegen/target.h"

#include <gtest/gtest.h>

namespace lathe {
namespace {

TEST(Target, NamesReadBack) {
  for (const char* name : {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100",
                           "sm_100a", "sm_103", "sm_120", "sm_120a", "sm_121"}) {
    const Result<Target> target = parse_target(name);
    ASSERT_TRUE(target) << name;
    EXPECT_EQ(target->name(), name);
  }
  for (const char* name : {"", "sm_", "sm_70", "sm_9", "90", "sm_90b", "SM_90"}) {
    const Result<Target> target = parse_target(name);
    ASSERT_FALSE(target) << name;
    EXPECT_EQ(target.error().code, Code::unsupported);
    EXPECT_NE(target.error().message.find("sm_90a"), std::string::npos);
  }
}

TEST(Target, OrdersByNumberNotByText) {
  EXPECT_LT(*parse_target("sm_90"), *parse_target("sm_100"));
  EXPECT_LT(*parse_target("sm_89"), *parse_target("sm_120"));
  EXPECT_LT(*parse_target("sm_90"), *parse_target("sm_90a"));
  EXPECT_LT(*parse_target("sm_90a"), *parse_target("sm_100"));
}

TEST(Target, StatesTheLowestPtxVersion) {
  EXPECT_EQ(parse_target("sm_80")->ptx_version(), "7.4");
  EXPECT_EQ(parse_target("sm_90")->ptx_version(), "7.8");
  EXPECT_EQ(parse_target("sm_90a")->ptx_version(), "8.0");
  EXPECT_EQ(parse_target("sm_100")->ptx_version(), "8.6");
  EXPECT_EQ(parse_target("sm_120")->ptx_version(), "8.7");
}

TEST(Target, FollowsTheDevice) {
  const struct {
    int major, minor;
    const char* name;
  } expected[] = {{8, 0, "sm_80"},   {8, 6, "sm_86"},    {8, 7, "sm_87"},
                  {8, 9, "sm_89"},   {9, 0, "sm_90a"},   {10, 0, "sm_100a"},
                  {10, 3, "sm_103"}, {12, 0, "sm_120a"}, {12, 1, "sm_121"}};
  for (const auto& e : expected) {
    const Result<Target> target = target_for_compute_capability(e.major, e.minor);
    ASSERT_TRUE(target) << e.name;
    EXPECT_EQ(target->name(), e.name);
  }
}

TEST(Target, LaterMinorVersionsTakePlainCodeOfTheSameFamily) {
  EXPECT_EQ(target_for_compute_capability(8, 8)->name(), "sm_87");
  EXPECT_EQ(target_for_compute_capability(9, 1)->name(), "sm_90");
  EXPECT_EQ(target_for_compute_capability(10, 1)->name(), "sm_100");
}

TEST(Target, RefusesOldDevices) {
  for (const auto& [major, minor] : {std::pair{7, 5}, {7, 0}, {6, 1}, {0, 0}}) {
    const Result<Target> target = target_for_compute_capability(major, minor);
    ASSERT_FALSE(target);
    EXPECT_NE(target.error().message.find("8.0"), std::string::npos);
  }
}

TEST(Target, EveryLaterDeviceGetsPlainCode) {
  for (int compute = 122; compute < 200; ++compute) {
    const Result<Target> target = target_for_compute_capability(compute / 10, compute % 10);
    ASSERT_TRUE(target) << compute;
    EXPECT_FALSE(target->accelerated) << compute;
    EXPECT_LE(target->compute, compute);
  }
}

}  // namespace
}  // namespace lathe
