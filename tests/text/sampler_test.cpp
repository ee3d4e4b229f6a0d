// Owns the tests of the sampling rules.
#include "examples/decode/text/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/text/allocation_count.h"

namespace lathe::text {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::unique_ptr<Sampler> make(const SamplerOptions& options) {
  std::string error;
  auto sampler = Sampler::create(options, &error);
  EXPECT_NE(sampler, nullptr) << error;
  return sampler;
}

// How often each token comes out of so many calls.
std::map<int32_t, int> counts(const SamplerOptions& options, const std::vector<float>& logits,
                              int calls = 4000) {
  const auto sampler = make(options);
  std::map<int32_t, int> found;
  for (int i = 0; i < calls; ++i) {
    ++found[sampler->sample(logits)];
  }
  return found;
}

std::vector<int32_t> ids(const std::map<int32_t, int>& found) {
  std::vector<int32_t> out;
  for (const auto& [id, count] : found) {
    out.push_back(id);
  }
  return out;
}

TEST(Random, GivesThePublishedNumbers) {
  // xoshiro256** after splitmix64 from 0, worked out with integers of unlimited size in Python.
  Random random(0);
  EXPECT_EQ(random.next(), 0x99EC5F36CB75F2B4u);
  EXPECT_EQ(random.next(), 0xBF6E1F784956452Au);
  EXPECT_EQ(random.next(), 0x1A5F849D4933E6E0u);
}

TEST(Random, UnitStaysBelowOne) {
  Random random(42);
  double sum = 0.0;
  for (int i = 0; i < 10000; ++i) {
    const double unit = random.next_unit();
    ASSERT_GE(unit, 0.0);
    ASSERT_LT(unit, 1.0);
    sum += unit;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

TEST(Argmax, TakesTheLowestOfEqualAndNeverNan) {
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(argmax(std::vector<float>{nan, 1, nan, 2, nan}), 3);
  EXPECT_EQ(argmax(std::vector<float>{nan, -infinity}), 1);
  EXPECT_EQ(argmax(std::vector<float>{-infinity, -infinity}), 0);
  EXPECT_EQ(argmax(std::vector<float>{0.0f, -0.0f}), 0);
  EXPECT_EQ(argmax(std::vector<float>{nan, nan}), -1);
  EXPECT_EQ(argmax({}), -1);
}

TEST(SamplerOptions, DefaultsAreGreedyAndValid) {
  EXPECT_EQ(check(SamplerOptions{}), "");
  EXPECT_EQ(counts({}, {0, 2, 1}, 10), (std::map<int32_t, int>{{1, 10}}));
}

TEST(SamplerOptions, ErrorsNameTheOption) {
  const auto error = [](auto set) {
    SamplerOptions options;
    set(options);
    std::string message;
    EXPECT_EQ(Sampler::create(options, &message), nullptr);
    return message.substr(0, message.find(" must"));
  };
  for (const float bad : {-0.1f, 101.0f, nan, infinity}) {
    EXPECT_EQ(error([&](SamplerOptions& o) { o.temperature = bad; }), "temperature");
  }
  for (const float bad : {-0.1f, 0.0f, 1.5f, nan}) {
    EXPECT_EQ(error([&](SamplerOptions& o) { o.top_p = bad; }), "top-p");
  }
  for (const float bad : {-0.1f, 1.5f, nan}) {
    EXPECT_EQ(error([&](SamplerOptions& o) { o.min_p = bad; }), "min-p");
  }
  for (const float bad : {-1.0f, 0.0f, 11.0f, nan}) {
    EXPECT_EQ(error([&](SamplerOptions& o) { o.repeat_penalty = bad; }), "repeat penalty");
  }
  EXPECT_EQ(error([](SamplerOptions& o) { o.top_k = -1; }), "top-k");
  EXPECT_EQ(error([](SamplerOptions& o) { o.repeat_window = -1; }), "repeat window");
  EXPECT_EQ(error([](SamplerOptions& o) { o.repeat_window = INT32_MAX; }), "repeat window");
}

TEST(Sampler, FollowsTheProbabilities) {
  SamplerOptions options;
  options.temperature = 1.0f;
  const auto found = counts(options, {std::log(0.5f), std::log(0.3f), std::log(0.2f)}, 20000);
  EXPECT_NEAR(found.at(0), 10000, 300);
  EXPECT_NEAR(found.at(1), 6000, 300);
  EXPECT_NEAR(found.at(2), 4000, 300);
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  SamplerOptions options;
  options.temperature = 0.01f;
  EXPECT_EQ(ids(counts(options, {1.0f, 2.0f, 1.5f})), std::vector<int32_t>{1});
  options.temperature = 100.0f;
  for (const auto& [id, count] : counts(options, {1.0f, 2.0f, 1.5f}, 9000)) {
    EXPECT_NEAR(count, 3000, 250) << id;
  }
}

TEST(Sampler, TopKKeepsTheBestAndTheLowerOfEqual) {
  SamplerOptions options;
  options.temperature = 2.0f;
  options.top_k = 2;
  EXPECT_EQ(ids(counts(options, {1, 3, 2, 3, 3})), (std::vector<int32_t>{1, 3}));
  options.top_k = 1;
  EXPECT_EQ(ids(counts(options, {1, 3, 2, 3, 3})), (std::vector<int32_t>{1}));
  options.top_k = 100;
  EXPECT_EQ(counts(options, {1, 3, 2, 3, 3}).size(), 5u);
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.3f),
                                     std::log(0.1f)};
  SamplerOptions options;
  options.temperature = 1.0f;
  options.top_p = 0.4f;
  EXPECT_EQ(ids(counts(options, logits)), (std::vector<int32_t>{1}));
  options.top_p = 0.7f;
  EXPECT_EQ(ids(counts(options, logits)), (std::vector<int32_t>{1, 2}));
  options.top_p = 0.85f;
  EXPECT_EQ(ids(counts(options, logits)), (std::vector<int32_t>{0, 1, 2}));
  options.top_p = 0.7f;
  options.temperature = 50.0f;  // doesn't widen the choice
  EXPECT_EQ(ids(counts(options, logits)), (std::vector<int32_t>{1, 2}));
}

TEST(Sampler, TopPReachesPastTheFirstSortedStretch) {
  SamplerOptions options;
  options.temperature = 1.0f;
  options.top_p = 0.5f;
  const auto found = counts(options, std::vector<float>(1000, 1.0f), 20000);
  EXPECT_EQ(found.size(), 500u);
  EXPECT_EQ(found.rbegin()->first, 499);
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.26f), std::log(0.2f),
                                     std::log(0.04f)};
  SamplerOptions options;
  options.temperature = 1.0f;
  options.min_p = 0.5f;
  EXPECT_EQ(ids(counts(options, logits)), (std::vector<int32_t>{0, 1}));
  options.min_p = 1.0f;
  EXPECT_EQ(ids(counts(options, logits)), (std::vector<int32_t>{0}));
}

