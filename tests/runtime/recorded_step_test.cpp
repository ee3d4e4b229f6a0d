// Holds steps that a caller captures into a graph of its own to the steps that the session takes:
// the replays decode the same, and what cannot be captured is refused before anything is recorded.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

constexpr int kReplays = 16;
constexpr std::int32_t kPrompt[] = {3, 77, 5};

class RecordedStep : public ::testing::TestWithParam<ExecutorKind> {
 protected:
  RecordedStep() {
    options_.executor = GetParam();
    options_.plan.context = 32;
    options_.plan.fusion = Fusion::full;
    options_.disk_cache = false;
    options_.context = context_;
    options_.stream = stream_;
  }
  void TearDown() override { EXPECT_EQ(fake_.violations(), std::vector<std::string>{}); }

  std::unique_ptr<Session> open() {
    auto session = open_session(file_, options_, fake_.platform());
    if (session) return std::move(session).value();
    ADD_FAILURE() << session.error().text();
    return nullptr;
  }
  // A session that has the prompt, and what chose the token after it.
  std::unique_ptr<Session> open_and_feed(const Sampling& sampling, std::int32_t& next) {
    auto session = open();
    if (!session) return nullptr;
    EXPECT_TRUE(session->set_sampling(sampling));
    EXPECT_TRUE(session->feed(kPrompt));
    next = session->sampled().value();
    return session;
  }
  FakeRecording record(Session& session) {
    fake_.begin_capture(stream_);
    fake_.reset_counts();
    const Result<void> recorded = session.record_step();
    EXPECT_TRUE(recorded) << recorded.error().text();
    // Beside the launches: push, pop, and the question whether the stream is being captured.
    EXPECT_EQ(fake_.calls(), fake_.calls("cuLaunchKernel") + 3);
    return fake_.end_capture(stream_);
  }
  void replay(const FakeRecording& recording, int times) {
    for (int i = 0; i < times; ++i) fake_.replay(recording, stream_);
  }

  FakeDriver fake_;
  const CUcontext context_ = fake_.make_context();
  const CUstream stream_ = fake_.make_stream();
  const std::shared_ptr<const GgufFile> file_ = make_model();
  SessionOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Executors, RecordedStep,
                         ::testing::Values(ExecutorKind::eager, ExecutorKind::graph),
                         [](const auto& info) { return executor_name(info.param); });

std::vector<float> logits_of(Session& session) {
  const auto logits = session.logits().value();
  return {logits.begin(), logits.end()};
}

TEST_P(RecordedStep, ReplaysDecodeWhatStepsDecode) {
  for (const Sampling& sampling : {Sampling{}, Sampling{.temperature = 1, .seed = 5}}) {
    std::int32_t next = 0;
    std::vector<std::int32_t> expected(kReplays), found(kReplays);
    const auto plain = open_and_feed(sampling, next);
    ASSERT_TRUE(plain && plain->generate(next, expected));

    const auto session = open_and_feed({}, next);
    ASSERT_TRUE(session);
    const FakeRecording recording = record(*session);
    EXPECT_EQ(session->length(), 3);  // nothing has been decoded
    // The rules are those of the replays, not of the recording.
    ASSERT_TRUE(session->set_sampling(sampling));
    ASSERT_TRUE(session->rollback(2) && session->step(kPrompt[2]));
    ASSERT_TRUE(session->begin_replays(session->sampled().value()));
    replay(recording, kReplays);
    ASSERT_TRUE(session->take_replays(std::span(found).first(10)));
    EXPECT_EQ(session->length(), 13);
    ASSERT_TRUE(session->take_replays(std::span(found).subspan(10)));
    EXPECT_EQ(found, expected);
    EXPECT_EQ(session->length(), plain->length());
    EXPECT_EQ(session->sampled().value(), expected.back());
    EXPECT_EQ(logits_of(*session), logits_of(*plain));

    // Steps and further replays go on from there.
    ASSERT_TRUE(plain->generate(expected.back(), std::span(expected).first(4)));
    ASSERT_TRUE(session->step(found.back()));
    found[0] = session->sampled().value();
    ASSERT_TRUE(session->begin_replays(found[0]));
    replay(recording, 3);
    ASSERT_TRUE(session->take_replays(std::span(found).subspan(1, 3)));
    EXPECT_TRUE(std::equal(found.begin(), found.begin() + 4, expected.begin()));
    EXPECT_EQ(logits_of(*session), logits_of(*plain));
    ASSERT_TRUE(session->rollback(5) && plain->rollback(5));
    ASSERT_TRUE(session->step(9) && plain->step(9));
    EXPECT_EQ(logits_of(*session), logits_of(*plain));
  }
}

