// Holds the reading of the environment to the one table of variables.
#include "runtime/environment.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/runtime/set_variable.h"

namespace lathe {
namespace {

using testing::SetVariable;

TEST(Environment, TheCacheDirectoryHasAnOrder) {
  const SetVariable home("HOME", "/home/somebody");
  const SetVariable none("XDG_CACHE_HOME", nullptr);
  const SetVariable unset("LATHE_CACHE_DIR", nullptr);
  EXPECT_EQ(read_environment().cache_directory, "/home/somebody/.cache/lathe");
  const SetVariable xdg("XDG_CACHE_HOME", "/var/cache");
  EXPECT_EQ(read_environment().cache_directory, "/var/cache/lathe");
  const SetVariable own("LATHE_CACHE_DIR", "/fast/kernels");
  EXPECT_EQ(read_environment().cache_directory, "/fast/kernels");
}

TEST(Environment, ARelativeOrMissingHomeIsNoCache) {
  const SetVariable home("HOME", nullptr);
  const SetVariable xdg("XDG_CACHE_HOME", "relative");
  const SetVariable unset("LATHE_CACHE_DIR", nullptr);
  EXPECT_EQ(read_environment().cache_directory, "");
}

TEST(Environment, AnEmptyCacheDirectoryIsNoCache) {
  const SetVariable home("HOME", "/home/somebody");
  const SetVariable empty("LATHE_CACHE_DIR", "");
  EXPECT_EQ(read_environment().cache_directory, "");
  EXPECT_TRUE(read_environment().cache_nowhere);
}

TEST(Environment, TheCacheHasThreeModes) {
  for (const auto& [value, mode] : {std::pair("off", CacheMode::off),
                                    {"read-only", CacheMode::read_only},
                                    {"on", CacheMode::read_write},
                                    {"", CacheMode::read_write}}) {
    const SetVariable variable("LATHE_CACHE", value);
    EXPECT_EQ(read_environment().cache_mode, mode) << value;
    EXPECT_TRUE(read_environment().problems.empty()) << value;
  }
}

TEST(Environment, SizesHaveUnits) {
  constexpr std::int64_t kMega = 1 << 20;
  for (const auto& [value, bytes] : {std::pair("12345", std::int64_t{12345}),
                                     {"3K", std::int64_t{3072}},
                                     {"200M", 200 * kMega},
                                     {"2g", 2048 * kMega}}) {
    const SetVariable cap("LATHE_CACHE_CAP", value);
    EXPECT_EQ(read_environment().cache_cap, bytes) << value;
  }
  const SetVariable unset("LATHE_CACHE_CAP", nullptr);
  EXPECT_EQ(read_environment().cache_cap, 0);
}

TEST(Environment, TheWaitLimitIsInSeconds) {
  for (const auto& [value, milliseconds] :
       {std::pair("20", 20000L), {"2147483647", 2147483647000L}, {"off", -1L}, {"", 0L}}) {
    const SetVariable limit("LATHE_WAIT_LIMIT", value);
    EXPECT_EQ(read_environment().wait_limit.count(), milliseconds) << value;
    EXPECT_TRUE(read_environment().problems.empty()) << value;
  }
  for (const char* value : {"0", "-3", "soon", "20s", "2147483648"}) {
    const SetVariable limit("LATHE_WAIT_LIMIT", value);
    EXPECT_EQ(read_environment().wait_limit.count(), 0) << value;
    EXPECT_EQ(read_environment().problems.size(), 1u) << value;
  }
}

// Who opens a session refuses it.
TEST(Environment, ATuningThatMakesNoSenseIsAProblem) {
  const SetVariable good("LATHE_TUNING", "executor=mega,gemv.warps=4");
  EXPECT_EQ(read_environment().tuning, "executor=mega,gemv.warps=4");
  EXPECT_TRUE(read_environment().problems.empty());
  for (const char* value : {"gemv.warps", "gemv.colour=2", "executor=fastest", "executor=cpu"}) {
    const SetVariable bad("LATHE_TUNING", value);
    const Environment environment = read_environment();
    EXPECT_EQ(environment.tuning, value);
    ASSERT_EQ(environment.problems.size(), 1u) << value;
    EXPECT_TRUE(environment.problems[0].starts_with("LATHE_TUNING: ")) << environment.problems[0];
  }
}

TEST(Environment, AValueThatMakesNoSenseIsNamedAndCountsAsNotSet) {
  for (const char* value : {"0", "-1", "many", "12T", "12MB", "9999999999G", "M"}) {
    const SetVariable cap("LATHE_CACHE_CAP", value);
    const Environment environment = read_environment();
    EXPECT_EQ(environment.cache_cap, 0) << value;
    ASSERT_EQ(environment.problems.size(), 1u) << value;
    EXPECT_NE(environment.problems[0].find("LATHE_CACHE_CAP"), std::string::npos);
  }
  const SetVariable mode("LATHE_CACHE", "none");
  const Environment environment = read_environment();
  EXPECT_EQ(environment.cache_mode, CacheMode::read_write);
  ASSERT_EQ(environment.problems.size(), 1u);
  EXPECT_NE(environment.problems[0].find("\"none\""), std::string::npos);
}

TEST(Environment, TheTableNamesEachVariableOnce) {
  std::set<std::string> names;
  for (const EnvironmentVariable& row : environment_variables()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(environment_variable(row.variable).name, row.name);
    const bool ours = std::string_view(row.name).starts_with("LATHE_");
    EXPECT_TRUE(!ours || row.reader == VariableReader::library) << row.name;
  }
}

}  // namespace
}  // namespace lathe