TEST(Sampler, PenaltyCountsRecentTokensOnceAndForgetsOldOnes) {
  SamplerOptions options;
  options.repeat_penalty = 2.0f;
  options.repeat_window = 2;
  const auto sampler = make(options);
  const std::vector<float> logits = {-3.0f, 4.0f, 3.0f};
  EXPECT_EQ(sampler->sample(logits), 1);
  sampler->accept(1);
  sampler->accept(1);
  EXPECT_EQ(sampler->sample(logits), 2);  // 4 became 2; twice penalized it would be 1
  EXPECT_EQ(sampler->sample(std::vector<float>{-3.0f, 4.0f, 1.5f}), 1);
  sampler->accept(2);
  EXPECT_EQ(sampler->sample(logits), 1);  // 2 against 1.5
  sampler->accept(0);
  EXPECT_EQ(sampler->sample(logits), 1);                                   // 1 is forgotten
  EXPECT_EQ(sampler->sample(std::vector<float>{-3.0f, -4.0f, -4.0f}), 1);  // -3 became -6
}

TEST(Sampler, AcceptsAnyTokenId) {
  SamplerOptions options;
  options.repeat_penalty = 2.0f;
  const auto sampler = make(options);
  for (const int32_t id : {-1, INT32_MAX, INT32_MIN, 3}) {
    sampler->accept(id);
  }
  EXPECT_EQ(sampler->sample(std::vector<float>{1, 2, 3}), 2);
}

TEST(Sampler, SurvivesLogitsThatAreNoNumbers) {
  SamplerOptions options;
  options.temperature = 1.0f;
  options.top_p = 0.9f;
  options.min_p = 0.1f;
  const auto sampler = make(options);
  EXPECT_EQ(sampler->sample(std::vector<float>{nan, 1, nan}), 1);
  EXPECT_EQ(sampler->sample(std::vector<float>{nan, -infinity, -infinity}), 1);
  EXPECT_EQ(sampler->sample(std::vector<float>{nan, 1, infinity, infinity}), 2);
  EXPECT_EQ(sampler->sample(std::vector<float>{-infinity, 0, -infinity}), 1);
  EXPECT_EQ(sampler->sample(std::vector<float>{nan, nan}), -1);
  EXPECT_EQ(sampler->sample({}), -1);
}

// Worked out in Python by the rules in the header; must hold on every platform.
TEST(Sampler, SeedFixesTheText) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(i * 37 % 101) / 16.0f;
  }
  SamplerOptions options;
  options.temperature = 0.8f;
  options.seed = 7;
  const auto take = [&] {
    const auto sampler = make(options);
    std::vector<int32_t> out;
    for (int i = 0; i < 6; ++i) {
      out.push_back(sampler->sample(logits));
    }
    return out;
  };
  EXPECT_EQ(take(), take());
  EXPECT_EQ(take(), (std::vector<int32_t>{703, 281, 840, 985, 996, 873}));
  options.top_k = 40;
  options.top_p = 0.95f;
  options.min_p = 0.05f;
  EXPECT_EQ(take(), (std::vector<int32_t>{595, 939, 120, 726, 726, 221}));
  const std::vector<int32_t> before = take();
  options.seed = 8;
  EXPECT_NE(take(), before);
}

TEST(Sampler, AllocatesNothingAfterTheFirstCall) {
  SamplerOptions options;
  options.temperature = 0.9f;
  options.top_k = 500;
  options.top_p = 0.9f;
  options.min_p = 0.01f;
  options.repeat_penalty = 1.1f;
  const auto sampler = make(options);
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(i % 97) / 10.0f;
  }
  sampler->sample(logits);
  const size_t before = allocation_count();
  for (int i = 0; i < 100; ++i) {
    sampler->accept(sampler->sample(logits));
  }
  EXPECT_EQ(allocation_count(), before);
}

}  // namespace
}  // namespace lathe::text
