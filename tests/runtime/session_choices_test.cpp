// Holds sessions to what they say they chose, and to what was set in place of a choice.
#include "runtime/session_choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/set_variable.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

SessionOptions options_for(ExecutorKind executor, const char* tuning = "") {
  SessionOptions options;
  options.executor = executor;
  options.plan.context = 32;
  options.plan.tuning = tuning;
  options.disk_cache = false;
  return options;
}

// The session's choice of this, or nothing.
Selected choice(const Session& session, std::string_view what) {
  for (const Selected& found : session.report().choices)
    if (found.what.starts_with(what)) return found;
  return {};
}

TEST(SessionChoices, ASessionTellsItsExecutorAndItsKernels) {
  FakeDriver fake;
  const auto session =
      open_session(make_model(1), options_for(ExecutorKind::automatic), fake.platform());
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ((*session)->report().choices.front().what, "executor");
  EXPECT_EQ(choice(**session, "executor").value, "mega");
  EXPECT_FALSE(choice(**session, "executor").set);
  EXPECT_TRUE(choice(**session, "fusion").value.starts_with("full"));
  EXPECT_NE(choice(**session, "matvec").value.find("blocks 4, "), std::string::npos);
  EXPECT_EQ(choice(**session, "prompts").value, "32 tokens at once");
  EXPECT_NE(choice(**session, "matmul").value, "");
}

TEST(SessionChoices, AFallbackStandsAmongThem) {
  FakeDriver fake({.blocks_per_multiprocessor = 0});
  const auto session =
      open_session(make_model(1), options_for(ExecutorKind::automatic), fake.platform());
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ(choice(**session, "executor").value, "graph");
  EXPECT_NE(choice(**session, "executor").reason.find("have to run at once"), std::string::npos);
}

TEST(SessionChoices, WhatIsSetIsTaken) {
  FakeDriver fake;
  const auto session = open_session(
      make_model(1), options_for(ExecutorKind::automatic, "executor=eager,matvec.stages=1"),
      fake.platform());
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ((*session)->report().executor, "eager");
  EXPECT_TRUE(choice(**session, "executor").set);
  EXPECT_TRUE(choice(**session, "matvec").value.ends_with("stages 1"));
}

TEST(SessionChoices, AnExecutorInCodeCountsMoreThanATuning) {
  FakeDriver fake;
  const auto session = open_session(
      make_model(1), options_for(ExecutorKind::graph, "executor=eager"), fake.platform());
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ((*session)->report().executor, "graph");
}

TEST(SessionChoices, TheEnvironmentSetsWhatTheOptionsDoNot) {
  const SetVariable variable("LATHE_TUNING", "executor=eager,fusion=none,gemv.warps=2");
  FakeDriver fake;
  for (const char* tuning : {"", "executor=graph"}) {
    const auto session =
        open_session(make_model(1), options_for(ExecutorKind::automatic, tuning), fake.platform());
    ASSERT_TRUE(session) << session.error().text();
    EXPECT_EQ((*session)->report().executor, *tuning ? "graph" : "eager");
    EXPECT_EQ(choice(**session, "gemv").value.starts_with("warps 2"), !*tuning);
  }
}

// Which has no persistent kernel: that is said for the sessions beside it.
TEST(SessionChoices, ABatchTakesWhatIsSetToo) {
  for (const auto& [executor, tuning, taken, set] :
       {std::tuple(ExecutorKind::automatic, "executor=eager", "eager", true),
        std::tuple(ExecutorKind::automatic, "executor=graph", "graph", true),
        std::tuple(ExecutorKind::automatic, "executor=mega", "graph", false),
        std::tuple(ExecutorKind::graph, "executor=eager", "graph", true)}) {
    FakeDriver fake;
    BatchOptions options;
    options.session = options_for(executor, tuning);
    options.session.plan.kv = Format::f16;
    options.sequences = 2;
    options.rows = 4;
    const auto batch = open_batch(make_model(1), options, fake.platform());
    ASSERT_TRUE(batch) << batch.error().text();
    EXPECT_EQ((*batch)->report().executor, taken);
    EXPECT_EQ(
        (*batch)->report().choices.front(),
        (Selected{"executor", taken, set ? "as it was set" : "one launch a step of a batch", set}));
  }
}