TEST_P(RecordedStep, WhatCannotBeCapturedIsRefusedByNameBeforeAnythingIsRecorded) {
  const auto session = open();
  ASSERT_TRUE(session && session->feed(kPrompt));
  std::vector<std::int32_t> tokens(12, 3);
  const auto refused = [&](const char* words, const auto& result) {
    ASSERT_FALSE(result) << words;
    EXPECT_EQ(result.error().code, Code::invalid_argument);
    EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().text();
    EXPECT_NE(result.error().message.find("captured"), std::string::npos) << result.error().text();
  };
  fake_.begin_capture(stream_);
  refused("the reading back", session->sampled());
  refused("the reading back", session->logits());
  EXPECT_TRUE(fake_.end_capture(stream_).empty());
  ASSERT_TRUE(session->begin_replays(1));
  fake_.begin_capture(stream_);
  refused("a step whose token the host gives", session->step(1));
  refused("the reading of a prompt", session->feed(tokens));
  refused("a run of tokens", session->generate(1, tokens));
  refused("the sampling state", session->set_sampling({}));
  refused("the sampling state", session->rollback(1));
  refused("the read rate", session->read_rate());
  refused("the beginning of replays", session->begin_replays(1));
  refused("the taking of replays", session->take_replays(std::span(tokens).first(1)));
  refused("builds and loads kernels", open_session(file_, options_, fake_.platform()));
  EXPECT_TRUE(session->record_step());
  EXPECT_EQ(fake_.end_capture(stream_).size(), session->plan().steps.size() + 1);
  EXPECT_EQ(session->length(), 3);

  const auto not_captured = session->record_step();
  ASSERT_FALSE(not_captured);
  EXPECT_NE(not_captured.error().message.find("not being captured"), std::string::npos);
}

TEST_P(RecordedStep, ReplaysAreCounted) {
  std::int32_t next = 0;
  const auto session = open_and_feed({}, next);
  ASSERT_TRUE(session);
  const FakeRecording recording = record(*session);
  std::vector<std::int32_t> tokens(4);
  const auto refused = [&](const char* words) {
    const auto taken = session->take_replays(tokens);
    ASSERT_FALSE(taken);
    EXPECT_NE(taken.error().message.find(words), std::string::npos) << taken.error().text();
    EXPECT_EQ(session->length(), 3);
  };
  refused("none have begun");
  ASSERT_TRUE(session->begin_replays(next));
  EXPECT_TRUE(session->take_replays({}));
  replay(recording, 3);
  refused("4 replays are to be taken, and 3 have run");
  replay(recording, 1);
  EXPECT_TRUE(session->take_replays(tokens));
  ASSERT_TRUE(session->rollback(3));
  refused("none have begun");
  EXPECT_EQ(session->begin_replays(-1).error().code, Code::out_of_range);

  // Of a text that is gone there are none, also where the other one is as long.
  const auto begin_and_replay = [&] {
    ASSERT_TRUE(session->begin_replays(next));
    replay(recording, 4);
  };
  begin_and_replay();
  ASSERT_TRUE(session->rollback(3));
  refused("none have begun");
  const KvSnapshot snapshot = session->snapshot(3).value();
  begin_and_replay();
  ASSERT_TRUE(session->restore(snapshot));
  refused("none have begun");
  ASSERT_TRUE(session->rollback(0) && session->begin_replays(next));
  replay(recording, 4);
  ASSERT_TRUE(session->reset());
  EXPECT_FALSE(session->take_replays(tokens));
  EXPECT_EQ(session->length(), 0);
}

