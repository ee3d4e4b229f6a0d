// Runs bench_decode as a user does: streams, exit status, and itself as its own peer.
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/common/subprocess.h"
#include "tests/bench/tiny_model_file.h"

namespace lathe::bench {
namespace {

using Json = nlohmann::json;

constexpr const char* kOptions = " --executor cpu --threads 1 -n 4 -r 2";

CommandOutput run(const std::string& arguments) {
  Result<CommandOutput> output =
      run_command(shell_quoted(LATHE_TEST_BENCH_DECODE) + " " + arguments);
  if (output) return std::move(output).value();
  ADD_FAILURE() << output.error().text();
  return {};
}

class ProgramTest : public ::testing::Test {
 protected:
  std::string model() const { return " -m " + shell_quoted(model_.path()); }

  TinyModelFile model_;
};

TEST_F(ProgramTest, HelpAndVersionGoToStdout) {
  const CommandOutput help = run("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  EXPECT_NE(help.out.find("--peer"), std::string::npos);
  EXPECT_NE(help.out.find("llama-bench -m {model}"), std::string::npos);
  EXPECT_TRUE(run("--version").out.starts_with("bench_decode "));
}

TEST_F(ProgramTest, TheTableIsAllOfStdout) {
  const CommandOutput output = run(model() + kOptions + " -p 3");
  EXPECT_EQ(output.status, 0) << output.err;
  EXPECT_TRUE(output.out.starts_with("| model ")) << output.out;
  EXPECT_NE(output.out.find("| tg4 "), std::string::npos) << output.out;
  EXPECT_NE(output.out.find("| pp3 "), std::string::npos) << output.out;
  EXPECT_NE(output.out.find("not measured"), std::string::npos) << output.out;
  EXPECT_EQ(output.err, "");
}

TEST_F(ProgramTest, IsItsOwnPeer) {
  const CommandOutput output =
      run(model() + kOptions + " -d 8 --output json --peer " +
          shell_quoted(shell_quoted(LATHE_TEST_BENCH_DECODE) +
                       " -m {model} -n {gen} -p {prompt} -d {depth} -r {reps} --output json "
                       "--executor cpu --threads 1"));
  ASSERT_EQ(output.status, 0) << output.err;
  const Json rows = Json::parse(output.out);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["samples_ts"].size(), 4u);
  EXPECT_EQ(rows[0]["peer_samples_ts"].size(), 4u);
  EXPECT_GT(rows[0]["ratio_to_peer"], 0);
}

TEST_F(ProgramTest, AFailureIsASentenceAndTheRestIsStillPrinted) {
  const CommandOutput output = run("-m /no/model" + model() + kOptions + " --output csv");
  EXPECT_EQ(output.status, 1);
  EXPECT_TRUE(output.err.starts_with("bench_decode: cannot open '/no/model'")) << output.err;
  EXPECT_NE(output.out.find("\ntg4,"), std::string::npos) << output.out;
}

TEST_F(ProgramTest, AFullDiskIsAFailure) {
  const CommandOutput output = run(model() + kOptions + " >/dev/full");
  EXPECT_EQ(output.status, 1);
  EXPECT_NE(output.err.find("No space left"), std::string::npos) << output.err;
}

// The peer of the second round sends what Ctrl-C would, so that no clock decides what was measured.
TEST_F(ProgramTest, CtrlCPrintsWhatWasMeasured) {
  const std::string flag = shell_quoted(model_.path() + ".flag");
  const CommandOutput output = run(model() + kOptions + " --rounds 3 --output json --peer " +
                                   shell_quoted("test -e " + flag + " && kill -INT $PPID; touch " +
                                                flag + "; echo tokens/s: 1"));
  std::remove((model_.path() + ".flag").c_str());
  EXPECT_EQ(output.status, 130) << output.err;
  const Json rows = Json::parse(output.out);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["samples_ts"].size(), 2u);
}

TEST_F(ProgramTest, NonsenseEndsWithStatus2) {
  const CommandOutput output = run(model() + " --output xml");
  EXPECT_EQ(output.status, 2);
  EXPECT_EQ(output.out, "");
}

}  // namespace
}  // namespace lathe::bench
