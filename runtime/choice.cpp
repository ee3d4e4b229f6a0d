// Owns choices among logits on the host.
#include "lathe/runtime/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lathe/codegen/sampling.h"
#include "runtime/no_memory.h"

namespace lathe {
namespace {

bool likelier(const ScoredToken& a, const ScoredToken& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

}  // namespace

Result<void> check_token_set(TokenSet set, int vocabulary) {
  const std::size_t words = token_set_words(vocabulary);
  if (set.empty() || set.size() == words) return {};
  return Error{Code::invalid_argument,
               fmt::format("A set of tokens has {} words; a vocabulary of {} takes {}, or none to "
                           "allow every token.",
                           set.size(), vocabulary, words),
               {}};
}

Result<std::vector<ScoredToken>> likeliest_tokens(std::span<const float> logits, int count,
                                                  TokenSet allowed) {
  if (count < 1 || count > kMaxTopK)
    return Error{Code::invalid_argument,
                 fmt::format("{} tokens were asked for: between 1 and {} can be.", count, kMaxTopK),
                 {}};
  LATHE_TRY(check_token_set(allowed, int(logits.size())));
  std::vector<ScoredToken> best;
  LATHE_TRY(or_no_memory("the likeliest tokens", [&]() -> Result<void> {
    best.reserve(std::size_t(count));
    return {};
  }));
  for (std::int32_t id = 0; id < std::ssize(logits); ++id) {
    const ScoredToken token{id, logits[std::size_t(id)]};
    if (std::isnan(token.logit) || !allows(allowed, id)) continue;
    if (std::ssize(best) == count) {
      if (!likelier(token, best.back())) continue;
      best.pop_back();
    }
    best.insert(std::ranges::upper_bound(best, token, likelier), token);
  }
  return best;
}

Result<std::int32_t> likeliest_token(std::span<const float> logits, TokenSet allowed) {
  LATHE_ASSIGN(const std::vector<ScoredToken> best, likeliest_tokens(logits, 1, allowed));
  return best.empty() ? -1 : best.front().id;
}

Result<std::int32_t> likeliest_of(std::span<const float> logits,
                                  std::span<const std::int32_t> ids) {
  ScoredToken best{-1, 0};
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= std::ssize(logits))
      return Error{Code::out_of_range,
                   fmt::format("Token {} is outside the vocabulary of {}.", id, logits.size()),
                   {}};
    const ScoredToken token{id, logits[std::size_t(id)]};
    if (!std::isnan(token.logit) && (best.id < 0 || likelier(token, best))) best = token;
  }
  return best.id;
}

}  // namespace lathe
