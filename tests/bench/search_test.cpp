// Holds the search for a tuning to what it takes for faster.
#include "bench/tune/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "bench/common/subprocess.h"
#include "tests/bench/tiny_model_file.h"

namespace lathe::bench::tune {
namespace {

// A GPU on which a session is as fast as its words say.
struct Gpu {
  std::map<std::string, double> factor = {};   // of a word; 1 of others
  std::map<std::string, double> slowest = {};  // of a word: its slowest repetition over its median
  std::string not_possible = "no word";        // its sessions are as those beside it
  int fails_at = -1;                           // this measurement, by its number
  double drift = 1;                            // each measurement is so much faster than the last
  std::vector<std::string> measured = {};      // in this order

  Result<std::optional<Trial>> operator()(const std::string& words, const std::string& beside) {
    if (words != beside && words.find(not_possible) != words.npos) return std::optional<Trial>();
    if (fails_at == int(measured.size())) return Error{Code::driver, "lost", {}};
    measured.push_back(words);
    Trial trial{words, words.find("executor=graph") != words.npos ? "graph" : "mega", 100, 100};
    for (const auto& [word, faster] : factor)
      if (words.find(word) != words.npos) trial.rate *= faster;
    for (std::size_t i = 1; i < measured.size(); ++i) trial.rate *= drift;
    trial.slowest = trial.rate;
    for (const auto& [word, share] : slowest)
      if (words.find(word) != words.npos) trial.slowest *= share;
    return std::optional<Trial>(trial);
  }
};

Result<Found> find(Gpu& gpu) {
  return search(axes(132), std::ref(gpu), [](const Trial&, double) {});
}

TEST(TuningSearch, KeepsWhatIsFasterAndGoesOnFromThere) {
  Gpu gpu{.factor = {{"matvec.paired=1", 1.2}, {"blocks=66", 1.05}, {"blocks=49", 1.02}}};
  const Result<Found> found = find(gpu);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->words, "matvec.paired=1,blocks=66");
  EXPECT_DOUBLE_EQ(found->rate, 126);
  EXPECT_DOUBLE_EQ(found->by_rules, 100);
  EXPECT_EQ(gpu.measured.front(), "");
  // At the end the words once more, between the rules and the rules.
  const std::vector<std::string> last(gpu.measured.end() - 3, gpu.measured.end());
  EXPECT_EQ(last, (std::vector<std::string>{"", found->words, ""}));
}

TEST(TuningSearch, TriesWhatMattersToTheExecutorAlone) {
  Gpu mega, graph{.factor = {{"executor=graph", 1.1}}};
  EXPECT_EQ(find(mega)->words, "");
  EXPECT_EQ(find(graph)->words, "executor=graph");
  const auto stages = [](const Gpu& gpu) {
    return std::count_if(gpu.measured.begin(), gpu.measured.end(), [](const std::string& words) {
      return words.find("matvec.stages") != words.npos;
    });
  };
  EXPECT_EQ(stages(mega), 0);
  EXPECT_GT(stages(graph), 0);
}

TEST(TuningSearch, ChanceIsNoGain) {
  Gpu small{.factor = {{"matvec.paired=1", 1.009}}};
  EXPECT_EQ(find(small)->words, "");
  Gpu uneven{.factor = {{"matvec.paired=1", 1.1}}, .slowest = {{"matvec.paired=1", 0.9}}};
  EXPECT_EQ(find(uneven)->words, "");
  // A GPU that warms up: all that comes later is faster.
  Gpu drifting{.drift = 1.02};
  EXPECT_EQ(find(drifting)->words, "");
}

TEST(TuningSearch, WhatChangesNothingIsNotMeasured) {
  Gpu gpu{.not_possible = "blocks"};
  ASSERT_TRUE(find(gpu));
  for (const std::string& words : gpu.measured)
    EXPECT_EQ(words.find("blocks"), words.npos) << words;
}

TEST(TuningSearch, TriesFewerBlocksThanThereAreMultiprocessors) {
  for (const int multiprocessors : {1, 2, 46, 132})
    for (const Axis& axis : axes(multiprocessors))
      for (const std::string& value : axis.values)
        if (axis.name == std::string("blocks")) {
          EXPECT_GT(std::stoi(value), 0);
          EXPECT_LT(std::stoi(value), multiprocessors);
        }
}

TEST(TuningSearch, AnErrorEndsIt) {
  for (const int at : {0, 3}) {
    Gpu gpu{.fails_at = at};
    const Result<Found> found = find(gpu);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().message, "lost");
    EXPECT_EQ(int(gpu.measured.size()), at);
  }
}

TEST(TuningSearch, TheProgramTellsWhatItWants) {
  const std::string program = shell_quoted(LATHE_TEST_BENCH_TUNE);
  const CommandOutput help = run_command(program + " --help").value();
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("LATHE_TUNING_TABLE=tunings.txt"), std::string::npos);
  EXPECT_EQ(run_command(program).value().status, 2);
  const TinyModelFile model;
  const CommandOutput no_gpu =
      run_command("CUDA_VISIBLE_DEVICES= " + program + " -m " + shell_quoted(model.path())).value();
  EXPECT_EQ(no_gpu.status, 1);
  EXPECT_EQ(no_gpu.out, "");
  EXPECT_TRUE(no_gpu.err.starts_with("bench_tune: ")) << no_gpu.err;
  const CommandOutput set =
      run_command("LATHE_TUNING=fusion=none " + program + " -m " + shell_quoted(model.path()))
          .value();
  EXPECT_EQ(set.status, 1);
  EXPECT_NE(set.err.find("LATHE_TUNING is set"), std::string::npos) << set.err;
}

}  // namespace
}  // namespace lathe::bench::tune
