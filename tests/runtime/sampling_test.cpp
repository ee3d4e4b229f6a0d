// Holds all executors to the same choice of tokens by the same rules, and the recent tokens to the
// sequence, however it came about.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr ExecutorKind kExecutors[] = {ExecutorKind::cpu, ExecutorKind::eager, ExecutorKind::graph};

constexpr Sampling kRules[] = {
    {.temperature = 1, .seed = 5},
    {.repeat_penalty = 1.5f, .repeat_last = 8},
    {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.1f},
    {.temperature = 3, .repeat_penalty = 2, .repeat_last = 256, .seed = 1ull << 63},
};

class SamplingTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(fake_.violations(), std::vector<std::string>{}); }

  std::unique_ptr<Session> open(ExecutorKind kind, const Sampling& sampling) {
    SessionOptions options;
    options.executor = kind;
    options.plan.context = 512;
    options.threads = 2;
    options.disk_cache = false;
    auto session = open_session(file_, options, fake_.platform()).value();
    EXPECT_TRUE(session->set_sampling(sampling));
    return session;
  }

  // One step for each token, and what is chosen after it is the next.
  static Tokens stepped(Session& session, std::int32_t token, int count) {
    Tokens out;
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(session.step(token));
      out.push_back(token = session.sampled().value());
    }
    return out;
  }
  static Tokens generated(Session& session, std::int32_t token, int count) {
    Tokens out(static_cast<std::size_t>(count));
    EXPECT_TRUE(session.generate(token, out));
    return out;
  }

  FakeDriver fake_;
  std::shared_ptr<const GgufFile> file_ = make_model(1);
};

TEST_F(SamplingTest, AllExecutorsChooseTheSame) {
  std::set<Tokens> texts;
  for (const Sampling& sampling : kRules) {
    const Tokens expected = stepped(*open(ExecutorKind::cpu, sampling), 3, 40);
    texts.insert(expected);
    for (ExecutorKind kind : kExecutors) {
      EXPECT_EQ(stepped(*open(kind, sampling), 3, 40), expected) << executor_name(kind);
      const auto session = open(kind, sampling);
      Tokens found = generated(*session, 3, 1);
      for (int lot : {16, 3, 20}) {
        const Tokens more = generated(*session, found.back(), lot);
        found.insert(found.end(), more.begin(), more.end());
      }
      EXPECT_EQ(found, expected) << executor_name(kind);
    }
  }
  EXPECT_EQ(texts.size(), std::size(kRules));
}

TEST_F(SamplingTest, ASeedRepeatsAndAnotherDiffers) {
  const auto text = [&](std::uint64_t seed) {
    return generated(*open(ExecutorKind::graph, {.temperature = 2, .seed = seed}), 3, 30);
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

TEST_F(SamplingTest, RulesCountFromTheNextStepOn) {
  for (ExecutorKind kind : kExecutors) {
    const auto session = open(kind, kRules[0]);
    const auto other = open(kind, {});
    // Nobody waits in between.
    ASSERT_TRUE(session->step(3));
    ASSERT_TRUE(session->set_sampling({}));
    ASSERT_TRUE(session->step(4));
    ASSERT_TRUE(other->step(3));
    ASSERT_TRUE(other->step(4));
    EXPECT_EQ(session->sampled().value(), other->sampled().value());
    ASSERT_TRUE(session->rollback(1));
    ASSERT_TRUE(session->set_sampling(kRules[0]));
    const auto fresh = open(kind, kRules[0]);
    ASSERT_TRUE(fresh->step(3));
    EXPECT_EQ(stepped(*session, 4, 5), stepped(*fresh, 4, 5));
  }
}

TEST_F(SamplingTest, RollbackMakesEarlierTokensRecentAgain) {
  const Sampling sampling{.repeat_penalty = 10, .repeat_last = 256};
  for (ExecutorKind kind : kExecutors) {
    const auto session = open(kind, sampling);
    // Past 256, so that the last hundred take the places of tokens that come back.
    Tokens tokens = {3};
    for (const Tokens& more : {stepped(*session, 3, 100), generated(*session, 4, 200)})
      tokens.insert(tokens.end(), more.begin(), more.end());
    ASSERT_TRUE(session->rollback(200));
    const Tokens found = stepped(*session, 9, 20);

    const auto straight = open(kind, sampling);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(straight->step(tokens[std::size_t(i)]));
    ASSERT_TRUE(straight->step(4));
    for (int i = 101; i < 200; ++i) ASSERT_TRUE(straight->step(tokens[std::size_t(i)]));
    EXPECT_EQ(stepped(*straight, 9, 20), found) << executor_name(kind);
  }
}

TEST_F(SamplingTest, RulesThatMakeNoSenseAreRefusedAndChangeNothing) {
  for (ExecutorKind kind : kExecutors) {
    const auto session = open(kind, kRules[0]);
    fake_.reset_counts();
    const Result<void> refused = session->set_sampling({.temperature = 1, .top_k = 65});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::invalid_argument);
    EXPECT_EQ(refused.error().message, "top-k must be from 1 to 64, or 0 for 64, but is 65");
    EXPECT_EQ(fake_.calls(), 0);
    EXPECT_EQ(stepped(*session, 3, 5), stepped(*open(kind, kRules[0]), 3, 5));
  }
}

}  // namespace
}  // namespace lathe::testing