// So that a program hears of it on a machine without a GPU.
TEST(SessionChoices, ABatchLooksAtTheTuningBeforeItLooksForAGpu) {
  FakeDriver fake;
  BatchOptions options;
  options.session = options_for(ExecutorKind::automatic, "matvec.stage=2");
  const auto batch = open_batch(make_model(1), options, fake.platform());
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, Code::invalid_argument);
  EXPECT_EQ(batch.error().message,
            "the tuning 'matvec.stage=2' names no choice; nearest: matvec.stages, matvec.paired, "
            "matvec.blocks");
  EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRetain"), 0);
}

TEST(SessionChoices, WhatCannotBeIsRefusedBeforeAnyLaunch) {
  FakeDriver fake;
  for (const auto& [tuning, part] :
       {std::pair("executor=cpu", "none of executor=eager, graph and mega"),
        std::pair("executor=best", "no executor \"best\""),
        std::pair("matvec.stages=17", "not possible"),
        std::pair("executor=mega,fusion=none", "needs a plan with Fusion::full")}) {
    const auto session =
        open_session(make_model(1), options_for(ExecutorKind::automatic, tuning), fake.platform());
    ASSERT_FALSE(session) << tuning;
    EXPECT_NE(session.error().message.find(part), std::string::npos) << session.error().text();
    EXPECT_EQ(fake.calls("cuLaunchKernel"), 0);
    EXPECT_EQ(fake.leaks(), "");
  }
}

// The kernels that read prompts have plans of their own.
TEST(SessionChoices, WhatIsExplainedIsRefusedLikeTheOpening) {
  FakeDriver fake;
  SessionOptions options = options_for(ExecutorKind::automatic, "norm_tokens.warps=99");
  const auto refused = open_session(make_model(1), options, fake.platform());
  ASSERT_FALSE(refused);
  options.kernels = DeviceImpl::open({.disk_cache = false}, fake.platform()).value();
  const auto explained = Session::explain(*make_model(1), options);
  ASSERT_FALSE(explained);
  EXPECT_EQ(explained.error().message, refused.error().message);
  options.plan.tuning.clear();
  EXPECT_TRUE(Session::explain(*make_model(1), options));
  options.plan.kv_pages = 4;
  EXPECT_EQ(Session::explain(*make_model(1), options).error().message,
            open_session(make_model(1), options, fake.platform()).error().message);
}

TEST(SessionChoices, AVariableThatMakesNoSenseIsRefusedByItsName) {
  for (const auto& [value, part] :
       {std::pair("gemv.warps=two", "'gemv.warps=two' has no number above 0"),
        std::pair("gemv.wraps=2", "'gemv.wraps=2' names no choice; nearest: gemv.warps"),
        std::pair("executor=fastest", "no executor \"fastest\"")}) {
    const SetVariable variable("LATHE_TUNING", value);
    FakeDriver fake;
    for (const ExecutorKind kind : {ExecutorKind::automatic, ExecutorKind::cpu}) {
      const auto session = open_session(make_model(1), options_for(kind), fake.platform());
      ASSERT_FALSE(session) << value;
      EXPECT_EQ(session.error().code, Code::invalid_argument);
      EXPECT_TRUE(session.error().message.starts_with("LATHE_TUNING: ")) << session.error().text();
      EXPECT_NE(session.error().message.find(part), std::string::npos) << session.error().text();
    }
    const auto explained = Session::explain(*make_model(1), options_for(ExecutorKind::cpu));
    ASSERT_FALSE(explained);
    EXPECT_TRUE(explained.error().message.starts_with("LATHE_TUNING: "));
    // What is set in code counts more: the variable is not looked at.
    EXPECT_TRUE(Session::open(make_model(1), options_for(ExecutorKind::cpu, "sample.warps=2")));
    EXPECT_EQ(fake.calls("cuLaunchKernel"), 0);
  }
}

std::vector<Selected> unused(const std::vector<Selected>& choices) {
  std::vector<Selected> unused;
  std::ranges::copy_if(choices, std::back_inserter(unused),
                       [](const Selected& choice) { return choice.what == "tuning"; });
  return unused;
}

