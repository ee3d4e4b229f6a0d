// Owns choices among logits on the host: the likeliest tokens, of all, of a set or of a list.
//
// Equal logits stand in the order of their ids, and NaN is never chosen: what a session's sampled()
// says of the likeliest token holds here too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lathe/codegen/result.h"

namespace lathe {

// Which tokens are allowed: token i is bit i % 32 of word i / 32. No words at all: every token is.
// A set with words and no bit allows none.
using TokenSet = std::span<const std::uint32_t>;
inline constexpr std::size_t token_set_words(int vocabulary) {
  return (std::size_t(vocabulary) + 31) / 32;
}
inline bool allows(TokenSet set, std::int32_t id) {
  return set.empty() || (set[std::size_t(id) / 32] >> (id % 32) & 1) != 0;
}
// Ok when there are no words, or as many as the vocabulary takes.
Result<void> check_token_set(TokenSet set, int vocabulary);

struct ScoredToken {
  std::int32_t id = 0;
  float logit = 0;
  bool operator==(const ScoredToken&) const = default;
};

// Those that are allowed with the `count` greatest logits, 1 to 64, greatest first; fewer where
// there are no more.
Result<std::vector<ScoredToken>> likeliest_tokens(std::span<const float> logits, int count,
                                                  TokenSet allowed = {});
// The likeliest that is allowed; -1 when none is, or the logits of all that are are NaN.
Result<std::int32_t> likeliest_token(std::span<const float> logits, TokenSet allowed = {});
// The likeliest of a list, in any order; -1 when it is empty, or all are NaN.
Result<std::int32_t> likeliest_of(std::span<const float> logits, std::span<const std::int32_t> ids);

// Says which tokens may come next: sets bits in `allowed`, which has none to begin with and a word
// for every 32 tokens of the vocabulary. `chosen`: what the run has chosen so far.
using Constraint =
    std::function<void(std::span<const std::int32_t> chosen, std::span<std::uint32_t> allowed)>;

}  // namespace lathe
