// Holds docs/environment.md and the reading of the environment to the one table of variables.
#include "runtime/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace lathe {
namespace {

// Sets a variable for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { had_ ? ::setenv(name_, old_.c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

TEST(Environment, TheDocumentHasEveryVariable) {
  std::ifstream file(LATHE_TEST_ENVIRONMENT_DOCUMENT);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  for (const EnvironmentVariable& variable : environment_variables()) {
    const std::string row = std::string("| `") + variable.name + "` | " + variable.meaning + " |";
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
}

TEST(Environment, TheCacheDirectoryHasAnOrder) {
  const Variable home("HOME", "/home/somebody");
  const Variable none("XDG_CACHE_HOME", nullptr);
  const Variable unset("LATHE_CACHE_DIR", nullptr);
  EXPECT_EQ(read_environment().cache_directory, "/home/somebody/.cache/lathe");
  const Variable xdg("XDG_CACHE_HOME", "/var/cache");
  EXPECT_EQ(read_environment().cache_directory, "/var/cache/lathe");
  const Variable own("LATHE_CACHE_DIR", "/fast/kernels");
  EXPECT_EQ(read_environment().cache_directory, "/fast/kernels");
}

TEST(Environment, ARelativeOrMissingHomeIsNoCache) {
  const Variable home("HOME", nullptr);
  const Variable xdg("XDG_CACHE_HOME", "relative");
  const Variable unset("LATHE_CACHE_DIR", nullptr);
  EXPECT_EQ(read_environment().cache_directory, "");
}

TEST(Environment, OffTurnsTheCacheOff) {
  const Variable off("LATHE_CACHE", "off");
  EXPECT_TRUE(read_environment().cache_off);
  const Variable on("LATHE_CACHE", "on");
  EXPECT_FALSE(read_environment().cache_off);
}

}  // namespace
}  // namespace lathe
