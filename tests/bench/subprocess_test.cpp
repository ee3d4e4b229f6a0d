// Holds the running of other programs to what they print and how they end.
#include "bench/common/subprocess.h"

#include <gtest/gtest.h>

namespace lathe::bench {
namespace {

CommandOutput run(const std::string& command_line) {
  Result<CommandOutput> output = run_command(command_line);
  if (output) return std::move(output).value();
  ADD_FAILURE() << output.error().text();
  return {};
}

TEST(Subprocess, KeepsBothStreamsAndTheStatus) {
  const CommandOutput output = run("echo out; echo err >&2; exit 3");
  EXPECT_EQ(output.out, "out\n");
  EXPECT_EQ(output.err, "err\n");
  EXPECT_EQ(output.status, 3);
}

TEST(Subprocess, TellsOfSignalsAsShellsDo) {
  EXPECT_EQ(run("kill -TERM $$").status, 128 + 15);
}

TEST(Subprocess, TakesMoreThanAPipeHolds) {
  const CommandOutput output = run("head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero");
  EXPECT_EQ(output.out.size(), 1000000u);
  EXPECT_EQ(output.err.size(), 1000000u);
}

TEST(Subprocess, GivesNothingToRead) {
  EXPECT_EQ(run("cat").out, "");
}

TEST(Subprocess, AsksAgainWhileItWaits) {
  int asked = 0;
  const Result<CommandOutput> output = run_command("sleep 0.7", [&] { ++asked; });
  ASSERT_TRUE(output);
  EXPECT_GE(asked, 2);
}

TEST(Subprocess, QuotesAnyText) {
  const std::string text = "it's a \"$HOME\" `x` \\ {gen}\n;";
  EXPECT_EQ(run("printf %s " + shell_quoted(text)).out, text);
}

}  // namespace
}  // namespace lathe::bench
