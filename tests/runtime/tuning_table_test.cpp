// Holds sessions to the table of measured tunings: whose words they take, and what counts more.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "lathe/plan/measured_tunings.h"
#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/scratch_directory.h"
#include "tests/runtime/set_variable.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

class TuningTable : public ::testing::Test {
 protected:
  SessionOptions options(ExecutorKind executor = ExecutorKind::automatic) const {
    SessionOptions options;
    options.executor = executor;
    options.plan.context = 32;
    options.disk_cache = false;
    return options;
  }
  Result<std::unique_ptr<Session>> open(const SessionOptions& options) {
    return open_session(make_model(1), options, fake_->platform());
  }
  // Of the model that open() has, on the fake driver's GPU.
  TuningClass its_class() {
    const auto session = open(options());
    const auto file = make_model(1);
    return tuning_class(*file, (*session)->plan().spec, (*session)->plan().options.gpu);
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  void write(const TuningClass& of, const std::string& words) const {
    write(measured_tunings_text({{{of, words, 2, 1}}}));
  }

  std::optional<FakeDriver> fake_{std::in_place};  // one at a time
  ScratchDirectory folder_;
  const std::string path_ = folder_.path() + "/tunings.txt";
};

Selected choice(const Session& session, std::string_view what) {
  for (const Selected& found : session.report().choices)
    if (found.what.starts_with(what)) return found;
  return {};
}

TEST_F(TuningTable, AModelThatWasMeasuredHasItsWords) {
  write(its_class(), "executor=graph,matvec.stages=1");
  const SetVariable table("LATHE_TUNING_TABLE", path_.c_str());
  const auto session = open(options());
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ(
      choice(**session, "executor"),
      (Selected{"executor", "graph", "the fastest measured for this model on this GPU", false}));
  EXPECT_TRUE(choice(**session, "matvec").value.ends_with("stages 1"));
  EXPECT_FALSE(choice(**session, "matvec").set);
  // Not a word is told as one that changes nothing.
  EXPECT_EQ(choice(**session, "tuning").what, "");
}

TEST_F(TuningTable, OtherModelsAndGpusHaveTheRules) {
  TuningClass of = its_class();
  const auto by_rules = open(options());
  const auto differs = [&](int TuningClass::*field) {
    TuningClass other = of;
    ++(other.*field);
    return other;
  };
  for (const TuningClass& other :
       {differs(&TuningClass::compute), differs(&TuningClass::multiprocessors),
        differs(&TuningClass::hidden), differs(&TuningClass::ffn)}) {
    write(other, "executor=graph,matvec.stages=1");
    const SetVariable table("LATHE_TUNING_TABLE", path_.c_str());
    const auto session = open(options());
    ASSERT_TRUE(session) << session.error().text();
    EXPECT_EQ((*session)->report().choices, (*by_rules)->report().choices);
  }
}

TEST_F(TuningTable, WhatIsSetCountsMore) {
  write(its_class(), "executor=graph,matvec.stages=1");
  const SetVariable table("LATHE_TUNING_TABLE", path_.c_str());
  // The table is of sessions whose executor and plan are chosen.
  const auto eager = open(options(ExecutorKind::eager));
  ASSERT_TRUE(eager) << eager.error().text();
  EXPECT_EQ((*eager)->report().executor, "eager");
  EXPECT_FALSE(choice(**eager, "matvec").value.ends_with("stages 1"));
  SessionOptions wanted = options();
  wanted.plan.tuning = "executor=mega,matvec.stages=2";
  const auto session = open(wanted);
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ((*session)->report().executor, "mega");
  EXPECT_TRUE(choice(**session, "matvec").value.ends_with("stages 2"));
  EXPECT_TRUE(choice(**session, "matvec").set);
  {
    const SetVariable variable("LATHE_TUNING", "matvec.stages=2");
    const auto other = open(options());
    EXPECT_EQ((*other)->report().executor, "graph");
    EXPECT_TRUE(choice(**other, "matvec").value.ends_with("stages 2"));
  }
  // Who measures has no table.
  wanted = options();
  wanted.plan.measured = "";
  EXPECT_EQ((*open(wanted))->report().executor, "mega");
}

// A persistent kernel that cannot be had leaves the session to the graph, as by the rules.
TEST_F(TuningTable, AMeasuredExecutorFallsBackWhereItCannotRun) {
  write(its_class(), "executor=mega");
  const SetVariable table("LATHE_TUNING_TABLE", path_.c_str());
  fake_.reset();
  fake_.emplace(FakeOptions{.blocks_per_multiprocessor = 0});
  const auto session = open(options());
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ((*session)->report().executor, "graph");
  SessionOptions unfused = options();
  unfused.plan.fusion = Fusion::none;
  const auto other = open(unfused);
  ASSERT_TRUE(other) << other.error().text();
  EXPECT_EQ((*other)->report().executor, "graph");
}

TEST_F(TuningTable, AnEmptyFileHasNoRows) {
  write("");
  const SetVariable table("LATHE_TUNING_TABLE", path_.c_str());
  const auto session = open(options());
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ((*session)->report().executor, "mega");
}

TEST_F(TuningTable, AFileThatMakesNoSenseIsRefused) {
  const SetVariable table("LATHE_TUNING_TABLE", path_.c_str());
  const auto missing = open(options());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::io);
  EXPECT_EQ(missing.error().message, "LATHE_TUNING_TABLE, " + path_ + ": it cannot be read");
  {
    const SetVariable folder("LATHE_TUNING_TABLE", folder_.path().c_str());
    const auto session = open(options());
    ASSERT_FALSE(session);
    EXPECT_EQ(session.error().code, Code::io);
  }
  for (const char* executor : {"grahp", "cpu", "auto"}) {
    write(TuningClass{90, 132, "llama", 64, 64}, std::string("executor=") + executor);
    const auto session = open(options());
    ASSERT_FALSE(session) << executor;
    EXPECT_NE(session.error().message.find(executor), std::string::npos) << session.error().text();
  }
  write("90 132 llama\n");
  const auto wrong = open(options());
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::invalid_argument);
  EXPECT_EQ(wrong.error().message, "LATHE_TUNING_TABLE, " + path_ +
                                       ": line 1 of the table of tunings is not of the nine "
                                       "columns that it has");
  // The CPU has no kernels, and looks no table up.
  EXPECT_TRUE(Session::open(make_model(1), options(ExecutorKind::cpu)));
}

}  // namespace
}  // namespace lathe::testing
