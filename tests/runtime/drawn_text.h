// Owns what sessions are held to when they draw tokens: the rules, and the text of a session, many
// tokens at once, token by token, and again after a rollback.
#pragma once

#include <cstdint>
#include <vector>

#include "lathe/runtime/session.h"

namespace lathe::testing {

inline constexpr Sampling kSamplingRules[] = {
    {.repeat_penalty = 1.5f, .repeat_last = 8},
    {.temperature = 1, .seed = 5},
    {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.1f}};

// `at_once` tokens after token 3, then `stepped` more. Expects that what follows a rollback to the
// first of these is what was drawn before.
std::vector<std::int32_t> drawn_text(Session& session, const Sampling& sampling, int at_once,
                                     int stepped);

}  // namespace lathe::testing
