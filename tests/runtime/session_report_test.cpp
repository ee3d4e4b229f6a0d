// Owns what a session says of itself: what a token brings over, how long steps and round trips
// take, and how it stands to the oracles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

SessionOptions options_for(ExecutorKind kind) {
  SessionOptions options;
  options.executor = kind;
  options.plan.context = 32;
  options.plan.fusion = Fusion::full;
  options.threads = 2;
  options.disk_cache = false;
  return options;
}

std::unique_ptr<Session> open(const FakeDriver& fake, const SessionOptions& options) {
  auto session = open_session(make_model(), options, fake.platform());
  EXPECT_TRUE(session) << session.error().text();
  return session ? std::move(*session) : nullptr;
}

TEST(SessionReports, WhatATokenBringsOver) {
  FakeDriver fake;
  const int steps = int(open(fake, options_for(ExecutorKind::cpu))->plan().steps.size());
  struct Expected {
    ExecutorKind executor;
    int launches, submissions, to_host;
  };
  // What mega brings back has two words of the kernel's state with it.
  for (const auto& [executor, launches, submissions, to_host] :
       {Expected{ExecutorKind::eager, steps + 1, steps + 1, 4},
        Expected{ExecutorKind::graph, steps + 1, 1, 4},
        Expected{ExecutorKind::mega, steps + 1, 1, 12}, Expected{ExecutorKind::cpu, 0, 0, 0}}) {
    SCOPED_TRACE(executor_name(executor));
    const auto session = open(fake, options_for(executor));
    ASSERT_TRUE(session);
    const SessionReport& report = session->report();
    const bool gpu = executor != ExecutorKind::cpu;
    EXPECT_EQ(report.launches, launches);
    EXPECT_EQ(report.submissions, submissions);
    EXPECT_EQ(report.bytes_to_device, gpu ? 8 : 0);
    EXPECT_EQ(report.bytes_to_host, to_host);
    EXPECT_EQ(report.context, 32);
    EXPECT_EQ(report.parity, 0);
    EXPECT_EQ(report.tuning.substr(0, 4), gpu ? "4 bl" : "132 ") << report.tuning;
    EXPECT_NE(report.tuning.find("tiles ahead, attention in "), std::string::npos);
    // What the report says is what the driver sees.
    for (const std::int32_t token : {3, 50}) {
      fake.reset_counts();
      ASSERT_TRUE(session->step(token));
      EXPECT_EQ(fake.calls("cuLaunchKernel") + fake.calls("cuGraphLaunch") +
                    fake.calls("cuLaunchCooperativeKernel"),
                submissions);
      EXPECT_EQ(fake.bytes_to_host(), 0);
      ASSERT_TRUE(session->sampled());
      EXPECT_EQ(fake.bytes_to_device(), report.bytes_to_device);
      EXPECT_EQ(fake.bytes_to_host(), report.bytes_to_host);
    }
  }
}

// With the state that goes in, and the one that comes out.
TEST(SessionReports, WhatAPartsStepBringsOver) {
  FakeDriver fake;
  for (const ExecutorKind executor :
       {ExecutorKind::eager, ExecutorKind::graph, ExecutorKind::mega, ExecutorKind::cpu}) {
    SCOPED_TRACE(executor_name(executor));
    SessionOptions options = options_for(executor);
    options.plan.part = {
        .first_layer = 1, .layers = 1, .input = PartInput::hidden, .output = PartOutput::hidden};
    const auto session = open(fake, options);
    ASSERT_TRUE(session);
    std::vector<float> state(std::size_t(session->plan().spec.hidden), 0.5f);
    fake.reset_counts();
    ASSERT_TRUE(session->step_hidden(state));
    ASSERT_TRUE(session->read_hidden(HiddenState::stream, state));
    EXPECT_EQ(fake.bytes_to_device(), session->report().bytes_to_device);
    EXPECT_EQ(fake.bytes_to_host(), session->report().bytes_to_host);
    EXPECT_EQ(fake.bytes_to_device() > 4 * 256, executor != ExecutorKind::cpu);
  }
}