TEST(SessionChoices, AKnownNameThatNothingTakesIsToldWithItsReason) {
  FakeDriver fake;
  SessionOptions options = options_for(
      ExecutorKind::graph,
      "executor=eager,blocks=2,gemv.warps=4,matvec.stages=1,attend.splits=2,attend.matrix=1");
  options.plan.kv = Format::f16;
  options.plan.attention_splits = 3;
  options.plan.blocks = 3;
  const std::vector<Selected> expected = {
      {"tuning", "executor=eager", "changes nothing: executor is graph, as it was set", true},
      {"tuning", "blocks=2", "changes nothing: PlanOptions::blocks counts more", true},
      {"tuning", "gemv.warps=4", "changes nothing: no kernel of the plan is gemv", true},
      {"tuning", "attend.splits=2", "changes nothing: attention_splits counts more", true}};
  const auto session = open_session(make_model(1), options, fake.platform());
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ(unused((*session)->report().choices), expected);
  for (const Selected& word : expected)
    EXPECT_EQ(std::ranges::count((*session)->report().notes,
                                 "the tuning '" + word.value + "' " + word.reason),
              1);
  options.kernels = DeviceImpl::open({.disk_cache = false}, fake.platform()).value();
  const auto explained = Session::explain(*make_model(1), options);
  ASSERT_TRUE(explained) << explained.error().text();
  EXPECT_EQ(unused(*explained), expected);
}

TEST(SessionChoices, WhatIsTakenIsNotToldAsUnused) {
  FakeDriver fake;
  for (const char* tuning :
       {"executor=eager,fusion=none,gemv.warps=2,rms_norm.warps=2,attention.splits=2",
        "executor=mega,fusion=full,blocks=2,matvec.stages=1,attend.splits=2,norm_tokens.warps=4,"
        "top_k.warps=1,sample.warps=1"}) {
    const auto session =
        open_session(make_model(1), options_for(ExecutorKind::automatic, tuning), fake.platform());
    ASSERT_TRUE(session) << session.error().text();
    EXPECT_EQ(unused((*session)->report().choices), std::vector<Selected>{});
  }
}

// Its rows attend in as many splits as a single sequence.
TEST(SessionChoices, ABatchTellsWhatItsRowsDoNotHave) {
  FakeDriver fake;
  BatchOptions options;
  options.session = options_for(ExecutorKind::automatic,
                                "executor=mega,matvec.stages=1,"
                                "attend.splits=2,attend.matrix=1,top_k.warps=1");
  options.session.plan.kv = Format::f16;
  options.sequences = 2;
  const auto batch = open_batch(make_model(1), options, fake.platform());
  ASSERT_TRUE(batch) << batch.error().text();
  EXPECT_EQ(
      unused((*batch)->report().choices),
      (std::vector<Selected>{
          {"tuning", "executor=mega",
           "changes nothing: executor is graph, one launch a step of a batch", true},
          {"tuning", "matvec.stages=1", "changes nothing: no kernel of the plan is matvec", true},
          {"tuning", "attend.matrix=1", "changes nothing: no kernel of the plan is attend",
           true}}));
}

TEST(SessionChoices, OnTheCpuThereIsNoExecutorToSet) {
  const auto session =
      Session::open(make_model(1), options_for(ExecutorKind::cpu, "executor=mega,gemv.rows=2"));
  ASSERT_TRUE(session) << session.error().text();
  const std::vector<Selected> told = unused((*session)->report().choices);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].reason, "changes nothing: executor is cpu, as it was set");
}

TEST(SessionChoices, ASessionOnTheCpuHasThemToo) {
  const auto session = Session::open(make_model(1), options_for(ExecutorKind::cpu));
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ(choice(**session, "executor").value, "cpu");
  const auto explained = Session::explain(*make_model(1), options_for(ExecutorKind::cpu));
  ASSERT_TRUE(explained);
  EXPECT_EQ(*explained, (*session)->report().choices);
}

TEST(SessionChoices, ADevicesFiguresAreTheDrivers) {
  FakeDriver fake({.compute = 120, .multiprocessors = 7});
  const auto device = DeviceImpl::open({.disk_cache = false}, fake.platform());
  ASSERT_TRUE(device) << device.error().text();
  EXPECT_EQ((*device)->profile().compute, 120);
  EXPECT_EQ((*device)->profile().multiprocessors, 7);
}

}  // namespace
}  // namespace lathe::testing
