// Holds choices among logits to their rules, and what the host chooses to what the device does.
#include "lathe/runtime/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/drawn_text.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

using Tokens = std::vector<std::int32_t>;
using Words = std::vector<std::uint32_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Words set_of(const Tokens& ids, int vocabulary) {
  Words words(token_set_words(vocabulary));
  for (const std::int32_t id : ids) words[std::size_t(id / 32)] |= 1u << (id % 32);
  return words;
}

// All that may be chosen, likeliest first, by sorting.
std::vector<ScoredToken> sorted(const std::vector<float>& logits, const Words& allowed) {
  std::vector<ScoredToken> all;
  for (std::int32_t id = 0; id < std::ssize(logits); ++id) {
    const bool in = allowed.empty() || (allowed[std::size_t(id / 32)] & 1u << (id % 32)) != 0;
    if (in && !std::isnan(logits[std::size_t(id)])) all.push_back({id, logits[std::size_t(id)]});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.logit > b.logit; });
  return all;
}

TEST(Choice, IsWhatSortingGives) {
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  verification::Random random(seed);
  for (int round = 0; round < 200; ++round) {
    const int vocabulary = 1 + random.below(200);
    std::vector<float> logits;
    for (int i = 0; i < vocabulary; ++i) {
      const int kind = random.below(12);
      logits.push_back(kind == 0   ? kNan
                       : kind == 1 ? -kInfinity
                       : kind == 2 ? kInfinity
                                   : float(random.below(9)) - 4);  // many are equal
    }
    Words allowed;
    if (random.below(3) != 0) {
      Tokens ids;
      for (int i = 0; i < vocabulary; ++i)
        if (random.below(4) == 0) ids.push_back(i);
      allowed = set_of(ids, vocabulary);
    }
    const std::vector<ScoredToken> expected = sorted(logits, allowed);
    for (const int count : {1, 5, kMaxTopK}) {
      const auto found = likeliest_tokens(logits, count, allowed);
      ASSERT_TRUE(found);
      const auto most = std::min(expected.size(), std::size_t(count));
      EXPECT_EQ(*found, std::vector(expected.begin(), expected.begin() + std::ptrdiff_t(most)));
    }
    const std::int32_t likeliest = expected.empty() ? -1 : expected[0].id;
    EXPECT_EQ(likeliest_token(logits, allowed).value(), likeliest);
    if (allowed.empty()) continue;
    Tokens list;
    for (std::int32_t id = vocabulary - 1; id >= 0; --id)
      if (allows(allowed, id)) list.push_back(id);
    EXPECT_EQ(likeliest_of(logits, list).value(), likeliest);
  }
}

TEST(Choice, KnowsNoneFromAll) {
  const std::vector<float> logits = {1, 3, kNan, 3};
  EXPECT_EQ(likeliest_token(logits).value(), 1);
  EXPECT_EQ(likeliest_token(logits, Words{0}).value(), -1);
  EXPECT_EQ(likeliest_token(logits, Words{4}).value(), -1);     // the NaN alone
  EXPECT_EQ(likeliest_token(logits, Words{~15u}).value(), -1);  // what is no token
  EXPECT_TRUE(likeliest_tokens(logits, 3, Words{0})->empty());
  EXPECT_EQ(likeliest_of(logits, Tokens{}).value(), -1);
  EXPECT_EQ(likeliest_of(logits, Tokens{3, 0, 2, 3}).value(), 3);
  EXPECT_EQ(likeliest_of(logits, Tokens{3, 1}).value(), 1);
}

TEST(Choice, RefusesByName) {
  const std::vector<float> logits(40);
  EXPECT_EQ(likeliest_tokens(logits, 0).error().code, Code::invalid_argument);
  EXPECT_EQ(likeliest_tokens(logits, 65).error().code, Code::invalid_argument);
  for (const Words& words : {Words(1), Words(3)}) {
    const auto refused = likeliest_token(logits, words);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::invalid_argument);
    EXPECT_NE(refused.error().message.find("vocabulary of 40 takes 2"), std::string::npos)
        << refused.error().message;
  }
  for (const std::int32_t id : {-1, 40})
    EXPECT_EQ(likeliest_of(logits, Tokens{3, id}).error().code, Code::out_of_range);
}

class SessionChoice : public ::testing::TestWithParam<ExecutorKind> {
 protected:
  static constexpr int kVocabulary = 160;