TEST(SessionReports, APairOfTilesAheadIsTwo) {
  FakeDriver fake;
  SessionOptions options = options_for(ExecutorKind::graph);
  options.plan.tuning = "matvec.stages=2";
  EXPECT_NE(open(fake, options)->report().tuning.find(" 2 tiles ahead"), std::string::npos);
  options.plan.tuning += ",matvec.paired=1";
  EXPECT_NE(open(fake, options)->report().tuning.find(" 4 tiles ahead"), std::string::npos);
}

TEST(SessionReports, AGraphsKeyIsThatOfItsLaunches) {
  FakeDriver fake;
  const auto key_of = [&](const TinyModel& model, const SessionOptions& options) {
    const auto session = open_session(make_model(model), options, fake.platform());
    EXPECT_TRUE(session) << session.error().text();
    return session ? (*session)->report().graph_key : "";
  };
  const auto key = [&](auto change) {
    SessionOptions options = options_for(ExecutorKind::graph);
    change(options);
    return key_of(model_shape(2), options);
  };
  const auto key_of_model = [&](auto change) {
    TinyModel model = model_shape(2);
    change(model);
    return key_of(model, options_for(ExecutorKind::graph));
  };
  const std::string plain = key([](SessionOptions&) {});
  EXPECT_EQ(plain.size(), 16u);
  EXPECT_EQ(key([](SessionOptions& o) { o.executor = ExecutorKind::eager; }), plain);
  EXPECT_NE(key([](SessionOptions& o) { o.plan.fusion = Fusion::none; }), plain);
  EXPECT_NE(key([](SessionOptions& o) { o.plan.kv = Format::f16; }), plain);
  EXPECT_NE(key([](SessionOptions& o) { o.plan.part.layers = 1; }), plain);
  EXPECT_NE(key([](SessionOptions& o) { o.plan.context = 64; }), plain);
  // Other weights are read from the same places; numbers that kernels have in them are not.
  EXPECT_EQ(key_of_model([](TinyModel& m) { m.seed = 2; }), plain);
  EXPECT_NE(key_of_model([](TinyModel& m) { m.epsilon = 1e-6; }), plain);
  EXPECT_NE(key_of_model([](TinyModel& m) { m.heads = 8; }), plain);
  EXPECT_NE(key_of_model([](TinyModel& m) { m.kv_heads = 1; }), plain);
  // Nor where each operation is a kernel of its own.
  const auto unfused = [&](double epsilon) {
    TinyModel model = model_shape(2);
    model.epsilon = epsilon;
    SessionOptions options = options_for(ExecutorKind::graph);
    options.plan.fusion = Fusion::none;
    return key_of(model, options);
  };
  EXPECT_NE(unfused(1e-6), unfused(1e-5));
}

TEST(SessionTimes, EachStepHasItsTime) {
  for (const ExecutorKind executor : {ExecutorKind::eager, ExecutorKind::cpu}) {
    FakeDriver fake;
    SessionOptions options = options_for(executor);
    options.time_steps = true;
    const auto session = open(fake, options);
    ASSERT_TRUE(session);
    EXPECT_EQ(session->step_times().error().code, Code::invalid_argument);
    ASSERT_TRUE(session->step(3));
    const std::vector<double> times = session->step_times().value();
    ASSERT_EQ(times.size(), session->plan().steps.size());
    for (const double time : times) {
      if (executor == ExecutorKind::eager)
        EXPECT_EQ(time, 2000);  // the fake driver's 2 ms
      else
        EXPECT_GE(time, 0);
    }
    EXPECT_GT(std::accumulate(times.begin(), times.end(), 0.0), 0);
  }
}

TEST(SessionTimes, WhoDoesNotTimeSaysSo) {
  FakeDriver fake;
  for (const ExecutorKind executor :
       {ExecutorKind::graph, ExecutorKind::mega, ExecutorKind::automatic}) {
    SessionOptions options = options_for(executor);
    options.time_steps = true;
    const auto refused = open_session(make_model(), options, fake.platform());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message,
              std::string("Steps are timed by the executors eager and cpu, not by ") +
                  executor_name(executor) + ".");
  }
  for (const ExecutorKind executor :
       {ExecutorKind::eager, ExecutorKind::graph, ExecutorKind::mega, ExecutorKind::cpu}) {
    const auto session = open(fake, options_for(executor));
    ASSERT_TRUE(session && session->step(3));
    EXPECT_EQ(session->step_times().error().code, Code::not_eligible) << executor_name(executor);
  }
}

