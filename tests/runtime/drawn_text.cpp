#include "tests/runtime/drawn_text.h"

#include <gtest/gtest.h>

#include <span>

namespace lathe::testing {

std::vector<std::int32_t> drawn_text(Session& session, const Sampling& sampling, int at_once,
                                     int stepped) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(at_once + stepped));
  const std::span<std::int32_t> text = tokens, first = text.first(std::size_t(at_once)),
                                later = text.subspan(std::size_t(at_once));
  const auto done = [](const Result<void>& result) {
    if (!result) ADD_FAILURE() << result.error().text();
    return static_cast<bool>(result);
  };
  if (!done(session.set_sampling(sampling)) || !done(session.generate(3, first))) return {};
  std::int32_t token = first.back();
  for (std::int32_t& next : later) {
    if (!done(session.step(token))) return {};
    next = token = session.sampled().value();
  }
  std::vector<std::int32_t> again(later.size());
  if (!done(session.rollback(at_once)) || !done(session.generate(first.back(), again))) return {};
  EXPECT_EQ(again, std::vector(later.begin(), later.end())) << session.report().executor;
  return tokens;
}

}  // namespace lathe::testing
