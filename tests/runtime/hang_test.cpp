// Holds sessions and batches to an end of their waiting when the GPU never ends: an error that
// names what it was, no call afterwards that would wait for ever, and no free of memory in use.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "runtime/device_impl.h"
#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

using Pace = FakeDriver::Pace;
using std::chrono::milliseconds;

SessionOptions options_for(ExecutorKind kind) {
  SessionOptions options;
  options.executor = kind;
  options.plan.context = 32;
  options.plan.fusion = Fusion::full;
  options.disk_cache = false;
  options.wait_limit = milliseconds(5);
  return options;
}

void expect_hung(const Error& error, const std::string& words) {
  EXPECT_EQ(error.code, Code::driver) << error.text();
  EXPECT_NE(error.message.find(words), std::string::npos) << error.text();
  EXPECT_NE(error.message.find("no token for 0.005 s."), std::string::npos) << error.text();
  EXPECT_NE(error.text().find("given up"), std::string::npos) << error.text();
}

class Hang : public ::testing::TestWithParam<ExecutorKind> {
 protected:
  void TearDown() override { EXPECT_EQ(fake_.violations(), std::vector<std::string>{}); }

  FakeDriver fake_;
  const std::shared_ptr<const GgufFile> file_ = make_model(1);
};

INSTANTIATE_TEST_SUITE_P(Executors, Hang,
                         ::testing::Values(ExecutorKind::eager, ExecutorKind::graph,
                                           ExecutorKind::mega),
                         [](const auto& info) { return executor_name(info.param); });

TEST_P(Hang, OfAStepIsAnErrorAndTheContextIsGivenUp) {
  auto session = open_session(file_, options_for(GetParam()), fake_.platform());
  ASSERT_TRUE(session) << session.error().text();
  ASSERT_TRUE((*session)->feed(std::vector<std::int32_t>{3, 4, 5}));
  ASSERT_TRUE((*session)->sampled());
  fake_.set_pace(Pace::hung);
  ASSERT_TRUE((*session)->step(6));  // waits for nothing
  std::vector<std::int32_t> tokens(3);
  const char* words = GetParam() == ExecutorKind::eager   ? "launches, embed."
                      : GetParam() == ExecutorKind::graph ? "a graph of "
                                                          : "the persistent kernel, 4 blocks";
  const auto sampled = (*session)->sampled();
  ASSERT_FALSE(sampled);
  expect_hung(sampled.error(), words);
  expect_hung(sampled.error(), "what was launched before position 4 (");
  // From now on nothing reaches the driver.
  fake_.reset_counts();
  expect_hung((*session)->step(7).error(), words);
  expect_hung((*session)->feed(tokens).error(), words);
  expect_hung((*session)->generate(7, tokens).error(), words);
  expect_hung((*session)->logits().error(), words);
  expect_hung((*session)->rollback(0).error(), words);
  expect_hung((*session)->read_rate().error(), words);
  expect_hung((*session)->record_step().error(), words);
  expect_hung((*session)->begin_replays(7).error(), words);
  session->reset();
  EXPECT_EQ(fake_.calls(), 0);
  EXPECT_NE(fake_.leaks().find("device buffers"), std::string::npos);
}

TEST_P(Hang, OfARunNamesThePosition) {
  const auto session = open_session(file_, options_for(GetParam()), fake_.platform());
  ASSERT_TRUE(session);
  ASSERT_TRUE((*session)->step(3) && (*session)->sampled());
  fake_.set_pace(Pace::hung);
  std::vector<std::int32_t> tokens(3);
  expect_hung((*session)->generate(7, tokens).error(), "the step at position 1 (");
}

TEST_P(Hang, OfARunThatIsListenedToIsAnErrorToo) {
  const auto session = open_session(file_, options_for(GetParam()), fake_.platform());
  ASSERT_TRUE(session);
  fake_.set_pace(Pace::hung);
  std::vector<std::int32_t> tokens(3);
  int told = 0;
  const auto run = (*session)->generate_until(7, tokens, {}, [&](std::int32_t) { ++told; });
  ASSERT_FALSE(run);
  expect_hung(run.error(), " position 0 (");
  EXPECT_EQ(told, 0);
}

TEST_P(Hang, OfWhatCameBeforeTheReadRateIsAnError) {
  const auto session = open_session(file_, options_for(GetParam()), fake_.platform());
  ASSERT_TRUE(session);
  fake_.set_pace(Pace::hung);
  ASSERT_TRUE((*session)->step(3));
  const auto rate = (*session)->read_rate();
  ASSERT_FALSE(rate);
  expect_hung(rate.error(), "before position 1 (");
}

TEST_P(Hang, DoesNotKeepASessionFromClosing) {
  auto session = open_session(file_, options_for(GetParam()), fake_.platform());
  ASSERT_TRUE(session);
  fake_.set_pace(Pace::hung);
  ASSERT_TRUE((*session)->step(3));
  session->reset();
  EXPECT_NE(fake_.leaks().find("device buffers"), std::string::npos);
}