// Far enough on that a recent token takes the place of an earlier one.
TEST_P(RecordedStep, ReplaysThatAreNotTakenLeaveNothing) {
  options_.plan.context = 288;
  const std::vector<std::int32_t> prompt(256, 3);
  const Sampling sampling{.repeat_penalty = 10, .repeat_last = kMaxRepeatLast};
  std::int32_t next = 0;
  std::vector<std::int32_t> expected(4), found(4);
  const auto plain = open_and_feed(sampling, next);
  ASSERT_TRUE(plain && plain->feed(prompt));
  next = plain->sampled().value();
  ASSERT_TRUE(plain->generate(next, expected));
  std::int32_t other = 0;
  const auto session = open_and_feed(sampling, other);
  ASSERT_TRUE(session && session->feed(prompt));
  const FakeRecording recording = record(*session);
  for (int taken : {0, 2}) {
    ASSERT_TRUE(session->rollback(259) && session->begin_replays(next));
    replay(recording, 4);
    ASSERT_TRUE(session->take_replays(std::span(found).first(std::size_t(taken))));
    for (int i = taken; i < 4; ++i) {
      ASSERT_TRUE(session->step(i == 0 ? next : found[std::size_t(i) - 1]));
      found[std::size_t(i)] = session->sampled().value();
    }
    EXPECT_EQ(found, expected);
  }
}

TEST_P(RecordedStep, ResultsAreThoseOfWhatWasTaken) {
  std::int32_t next = 0;
  std::vector<std::int32_t> tokens(3);
  const auto session = open_and_feed({}, next);
  ASSERT_TRUE(session);
  const FakeRecording recording = record(*session);
  const auto none = [&] {
    return !session->sampled() && !session->logits() && !session->choose({});
  };
  ASSERT_TRUE(session->begin_replays(next));
  EXPECT_TRUE(none());
  replay(recording, 3);
  EXPECT_TRUE(none());
  ASSERT_TRUE(session->take_replays(std::span(tokens).first(2)));
  EXPECT_TRUE(none());  // the third has run
  ASSERT_TRUE(session->take_replays(std::span(tokens).subspan(2)));
  EXPECT_EQ(session->sampled().value(), tokens[2]);
  EXPECT_EQ(session->choose({}).value(), tokens[2]);
}

TEST_P(RecordedStep, ASessionMayCloseWhileItsStreamIsCaptured) {
  auto session = open();
  ASSERT_TRUE(session && session->feed(kPrompt) && session->sampled());
  fake_.begin_capture(stream_);
  session.reset();
  EXPECT_TRUE(fake_.end_capture(stream_).empty());
  BatchOptions of_batch;
  of_batch.session = options_;
  of_batch.rows = 4;
  auto batch = open_batch(file_, of_batch, fake_.platform());
  ASSERT_TRUE(batch) << batch.error().text();
  fake_.begin_capture(stream_);
  batch->reset();
  EXPECT_TRUE(fake_.end_capture(stream_).empty());
}

TEST_P(RecordedStep, ReplaysBeyondTheContextStayInIt) {
  std::int32_t next = 0;
  std::vector<std::int32_t> expected(29), found(29), one_more(30);
  const auto plain = open_and_feed({}, next);
  ASSERT_TRUE(plain && plain->generate(next, expected));
  const auto session = open_and_feed({}, next);
  ASSERT_TRUE(session);
  const FakeRecording recording = record(*session);
  ASSERT_TRUE(session->begin_replays(next));
  replay(recording, 28);
  ASSERT_TRUE(session->take_replays(std::span(found).first(28)));
  replay(recording, 5);  // room for one
  EXPECT_EQ(session->take_replays(one_more).error().code, Code::out_of_range);
  EXPECT_TRUE(session->take_replays(std::span(found).subspan(28)));
  EXPECT_EQ(session->length(), 32);
  EXPECT_TRUE(std::equal(found.begin(), found.begin() + 28, expected.begin()));
}

TEST(RecordedStepOnTheCpu, IsRefusedByName) {
  SessionOptions options;
  options.executor = ExecutorKind::cpu;
  const auto session = Session::open(make_model(1), options).value();
  for (const Result<void>& refused :
       {session->record_step(), session->begin_replays(1), session->take_replays({})}) {
    EXPECT_EQ(refused.error().code, Code::not_eligible);
    EXPECT_NE(refused.error().message.find("cpu executor"), std::string::npos);
  }
}

}  // namespace
}  // namespace lathe::testing