TEST(SessionTimes, RoundTripsAreMeasured) {
  FakeDriver fake;
  const auto session = open(fake, options_for(ExecutorKind::graph));
  fake.reset_counts();
  const RoundTrip trip = session->submit_round_trip(9).value();
  EXPECT_GT(trip.least, 0);
  EXPECT_LE(trip.least, trip.median);
  EXPECT_EQ(fake.calls("cuEventRecord"), 9);
  EXPECT_EQ(fake.calls("cuLaunchKernel") + fake.calls("cuGraphLaunch"), 0);
  for (const int times : {0, -1, 100001})
    EXPECT_EQ(session->submit_round_trip(times).error().code, Code::invalid_argument);
  EXPECT_EQ(open(fake, options_for(ExecutorKind::cpu))->submit_round_trip(9).value().median, 0);
}

TEST(ParityGate, LetsThroughWhatComputesAsTheOracles) {
  for (const ExecutorKind executor :
       {ExecutorKind::eager, ExecutorKind::graph, ExecutorKind::cpu}) {
    FakeDriver fake;
    SessionOptions options = options_for(executor);
    options.plan.fusion = Fusion::automatic;
    options.parity = 0.999999;
    const auto session = open(fake, options);
    ASSERT_TRUE(session);
    EXPECT_GE(session->report().parity, 0.999999);
    EXPECT_EQ(session->length(), 0);
    EXPECT_FALSE(session->logits());
    // Its first token is what it is without the gate.
    options.parity = 0;
    const auto plain = open(fake, options);
    std::vector<std::int32_t> expected(8), found(8);
    ASSERT_TRUE(plain->generate(3, expected) && session->generate(3, found));
    EXPECT_EQ(found, expected);
    EXPECT_EQ(fake.violations(), std::vector<std::string>{});
  }
}

TEST(ParityGate, KeepsOutWhatDoesNot) {
  FakeOptions broken;
  broken.run_kernel = [](const KernelKey& key, std::span<void* const> arguments) -> Result<void> {
    row(key.type).oracle(key, arguments, 0, 1);
    // The logits of one token.
    if (key.type == KernelType::gemv && key.n == 160) *static_cast<float*>(arguments.back()) += 100;
    return {};
  };
  FakeDriver fake(broken);
  SessionOptions options = options_for(ExecutorKind::graph);
  options.plan.fusion = Fusion::none;  // whose oracles take what the kernels do
  ASSERT_TRUE(open_session(make_model(), options, fake.platform()));
  options.parity = 0.99;
  const auto refused = open_session(make_model(), options, fake.platform());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::internal);
  EXPECT_NE(refused.error().message.find("does not compute what the oracles do: the cosine is 0."),
            std::string::npos)
      << refused.error().message;
  EXPECT_EQ(fake.leaks(), "");
}

TEST(ParityGate, HoldsPartsToTheOraclesToo) {
  FakeDriver fake;
  SessionOptions options = options_for(ExecutorKind::graph);
  options.parity = 0.999999;
  options.plan.part = {.first_layer = 1,
                       .layers = 1,
                       .input = PartInput::hidden,
                       .output = PartOutput::hidden,
                       .blocks = PartBlocks::ffn};
  EXPECT_GE(open(fake, options)->report().parity, 0.999999);
}

// The oracles have a plan of their own, with other kernels.
TEST(ParityGate, WhatIsSetForTheSessionIsNotForTheOracles) {
  FakeDriver fake;
  SessionOptions options = options_for(ExecutorKind::graph);
  options.plan.tuning = "gemv.warps=99";  // of which a fused plan has none
  options.parity = 0.99;
  const auto session = open_session(make_model(), options, fake.platform());
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_GE((*session)->report().parity, 0.99);
}

TEST(ParityGate, ABoundThatMakesNoSenseIsRefused) {
  FakeDriver fake;
  for (const double parity : {-0.5, 1.5, std::nan("")}) {
    SessionOptions options = options_for(ExecutorKind::graph);
    options.parity = parity;
    const auto refused = open_session(make_model(), options, fake.platform());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::invalid_argument);
  }
}

}  // namespace
}  // namespace lathe::testing