  void SetUp() override {
    SessionOptions options;
    options.executor = GetParam();
    options.plan.context = 64;
    options.threads = 2;
    options.disk_cache = false;
    auto session = open_session(make_model(1), options, fake_.platform());
    ASSERT_TRUE(session) << session.error().text();
    session_ = std::move(*session);
  }
  void TearDown() override { EXPECT_EQ(fake_.violations(), std::vector<std::string>{}); }

  static Constraint always(const Words& words) {
    return [words](std::span<const std::int32_t>, std::span<std::uint32_t> allowed) {
      std::ranges::copy(words, allowed.begin());
    };
  }
  static Words all() { return Words(token_set_words(kVocabulary), ~0u); }

  FakeDriver fake_;
  std::unique_ptr<Session> session_;
};

INSTANTIATE_TEST_SUITE_P(Executors, SessionChoice,
                         ::testing::Values(ExecutorKind::cpu, ExecutorKind::eager,
                                           ExecutorKind::graph),
                         [](const auto& info) { return std::string(executor_name(info.param)); });

TEST_P(SessionChoice, LogitsComeInPiecesToo) {
  std::vector<float> piece(7);
  EXPECT_EQ(session_->read_logits(0, piece).error().code, Code::invalid_argument);
  ASSERT_TRUE(session_->step(3));
  const std::span<const float> held = session_->logits().value();
  const std::vector<float> whole(held.begin(), held.end());
  std::vector<float> read(std::size_t{kVocabulary}, kNan);
  ASSERT_TRUE(session_->read_logits(0, read));
  EXPECT_EQ(read, whole);
  for (const int first : {0, 1, 100, kVocabulary - 7}) {
    std::ranges::fill(piece, kNan);
    ASSERT_TRUE(session_->read_logits(first, piece));
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + first)) << first;
  }
  EXPECT_TRUE(session_->read_logits(kVocabulary, {}));
  EXPECT_EQ(session_->read_logits(kVocabulary - 6, piece).error().code, Code::out_of_range);
  EXPECT_EQ(session_->read_logits(-1, piece).error().code, Code::out_of_range);
  EXPECT_TRUE(std::equal(held.begin(), held.end(), whole.begin()));
}

// Where everything is allowed the host draws the device's tokens.
TEST_P(SessionChoice, WithoutAConstraintIsTheDevices) {
  for (const Sampling& rules : kSamplingRules) {
    ASSERT_TRUE(session_->set_sampling(rules));
    Tokens expected(24), found(24);
    ASSERT_TRUE(session_->rollback(0));
    ASSERT_TRUE(session_->generate(3, expected));
    EXPECT_EQ(session_->choose({}).value(), expected.back());
    EXPECT_EQ(session_->choose(all()).value(), expected.back());
    ASSERT_TRUE(session_->rollback(0));
    const auto count = session_->generate_constrained(3, found, {}, always(all()));
    ASSERT_TRUE(count) << count.error().text();
    EXPECT_EQ(*count, 24);
    EXPECT_EQ(found, expected);
    EXPECT_EQ(session_->length(), 24);
  }
}

TEST_P(SessionChoice, TakesTheLikeliestOfWhatIsAllowed) {
  const Words allowed = set_of({4, 33, 90, 159}, kVocabulary);
  ASSERT_TRUE(session_->step(3));
  const std::int32_t greedy = session_->choose(allowed).value();
  EXPECT_EQ(greedy, likeliest_token(session_->logits().value(), allowed).value());
  EXPECT_NE(greedy, session_->sampled().value());
  EXPECT_EQ(session_->choose(set_of({90}, kVocabulary)).value(), 90);
  EXPECT_EQ(session_->choose(set_of({}, kVocabulary)).value(), -1);
  EXPECT_EQ(session_->choose(Words(2)).error().code, Code::invalid_argument);
}

// The mask is there before top-k: two tokens that would never be among the two likeliest are drawn,
// both of them and no other; of one there is no draw.
TEST_P(SessionChoice, DrawsFromWhatIsAllowed) {
  ASSERT_TRUE(session_->step(3));
  const auto all = likeliest_tokens(session_->logits().value(), 64).value();
  const Words allowed = set_of({all[40].id, all[50].id, all[60].id}, kVocabulary);
  std::set<std::int32_t> drawn;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    ASSERT_TRUE(session_->set_sampling({.temperature = 100, .top_k = 2, .seed = seed}));
    drawn.insert(session_->choose(allowed).value());
  }
  EXPECT_EQ(drawn, (std::set{all[40].id, all[50].id}));
  ASSERT_TRUE(session_->set_sampling({.temperature = 1, .top_k = 1}));
  EXPECT_EQ(session_->choose(allowed).value(), all[40].id);
}

