// Holds a whole benchmark on the CPU executor to what was asked: rows, contexts, turns with a peer,
// and what remains when something fails.
#include "bench/decode/benchmark.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "tests/bench/tiny_model_file.h"

namespace lathe::bench {
namespace {

class BenchmarkTest : public ::testing::Test {
 protected:
  BenchmarkTest() {
    options_.models = {model_.path()};
    options_.executors = {ExecutorKind::cpu};
    options_.gens = {4};
    options_.repetitions = 2;
    options_.session.threads = 1;
    events_.watch.progress = [](std::string_view, std::int64_t, std::int64_t) {};
    events_.watch.interrupted = [this] { return interrupted_; };
    events_.note = [](const std::string&) {};
    events_.error = [this](const Error& error) { errors_.push_back(error.text()); };
  }

  std::vector<Row> run() { return run_benchmark(options_, events_); }

  TinyModelFile model_;
  Options options_;
  Events events_;
  std::vector<std::string> errors_;
  bool interrupted_ = false;
};

TEST_F(BenchmarkTest, MeasuresEveryCombination) {
  options_.kv = {Format::f16, Format::f32};
  options_.depths = {0, 8};
  options_.prompts = {0, 6};
  const std::vector<Row> rows = run();
  EXPECT_TRUE(errors_.empty()) << errors_.front();
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[0].test.name(), "pp6");
  EXPECT_EQ(rows[1].test.name(), "tg4");
  EXPECT_EQ(rows[2].test.name(), "pp6 @ d8");
  EXPECT_EQ(rows[3].test.name(), "tg4 @ d8");
  EXPECT_EQ(rows[4].set_up->kv, Format::f32);
  EXPECT_EQ(rows[0].set_up->context, 6);
  EXPECT_EQ(rows[2].set_up->context, 14);
  EXPECT_EQ(rows[2].set_up, rows[3].set_up);
  for (const Row& row : rows) {
    EXPECT_EQ(row.rates.size(), 2u);
    EXPECT_GT(row.milliseconds_per_token(), 0);
    EXPECT_EQ(row.set_up->report.executor, "cpu");
    EXPECT_GT(row.set_up->report.weight_bytes, 0);
    EXPECT_GT(row.set_up->parameters, 0);
    EXPECT_EQ(row.bytes_per_second().has_value(), row.test.gen > 0);
    EXPECT_FALSE(row.share_of_read_rate());
    EXPECT_FALSE(row.watts);
  }
}

TEST_F(BenchmarkTest, AContextMayBeGiven) {
  options_.context = 32;
  const std::vector<Row> rows = run();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].set_up->context, 32);
}

TEST_F(BenchmarkTest, APeerTakesTurnsWithLathe) {
  const std::string log = ::testing::TempDir() + "bench turns " + std::to_string(::getpid());
  options_.peer = "echo {gen} {prompt} {depth} {reps} >>'" + log + "'; echo tokens/s: 2";
  options_.rounds = 3;
  const std::vector<Row> rows = run();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].peer_rates, (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(rows[0].rates.size(), 6u);
  ASSERT_TRUE(rows[0].ratio_to_peer());
  EXPECT_DOUBLE_EQ(*rows[0].ratio_to_peer(), statistics(rows[0].rates).median / 2);
  std::ifstream file(log);
  const std::string asked((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(asked, "4 0 0 2\n4 0 0 2\n4 0 0 2\n");
  std::remove(log.c_str());
}

TEST_F(BenchmarkTest, APeerThatFailsLeavesOurResult) {
  options_.peer = "echo nonsense about {model}";
  options_.rounds = 2;
  const std::vector<Row> rows = run();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].rates.size(), 4u);
  EXPECT_FALSE(rows[0].ratio_to_peer());
  EXPECT_EQ(rows[0].peer_error, "the peer's output has no speed in it");
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_NE(errors_[0].find("expected: a JSON array"), std::string::npos) << errors_[0];
}

TEST_F(BenchmarkTest, WhatCannotBeMeasuredLeavesTheRest) {
  options_.models = {"/no/model", model_.path()};
  options_.kv = {Format::q4_k, Format::f16};
  options_.depths = {0, 100};
  const std::vector<Row> rows = run();
  ASSERT_EQ(rows.size(), 1u);
  ASSERT_EQ(errors_.size(), 4u);
  EXPECT_NE(errors_[0].find("/no/model"), std::string::npos) << errors_[0];
  EXPECT_NE(errors_[1].find("q4_k"), std::string::npos) << errors_[1];
  EXPECT_NE(errors_[3].find("the context is 104 positions"), std::string::npos) << errors_[3];
  EXPECT_NE(errors_[3].find("cpu executor, f16 KV cache @ d100"), std::string::npos) << errors_[3];
}

TEST_F(BenchmarkTest, NothingStartsAfterAnInterrupt) {
  interrupted_ = true;
  EXPECT_TRUE(run().empty());
  EXPECT_TRUE(errors_.empty());
}

}  // namespace
}  // namespace lathe::bench
