// Owns what a session says of the time that its work takes.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/no_memory.h"
#include "runtime/session_base.h"

namespace lathe {
namespace {

constexpr int kMostRoundTrips = 100000;

}  // namespace

Result<std::vector<double>> SessionBase::step_times() {
  LATHE_TRY(check_stepped());
  return or_no_memory("the times of steps", [&]() -> Result<std::vector<double>> {
    LATHE_ASSIGN(std::vector<double> times, fetch_times());
    if (times.empty())
      return Error{Code::not_eligible, "The steps of this session are not timed.", {}}.with(
          "hint", "open it with SessionOptions::time_steps");
    times.resize(plan_.steps.size());  // without the launch that ends a token
    return times;
  });
}

Result<RoundTrip> SessionBase::submit_round_trip(int times) {
  if (times < 1 || times > kMostRoundTrips)
    return Error{Code::invalid_argument,
                 fmt::format("{} round trips cannot be measured: 1 to {}.", times, kMostRoundTrips),
                 {}};
  return or_no_memory("the times of round trips", [&]() -> Result<RoundTrip> {
    LATHE_ASSIGN(std::vector<double> all, time_round_trips(times));
    if (all.empty()) return RoundTrip{};
    std::ranges::sort(all);
    return RoundTrip{all.front(), all[all.size() / 2]};
  });
}

}  // namespace lathe
