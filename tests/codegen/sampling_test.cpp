// Owns the tests of what the sampling rules mean, on the oracles of top_k and sample: the emulation
// and GPU tests hold the device code to those.
#include "lathe/codegen/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "lathe/codegen/kernel_table.h"
#include "ops/random.h"

namespace lathe {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The logits of one sequence; `history` are its tokens, of which the last has just been decoded.
struct Sampler {
  Sampling sampling;
  int splits = 1;
  std::vector<std::int32_t> history = {0};

  std::int32_t operator()(std::vector<float> logits, std::int32_t position) const {
    KernelKey key{.type = KernelType::top_k};
    key.n = static_cast<int>(logits.size());
    key.splits = std::min(splits, key.n);
    SamplingState state = sampling_state(sampling);
    for (std::size_t i = 0; i < history.size(); ++i) {
      const auto before = static_cast<std::int32_t>(history.size() - 1 - i);
      if (before > 0) state.recent[static_cast<std::size_t>(position - before) % 256] = history[i];
    }
    std::int32_t token = history.back(), sampled = -2;
    std::vector<std::uint64_t> partial(static_cast<std::size_t>(key.splits) * 64);
    row(key.type).oracle(
        key, std::vector<void*>{logits.data(), &token, &position, &state, partial.data()}, 0, 1);
    key.type = KernelType::sample;
    row(key.type).oracle(key, std::vector<void*>{partial.data(), &position, &state, &sampled}, 0,
                         1);
    return sampled;
  }
  std::int32_t operator()(std::vector<float> logits) const {
    return (*this)(std::move(logits), static_cast<std::int32_t>(history.size()) - 1);
  }
};

// How often each token comes at so many positions.
std::map<std::int32_t, int> counts(const Sampling& sampling, const std::vector<float>& logits,
                                   int positions = 4000) {
  const Sampler sampler{sampling};
  std::map<std::int32_t, int> found;
  for (int position = 0; position < positions; ++position) ++found[sampler(logits, position)];
  return found;
}

std::vector<std::int32_t> ids(const std::map<std::int32_t, int>& found) {
  std::vector<std::int32_t> out;
  for (const auto& [id, count] : found) out.push_back(id);
  return out;
}

using Ids = std::vector<std::int32_t>;

std::vector<float> logarithms(std::vector<float> values) {
  for (float& value : values) value = std::log(value);
  return values;
}

TEST(Philox, GivesThePublishedNumbers) {
  const auto words = [](const dev::u32x4& counter, dev::u32 low, dev::u32 high) {
    const dev::u32x4 r = dev::philox(counter, low, high);
    return std::vector<dev::u32>{r.x, r.y, r.z, r.w};
  };
  using Words = std::vector<dev::u32>;
  constexpr dev::u32 kOnes = 0xffffffff;
  // The known answers of the Random123 library.
  EXPECT_EQ(words({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Sampling, DefaultsAreGreedyAndValid) {
  EXPECT_TRUE(check_sampling({}));
  EXPECT_EQ(counts({}, {0, 2, 1}, 10), (std::map<std::int32_t, int>{{1, 10}}));
}

// What argmax and argmax_merge make of it, in one split or some.
std::int32_t greatest(std::vector<float> values, std::vector<std::uint32_t>* allowed, int splits) {
  KernelKey key{.type = KernelType::argmax};
  key.n = static_cast<int>(values.size());
  key.splits = splits;
  key.masked = allowed != nullptr;
  std::vector<float> partial(static_cast<std::size_t>(splits) * 2);
  std::vector<void*> arguments = {values.data(), partial.data()};
  if (allowed) arguments.insert(arguments.begin() + 1, allowed->data());
  row(key.type).oracle(key, arguments, 0, 1);
  key.type = KernelType::argmax_merge;
  std::int32_t token = -2;
  row(key.type).oracle(key, std::vector<void*>{partial.data(), &token}, 0, 1);
  return token;
}

TEST(Argmax, OfASetIsTheGreatestOfItAndOfNoneIsNone) {
  const std::vector<float> values = {5, 1, 5, kNan, 2, -kInfinity, 9, 4};
  for (const int splits : {1, 3, 8}) {
    EXPECT_EQ(greatest(values, nullptr, splits), 6);
    for (const auto& [bits, wanted] : {std::pair(0xffu, 6),
                                       {0xffffffffu, 6},
                                       {0xbfu, 0},
                                       {0xbeu, 2},
                                       {0x08u, -1},
                                       {0x00u, -1},
                                       {0xffffff00u, -1},
                                       {0x80u, 7}}) {
      std::vector<std::uint32_t> allowed = {bits};
      EXPECT_EQ(greatest(values, &allowed, splits), wanted) << bits << ' ' << splits;
    }
  }
}

TEST(Sampling, ErrorsNameTheRule) {
  const auto error = [](const Sampling& sampling) {
    const Result<void> checked = check_sampling(sampling);
    if (checked) return std::string();
    EXPECT_EQ(checked.error().code, Code::invalid_argument);
    return checked.error().message.substr(0, checked.error().message.find(" must"));
  };
  for (const float bad : {-0.1f, 101.0f, kNan, kInfinity})
    EXPECT_EQ(error({.temperature = bad}), "temperature");
  for (const float bad : {-0.1f, 0.0f, 1.5f, kNan}) EXPECT_EQ(error({.top_p = bad}), "top-p");
  for (const float bad : {-0.1f, 1.5f, kNan}) EXPECT_EQ(error({.min_p = bad}), "min-p");
  for (const float bad : {-1.0f, 0.0f, 11.0f, kNan})
    EXPECT_EQ(error({.repeat_penalty = bad}), "repeat penalty");
  for (const int bad : {-1, 65}) EXPECT_EQ(error({.top_k = bad}), "top-k");
  for (const int bad : {-1, 257}) EXPECT_EQ(error({.repeat_last = bad}), "repeat window");
  EXPECT_EQ(check_sampling({.top_k = 100}).error().message,
            "top-k must be from 1 to 64, or 0 for 64, but is 100");
}

TEST(Sampling, GreedyTakesTheLowestOfEqualAndNeverNan) {
  for (int splits : {1, 2, 3}) {
    const Sampler greedy{{}, splits};
    EXPECT_EQ(greedy({1, 3, 3, 2}), 1);
    EXPECT_EQ(greedy({kNan, 1, kNan, 2, -kNan}), 3);
    EXPECT_EQ(greedy({kNan, -kInfinity}), 1);
    EXPECT_EQ(greedy({-kInfinity, -kInfinity}), 0);
    EXPECT_EQ(greedy({-0.0f, 0.0f}), 0);
    EXPECT_EQ(greedy({-2, -1, -3}), 1);
    EXPECT_EQ(greedy({kNan, -kNan}), -1);
  }
}

// Pearson's statistic against the 99.9 % point of its distribution: at fixed seeds a test either
// always passes or never does.
TEST(Sampling, FollowsTheProbabilities) {
  constexpr int kDraws = 50000, kTokens = 10;
  constexpr double kLimit = 27.88;  // 9 degrees of freedom
  std::vector<float> logits;
  for (int i = 0; i < kTokens; ++i) logits.push_back(static_cast<float>(i * 7 % kTokens) / 4);
  const auto statistic = [&](const std::map<std::int32_t, int>& found, float temperature) {
    double total = 0, sum = 0;
    for (float logit : logits) total += std::exp(logit / temperature);
    for (int i = 0; i < kTokens; ++i) {
      const double expected = kDraws * std::exp(logits[i] / temperature) / total;
      const double difference = (found.contains(i) ? found.at(i) : 0) - expected;
      sum += difference * difference / expected;
    }
    return sum;
  };
  for (const float temperature : {0.5f, 1.0f, 3.0f}) {
    for (const std::uint64_t seed : {0ull, 1ull, 2ull, 42ull, 1ull << 32, ~0ull}) {
      const Sampling sampling{.temperature = temperature, .seed = seed};
      EXPECT_LT(statistic(counts(sampling, logits, kDraws), temperature), kLimit) << seed;
    }
    // And over the seeds at one position.
    std::map<std::int32_t, int> found;
    for (int seed = 0; seed < kDraws; ++seed) {
      const Sampling sampling{.temperature = temperature, .seed = static_cast<std::uint64_t>(seed)};
      ++found[Sampler{sampling}(logits, 17)];
    }
    EXPECT_LT(statistic(found, temperature), kLimit) << "over seeds";
  }
}

TEST(Sampling, TemperatureSharpensAndFlattens) {
  EXPECT_EQ(ids(counts({.temperature = 0.01f}, {1.0f, 2.0f, 1.5f})), Ids{1});
  EXPECT_EQ(ids(counts({.temperature = 1e-30f}, {1.0f, 2.0f, 1.5f})), Ids{1});
  for (const auto& [id, count] : counts({.temperature = 100}, {1.0f, 2.0f, 1.5f}, 9000))
    EXPECT_NEAR(count, 3000, 250) << id;
}

TEST(Sampling, TopKKeepsTheBestAndTheLowerOfEqual) {
  Sampling sampling{.temperature = 2, .top_k = 2};
  EXPECT_EQ(ids(counts(sampling, {1, 3, 2, 3, 3})), (Ids{1, 3}));
  sampling.top_k = 1;
  EXPECT_EQ(ids(counts(sampling, {1, 3, 2, 3, 3})), Ids{1});
  sampling.top_k = 0;
  EXPECT_EQ(counts(sampling, {1, 3, 2, 3, 3}).size(), 5u);
  const auto found = counts(sampling, std::vector<float>(1000, 1.0f), 20000);
  EXPECT_EQ(found.size(), 64u);  // the most that are kept
  EXPECT_EQ(found.rbegin()->first, 63);
}

TEST(Sampling, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> logits = logarithms({0.1f, 0.5f, 0.3f, 0.1f});
  Sampling sampling{.temperature = 1, .top_p = 0.4f};
  EXPECT_EQ(ids(counts(sampling, logits)), Ids{1});
  sampling.top_p = 0.7f;
  EXPECT_EQ(ids(counts(sampling, logits)), (Ids{1, 2}));
  sampling.top_p = 0.85f;
  EXPECT_EQ(ids(counts(sampling, logits)), (Ids{0, 1, 2}));
  sampling.top_p = 0.7f;
  sampling.temperature = 50;  // does not widen the choice
  EXPECT_EQ(ids(counts(sampling, logits)), (Ids{1, 2}));
  sampling.top_p = 1e-30f;
  EXPECT_EQ(ids(counts(sampling, logits)), Ids{1});
}

TEST(Sampling, MinPIsRelativeToTheBest) {
  const std::vector<float> logits = logarithms({0.5f, 0.26f, 0.2f, 0.04f});
  Sampling sampling{.temperature = 1, .min_p = 0.5f};
  EXPECT_EQ(ids(counts(sampling, logits)), (Ids{0, 1}));
  sampling.min_p = 1;
  EXPECT_EQ(ids(counts(sampling, logits)), Ids{0});
}

TEST(Sampling, PenaltyCountsRecentTokensOnceAndForgetsOldOnes) {
  const std::vector<float> logits = {-3, 4, 3};
  const auto after = [](Ids history, std::vector<float> from) {
    const Sampling sampling{.repeat_penalty = 2, .repeat_last = 2};
    return Sampler{sampling, 1, std::move(history)}(std::move(from));
  };
  EXPECT_EQ(after({0}, logits), 1);
  EXPECT_EQ(after({1, 1}, logits), 2);  // 4 became 2; twice penalized it would be 1
  EXPECT_EQ(after({1, 1}, {-3, 4, 1.5f}), 1);
  EXPECT_EQ(after({1, 2}, logits), 1);           // 2 against 1.5
  EXPECT_EQ(after({1, 2, 0}, logits), 1);        // 1 is forgotten
  EXPECT_EQ(after({1, 2, 0}, {-3, -4, -4}), 1);  // -3 became -6
  EXPECT_EQ(after({0, 0}, {-3, -4, -5}), 1);
}

TEST(Sampling, PenaltyReachesBackAsFarAsItSays) {
  Ids history(1000, 5);
  history[1000 - 256] = 1;
  const auto next = [&](int last) {
    return Sampler{{.repeat_penalty = 2, .repeat_last = last}, 1, history}({0, 4, 3, 0, 0, 0});
  };
  EXPECT_EQ(next(256), 2);
  EXPECT_EQ(next(255), 1);
  EXPECT_EQ(next(0), 1);
}

TEST(Sampling, AnyRecentIdIsTaken) {
  const Ids history = {-1, std::numeric_limits<int>::max(), std::numeric_limits<int>::min(), 3};
  EXPECT_EQ((Sampler{{.repeat_penalty = 2}, 2, history}({1, 2, 3})), 2);
}

TEST(Sampling, SurvivesLogitsThatAreNoNumbers) {
  for (int splits : {1, 2, 5}) {
    const Sampler sampler{{.temperature = 1, .top_p = 0.9f, .min_p = 0.1f}, splits};
    EXPECT_EQ(sampler({kNan, 1, kNan}), 1);
    EXPECT_EQ(sampler({kNan, -kInfinity, -kInfinity}), 1);
    EXPECT_EQ(sampler({kNan, 1, kInfinity, kInfinity}), 2);
    EXPECT_EQ(sampler({-kInfinity, 0, -kInfinity}), 1);
    EXPECT_EQ(sampler({kNan, kNan}), -1);
  }
  for (const auto& [id, count] : counts({.temperature = 100}, {-kInfinity, 0, -3e38f}))
    EXPECT_EQ(id, 1);
}

// Worked out in Python from the published generator and exact probabilities.
TEST(Sampling, SeedFixesTheText) {
  std::vector<float> logits(1000);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(i * 37 % 101) / 16.0f;
  const auto take = [&](const Sampling& sampling, int splits, std::int32_t from = 0) {
    Ids out;
    for (int i = 0; i < 6; ++i) out.push_back(Sampler{sampling, splits}(logits, from + i));
    return out;
  };
  for (int splits : {1, 2, 7, 64, 1000}) {
    Sampling sampling{.temperature = 0.8f, .seed = 7};
    EXPECT_EQ(take(sampling, splits), (Ids{8, 292, 30, 191, 565, 868}));
    sampling.top_k = 40;
    sampling.top_p = 0.95f;
    sampling.min_p = 0.05f;
    EXPECT_EQ(take(sampling, splits), (Ids{625, 464, 30, 363, 939, 161}));
    sampling.seed = 7 + (1ull << 35);
    EXPECT_EQ(take(sampling, splits, 1000), (Ids{232, 797, 737, 363, 232, 393}));
  }
}

}  // namespace
}  // namespace lathe