// Even tokens after odd ones and the other way round.
TEST_P(SessionChoice, AConstraintMayDependOnWhatWasChosen) {
  std::vector<Tokens> seen;
  const Constraint alternate = [&](std::span<const std::int32_t> chosen,
                                   std::span<std::uint32_t> allowed) {
    seen.emplace_back(chosen.begin(), chosen.end());
    EXPECT_TRUE(std::ranges::all_of(allowed, [](std::uint32_t word) { return word == 0; }));
    std::ranges::fill(allowed, chosen.size() % 2 ? 0xaaaaaaaau : 0x55555555u);
  };
  Tokens tokens(9), told;
  const auto tell = [&](std::int32_t id) { told.push_back(id); };
  ASSERT_EQ(session_->generate_constrained(3, tokens, {}, alternate, tell).value(), 9);
  EXPECT_EQ(told, tokens);
  ASSERT_EQ(seen.size(), 9u);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(tokens[i] % 2, std::int32_t(i % 2));
    EXPECT_EQ(seen[i], Tokens(tokens.begin(), tokens.begin() + std::ptrdiff_t(i)));
  }
  // What was chosen is what was decoded.
  std::vector<float> expected(session_->logits()->begin(), session_->logits()->end());
  ASSERT_TRUE(session_->rollback(0));
  ASSERT_TRUE(session_->step(3));
  for (std::size_t i = 0; i + 1 < 9; ++i) ASSERT_TRUE(session_->step(tokens[i]));
  EXPECT_TRUE(std::ranges::equal(session_->logits().value(), expected));
}

TEST_P(SessionChoice, ARunEndsWhereNothingIsAllowedOrAtAStopOrWhenToldTo) {
  const auto fourth = [](std::uint32_t word) -> Constraint {
    return [word](std::span<const std::int32_t> chosen, std::span<std::uint32_t> allowed) {
      allowed[1] = chosen.size() < 3 ? ~0u : word;
    };
  };
  Tokens tokens(8, -7);
  ASSERT_EQ(session_->generate_constrained(3, tokens, {}, fourth(0)).value(), 4);
  EXPECT_EQ(tokens[3], -1);
  EXPECT_EQ(tokens[4], -7);
  EXPECT_EQ(session_->length(), 4);
  ASSERT_TRUE(session_->rollback(0));
  const std::int32_t stops[] = {159, 37};
  const int count = session_->generate_constrained(3, tokens, stops, fourth(1u << 5)).value();
  ASSERT_TRUE(count >= 1 && count <= 4) << count;
  EXPECT_EQ(std::ranges::find(tokens, 37) - tokens.begin(), count - 1);
  EXPECT_EQ(session_->length(), count);
  ASSERT_TRUE(session_->rollback(0));
  int asked = 0;
  const auto cancelled = [&] { return ++asked > 2; };
  EXPECT_EQ(session_->generate_constrained(3, tokens, {}, fourth(~0u), {}, cancelled).value(), 2);
  EXPECT_EQ(session_->length(), 2);
}

TEST_P(SessionChoice, RefusesWhatMakesNoSense) {
  Tokens tokens(8);
  EXPECT_EQ(session_->choose({}).error().code, Code::invalid_argument);
  fake_.reset_counts();
  EXPECT_EQ(session_->generate_constrained(3, tokens, {}, {}).error().code, Code::invalid_argument);
  EXPECT_EQ(session_->generate_constrained(-1, tokens, {}, always(all())).error().code,
            Code::out_of_range);
  EXPECT_EQ(session_->generate_constrained(3, tokens, Tokens{160}, always(all())).error().code,
            Code::out_of_range);
  Tokens many(65);
  EXPECT_EQ(session_->generate_constrained(3, many, {}, always(all())).error().code,
            Code::out_of_range);
  EXPECT_EQ(session_->generate_constrained(3, {}, {}, always(all())).value(), 0);
  EXPECT_EQ(fake_.calls(), 0);
  EXPECT_EQ(session_->length(), 0);
  for (const std::int32_t token : {3, 4, 5}) ASSERT_TRUE(session_->step(token));
  ASSERT_TRUE(session_->rollback(2));
  const auto refused = session_->choose({});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("left 3 positions, and now there are 2"),
            std::string::npos)
      << refused.error().message;
  ASSERT_TRUE(session_->step(7));
  EXPECT_EQ(session_->choose({}).value(), session_->sampled().value());
}

}  // namespace
}  // namespace lathe::testing
