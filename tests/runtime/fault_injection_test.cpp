// Lets driver calls fail at random, with the errors of real machines, a thousand times: every error
// is clear, nothing is left behind, other sessions go on as if nothing had been, and after the loss
// of a context a session can be opened anew in the same process.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

constexpr int kSeeds = 1000;
constexpr std::array kKinds = {ExecutorKind::eager, ExecutorKind::graph, ExecutorKind::mega};
constexpr std::array kPrompt = {5, 6, 7};

SessionOptions options_for(ExecutorKind kind) {
  SessionOptions options;
  options.executor = kind;
  options.plan.context = 16;
  options.disk_cache = false;
  return options;
}

std::vector<float> logits_of(Session& session) {
  EXPECT_TRUE(session.set_sampling({}));
  EXPECT_TRUE(session.rollback(0));
  EXPECT_TRUE(session.feed(kPrompt));
  const auto logits = session.logits();
  EXPECT_TRUE(logits) << logits.error().text();
  if (!logits) return {};
  return {logits->begin(), logits->end()};
}

void expect_clear(const Error& error) {
  EXPECT_TRUE(error.message.ends_with('.')) << error.text();
  EXPECT_GT(error.message.size(), 20u) << error.text();
  EXPECT_NE(error.code, Code::internal) << error.text();
  if (error.code != Code::driver) return;
  EXPECT_NE(error.text().find("call: cu"), std::string::npos) << error.text();
  EXPECT_NE(error.driver_status, 0) << error.text();
}

// Uses a session as a caller that does not give up would. Whether any call was refused.
bool use_stubbornly(Session& session) {
  bool refused = false;
  const auto see = [&](const auto& result) {
    if (result) return;
    refused = true;
    expect_clear(result.error());
  };
  std::vector<std::int32_t> tokens(3);
  for (int round = 0; round < 2; ++round) {
    see(session.set_sampling({.temperature = 1}));
    see(session.rollback(0));
    if (const auto step = session.step(1); !step) {
      see(step);
      continue;  // what follows would be refused for want of a step
    }
    see(session.generate(2, tokens));
    see(session.sampled());
    see(session.logits());
  }
  return refused;
}

class FaultInjection : public ::testing::TestWithParam<ExecutorKind> {
 protected:
  // A session in a context of its own, and one that is disturbed in the primary context.
  void run(std::uint32_t seed, double rate) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FakeDriver fake;
    {
      SessionOptions options = options_for(ExecutorKind::eager);
      options.context = fake.make_context();
      const auto bystander = open_session(file_, options, fake.platform());
      ASSERT_TRUE(bystander) << bystander.error().text();
      ASSERT_EQ(logits_of(**bystander), expected_);
      disturb(fake, seed, rate);
      EXPECT_FALSE(fake.is_lost());  // the last one there has let go of it
      EXPECT_EQ(logits_of(**bystander), expected_);
      EXPECT_EQ((*bystander)->length(), int(kPrompt.size()));

      const auto anew = open_session(file_, options_for(GetParam()), fake.platform());
      ASSERT_TRUE(anew) << anew.error().text();
      expect_sound(**anew);
    }
    EXPECT_EQ(fake.leaks(), "");
    EXPECT_EQ(fake.violations(), std::vector<std::string>{});
  }

  void disturb(FakeDriver& fake, std::uint32_t seed, double rate) {
    fake.fail_at_random({.seed = seed, .rate = rate});
    auto session = open_session(file_, options_for(GetParam()), fake.platform());
    if (session) {
      const bool refused = use_stubbornly(**session);
      failed_later_ += refused;
      fake.stop_failing();
      if (fake.is_lost()) {
        ++lost_;
        const auto step = (*session)->step(1);
        ASSERT_FALSE(step);
        EXPECT_NE(step.error().text().find("open them anew"), std::string::npos)
            << step.error().text();
      } else {
        expect_sound(**session);
      }
    } else {
      ++failed_to_open_;
      expect_clear(session.error());
      out_of_memory_ += session.error().code == Code::out_of_memory;
    }
    EXPECT_TRUE(session || fake.random_failures() > 0);
    fake.stop_failing();
  }

  // The fake runs no persistent kernel: of mega only the calls are told apart.
  void expect_sound(Session& session) const {
    const std::vector<float> logits = logits_of(session);
    if (GetParam() != ExecutorKind::mega) {
      EXPECT_EQ(logits, expected_);
    }
  }

  void SetUp() override {
    FakeDriver fake;
    const auto session = open_session(file_, options_for(ExecutorKind::eager), fake.platform());
    ASSERT_TRUE(session);
    expected_ = logits_of(**session);
  }

  const std::shared_ptr<const GgufFile> file_ = make_model(1);
  std::vector<float> expected_;
  int failed_to_open_ = 0, failed_later_ = 0, out_of_memory_ = 0, lost_ = 0;
};

TEST_P(FaultInjection, LeavesNothingBehindAndOthersAlone) {
  constexpr std::array kRates = {0.1, 0.02, 0.005};
  for (std::uint32_t seed = 0; seed < kSeeds / kKinds.size() + 1; ++seed) {
    run(seed, kRates[seed % kRates.size()]);
    if (HasFatalFailure()) return;
  }
  // All that was to be seen was seen.
  EXPECT_GT(failed_to_open_, 50);
  EXPECT_GT(failed_later_, 10);
  EXPECT_GT(out_of_memory_, 20);
  EXPECT_GT(lost_, 5);
}

INSTANTIATE_TEST_SUITE_P(All, FaultInjection, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return executor_name(info.param); });

// Memory that is promised as free and then is not there: each allocation in turn.
TEST(OutOfMemory, NamesTheBufferAndWhatWouldFit) {
  const auto file = make_model(1);
  int index = 0, device = 0, pinned = 0;
  for (bool failed = true; failed; ++index) {
    FakeDriver fake({.execute = false});
    fake.fail_call("cuMemAlloc", index, CUDA_ERROR_OUT_OF_MEMORY);
    const auto session = open_session(file, options_for(ExecutorKind::graph), fake.platform());
    failed = !session;
    if (!failed) break;
    const Error& error = session.error();
    EXPECT_EQ(error.code, Code::out_of_memory) << error.text();
    EXPECT_NE(error.message.find("memory for the "), std::string::npos) << error.text();
    EXPECT_NE(error.message.find(" bytes"), std::string::npos) << error.text();
    const bool of_device = fake.failed_call() == "cuMemAlloc";
    (of_device ? device : pinned)++;
    if (of_device) {
      EXPECT_NE(error.message.find(" are free"), std::string::npos) << error.text();
      const bool of_prompts = error.message.find("reading of prompts") != std::string::npos;
      const char* less = of_prompts ? "a smaller chunk" : "a context of 16 positions would fit";
      EXPECT_NE(error.text().find(less), std::string::npos) << error.text();
    }
    EXPECT_EQ(fake.leaks(), "");
  }
  EXPECT_GE(device, 3);  // weights, KV cache, scratch
  EXPECT_GE(pinned, 4);  // two to upload with, logits, control block
}

}  // namespace
}  // namespace lathe::testing