TEST_P(Hang, OfOneSessionIsToldToTheOthersOfItsDevice) {
  DeviceOptions shared;
  shared.disk_cache = false;
  const auto device = DeviceImpl::open(shared, fake_.platform());
  ASSERT_TRUE(device);
  SessionOptions options = options_for(GetParam());
  options.kernels = device.value();
  const auto hung = open_session(file_, options, fake_.platform());
  const auto other = open_session(file_, options, fake_.platform());
  ASSERT_TRUE(hung && other);
  fake_.set_pace(Pace::hung);
  ASSERT_TRUE((*hung)->step(3));
  EXPECT_FALSE((*hung)->sampled());
  expect_hung((*other)->step(3).error(), "before position 1 (");
  // Another device in the process has a context of its own.
  fake_.set_pace(Pace::prompt);
  SessionOptions elsewhere = options_for(GetParam());
  elsewhere.context = fake_.make_context();
  const auto anew = open_session(file_, elsewhere, fake_.platform());
  ASSERT_TRUE(anew) << anew.error().text();
  EXPECT_TRUE((*anew)->step(3) && (*anew)->sampled());
}

// Between once and twice the limit after the last token, as without a listener.
TEST(HangOfARun, ThatIsListenedToEndsInTimeAndNamesThePosition) {
  for (const ExecutorKind kind : {ExecutorKind::eager, ExecutorKind::graph}) {
    FakeDriver fake;
    SessionOptions options = options_for(kind);
    options.wait_limit = milliseconds(300);
    auto session = open_session(make_model(1), options, fake.platform());
    ASSERT_TRUE(session);
    fake.set_pace(Pace::slow);
    std::vector<std::int32_t> tokens(3);
    std::chrono::steady_clock::time_point hung;
    int told = 0;
    const auto run = (*session)->generate_until(7, tokens, {}, [&](std::int32_t) {
      ++told;
      fake.set_pace(Pace::hung);
      hung = std::chrono::steady_clock::now();
    });
    const auto waited = std::chrono::steady_clock::now() - hung;
    ASSERT_FALSE(run);
    EXPECT_NE(run.error().message.find("the step at position 1 ("), std::string::npos)
        << run.error().text();
    EXPECT_EQ(told, 1);
    EXPECT_GT(waited, milliseconds(300));
    EXPECT_LT(waited, milliseconds(3 * 300));
    session->reset();
    EXPECT_EQ(fake.violations(), std::vector<std::string>{});
  }
}

TEST(HangOfABatch, IsAnError) {
  FakeDriver fake({.execute = false});
  BatchOptions options;
  options.session = options_for(ExecutorKind::graph);
  options.rows = 4;
  auto batch = open_batch(make_model(1), options, fake.platform());
  ASSERT_TRUE(batch) << batch.error().text();
  const int sequence = (*batch)->join({}).value();
  fake.set_pace(Pace::hung);
  const BatchRow row{sequence, 3};
  expect_hung((*batch)->step(std::span(&row, 1)).error(), "a step of 1 rows (a graph of ");
  batch->reset();
  EXPECT_EQ(fake.violations(), std::vector<std::string>{});
}

TEST(HangOfABatch, NamesWhatWasLaunched) {
  FakeDriver fake({.execute = false});
  BatchOptions options;
  options.session = options_for(ExecutorKind::graph);
  options.session.plan.context = 64;
  options.rows = 4;
  const std::vector<std::int32_t> prompt(40, 3);
  for (const bool chunk : {true, false}) {
    fake.set_pace(Pace::prompt);
    options.session.context = fake.make_context();
    auto batch = open_batch(make_model(1), options, fake.platform());
    ASSERT_TRUE(batch) << batch.error().text();
    ASSERT_GT((*batch)->report().chunk, 0);
    const int sequence = (*batch)->join({}).value();
    const BatchRow row{sequence, 3};
    ASSERT_TRUE((*batch)->step(std::span(&row, 1)));
    fake.set_pace(Pace::hung);
    ASSERT_TRUE((*batch)->feed(sequence, std::span(prompt).first(chunk ? 40 : 3)));
    const auto rate = (*batch)->read_rate();
    ASSERT_FALSE(rate);
    expect_hung(rate.error(), chunk ? "the reading of a prompt" : "a step of 3 rows (");
  }
  EXPECT_EQ(fake.violations(), std::vector<std::string>{});
}

TEST(SlowDevice, MayBeWaitedForAsLongAsACallerLikes) {
  FakeDriver fake;
  SessionOptions options = options_for(ExecutorKind::eager);
  options.wait_limit = milliseconds::max();
  const auto session = open_session(make_model(1), options, fake.platform());
  ASSERT_TRUE(session);
  fake.set_pace(Pace::slow, milliseconds(2));
  std::vector<std::int32_t> tokens(3);
  int told = 0;
  const auto run = (*session)->generate_until(3, tokens, {}, [&](std::int32_t) { ++told; });
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(told, 3);
}

// As long as tokens come, no run is too long.
TEST(SlowDevice, IsNotAHungOne) {
  FakeDriver fake;
  SessionOptions options = options_for(ExecutorKind::graph);
  options.wait_limit = milliseconds(200);
  const auto session = open_session(make_model(1), options, fake.platform());
  ASSERT_TRUE(session);
  std::vector<std::int32_t> expected(12), found(12);
  ASSERT_TRUE((*session)->generate(3, expected) && (*session)->rollback(0));
  fake.set_pace(Pace::slow, milliseconds(40));
  const auto start = std::chrono::steady_clock::now();
  const Result<void> run = (*session)->generate(3, found);
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_GT(std::chrono::steady_clock::now() - start, milliseconds(2 * 200));
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace lathe::testing
