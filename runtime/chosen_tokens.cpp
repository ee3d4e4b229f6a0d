// Owns the looking for tokens that the device writes while the host goes on.
#include "runtime/chosen_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace lathe {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{20};

}  // namespace

Result<ChosenTokens> ChosenTokens::allocate(const Context& context, int positions) {
  ChosenTokens tokens;
  const std::int64_t bytes = std::int64_t{positions} * std::int64_t(sizeof(std::int32_t));
  LATHE_ASSIGN(tokens.memory_, allocate_pinned(context, bytes, "sampled tokens"));
  tokens.positions_ = std::size_t(positions);
  return tokens;
}

Result<void> Replays::check_begun(int at) const {
  if (position == at) return {};
  return Error{Code::invalid_argument, "There are no replays to take: none have begun here.", {}}
      .with("hint", "Session::begin_replays comes first, and again after any other step");
}

Result<void> Replays::check_run(std::span<const std::int32_t> chosen) {
  const auto missing = std::ranges::find(chosen, ChosenTokens::kNotYet);
  if (missing == chosen.end()) return {};
  return Error{Code::invalid_argument,
               fmt::format("{} replays are to be taken, and {} have run.", chosen.size(),
                           missing - chosen.begin()),
               {}}
      .with("hint", "replay on the session's stream, or have it wait for the replays");
}

bool tell_as_they_arrive(const Driver& driver, CUstream stream, std::chrono::milliseconds limit,
                         std::span<std::int32_t> tokens, std::span<const std::int32_t> stops,
                         TokenListener& listener) {
  using Clock = std::chrono::steady_clock;
  for (std::int32_t& place : tokens) {
    const Clock::time_point since = Clock::now();
    const std::atomic_ref<std::int32_t> arriving(place);
    std::int32_t token = arriving.load(std::memory_order_acquire);
    while (token == ChosenTokens::kNotYet) {
      const bool busy = driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
      token = arriving.load(std::memory_order_acquire);
      if (!busy && token == ChosenTokens::kNotYet) return false;
      if (limit.count() >= 0 && Clock::now() - since > limit) return true;
      if (token == ChosenTokens::kNotYet) std::this_thread::sleep_for(kBetweenLooks);
    }
    listener.tell(token);
    if (std::ranges::find(stops, token) != stops.end()) return false;
  }
  return false;
}

}  // namespace lathe
