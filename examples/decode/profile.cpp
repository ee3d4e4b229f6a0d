// Owns --profile: what each kind of step takes of a token.
#include "examples/decode/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "examples/command_line.h"

namespace lathe::decode {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kRoundTrips = 200;

// The steps of all layers that are called the same.
struct Kind {
  std::string label;
  std::string kernel;  // of the first of them
  int steps = 0;
  double microseconds = 0;  // of a token: the sum of each step's median over the tokens
};

struct Profile {
  std::vector<Kind> kinds;
  double microseconds = 0;
  int tokens = 0;
  RoundTrip round_trip;
};

double median(std::vector<double>& values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

// By step, then by token.
Result<std::vector<std::vector<double>>> measure(Session& session, const Prompt& prompt,
                                                 int tokens) {
  std::vector<std::vector<double>> times(session.plan().steps.size());
  for (std::size_t i = 0; i + 1 < prompt.ids.size(); ++i) LATHE_TRY(session.step(prompt.ids[i]));
  std::int32_t token = prompt.ids.back();
  for (int i = 0; i < tokens && !command_line::interrupted(); ++i) {
    LATHE_TRY(session.step(token));
    LATHE_ASSIGN(const std::vector<double> step, session.step_times());
    for (std::size_t s = 0; s < step.size(); ++s) times[s].push_back(step[s]);
    LATHE_ASSIGN(const std::int32_t chosen, session.sampled());
    token = std::max(chosen, 0);
  }
  return times;
}

Profile summarize(const Plan& plan, std::vector<std::vector<double>>& times) {
  Profile profile;
  profile.tokens = int(times.front().size());
  std::map<std::string, std::size_t> known;
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    const auto [found, is_new] = known.try_emplace(step.label, profile.kinds.size());
    if (is_new) profile.kinds.push_back({step.label, step.key.text()});
    Kind& kind = profile.kinds[found->second];
    const double microseconds = median(times[s]);
    ++kind.steps;
    kind.microseconds += microseconds;
    profile.microseconds += microseconds;
  }
  std::ranges::stable_sort(profile.kinds, std::greater(), &Kind::microseconds);
  return profile;
}

double share(const Kind& kind, const Profile& profile) {
  return profile.microseconds > 0 ? kind.microseconds / profile.microseconds : 0;
}

std::string text(const Profile& profile) {
  std::string out = fmt::format("{:<16} {:>5} {:>12} {:>7}  kernel of the first\n", "step", "times",
                                "us a token", "share");
  for (const Kind& kind : profile.kinds)
    out += fmt::format("{:<16} {:>5} {:>12.2f} {:>6.1f} %  {}\n", kind.label, kind.steps,
                       kind.microseconds, 100 * share(kind, profile), kind.kernel);
  out += fmt::format(
      "{:<16} {:>5} {:>12.2f}          medians over {} tokens, each step launched by "
      "itself\n",
      "all", "", profile.microseconds, profile.tokens);
  if (profile.round_trip.median > 0)
    out += fmt::format("an empty submission and back: {:.2f} us, at least {:.2f}\n",
                       profile.round_trip.median, profile.round_trip.least);
  return out;
}

Json json(const Profile& profile) {
  Json kinds = Json::array();
  for (const Kind& kind : profile.kinds)
    kinds.push_back({{"label", kind.label},
                     {"kernel", kind.kernel},
                     {"steps", kind.steps},
                     {"microseconds", kind.microseconds},
                     {"share", share(kind, profile)}});
  return {{"tokens", profile.tokens},
          {"microseconds", profile.microseconds},
          {"round_trip_microseconds",
           {{"least", profile.round_trip.least}, {"median", profile.round_trip.median}}},
          {"steps", std::move(kinds)}};
}

}  // namespace

Result<void> profile(Session& session, const Prompt& prompt, const Options& options) {
  const int room = session.plan().options.context - int(prompt.ids.size()) + 1;
  const int tokens = options.max_tokens < 0 ? room : std::min(options.max_tokens, room);
  if (tokens < 1)
    return Error{Code::invalid_argument, "There is no token to be timed: -n is 0.", {}};
  LATHE_ASSIGN(std::vector<std::vector<double>> times, measure(session, prompt, tokens));
  if (times.front().empty()) return {};  // interrupted
  Profile profile = summarize(session.plan(), times);
  LATHE_ASSIGN(profile.round_trip, session.submit_round_trip(kRoundTrips));
  return command_line::print(options.json ? json(profile).dump(2) + "\n" : text(profile));
}

}  // namespace lathe::decode
