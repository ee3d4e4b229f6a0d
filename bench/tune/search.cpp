// Owns what is tried, and what counts as faster.
#include "bench/tune/search.h"

#include <algorithm>
#include <utility>

namespace lathe::bench::tune {

namespace {

// `words` without the axis, and this value of it.
std::string with(const std::string& words, const Axis& axis, const std::string& value) {
  std::string out;
  std::size_t at = 0;
  while (at < words.size()) {
    const std::size_t end = std::min(words.find(',', at), words.size());
    const std::string word = words.substr(at, end - at);
    if (!word.starts_with(std::string(axis.name) + "=")) out += word + ",";
    at = end + 1;
  }
  return out + axis.name + "=" + value;
}

bool is_faster(const Trial& trial, const Trial& than) {
  return trial.rate > than.rate * kLeastGain && trial.slowest > than.rate;
}

}  // namespace

std::vector<Axis> axes(int multiprocessors) {
  std::vector<std::string> blocks;
  for (const int eighths : {2, 3, 4, 6})
    if (const int some = multiprocessors * eighths / 8; some > 0)
      blocks.push_back(std::to_string(some));
  return {{"executor", nullptr, {"mega", "graph"}},
          {"matvec.paired", nullptr, {"1", "0"}},
          {"blocks", nullptr, std::move(blocks)},
          {"matvec.stages", "graph", {"2", "3", "4", "6", "8"}},
          {"gemv.warps", "graph", {"2", "4", "8"}},
          {"gemv.rows", "graph", {"1", "2", "4"}}};
}

Result<Found> search(std::span<const Axis> axes, const Measure& measure,
                     const std::function<void(const Trial&, double by_rules)>& told) {
  const auto measured = [&](const std::string& words) -> Result<Trial> {
    LATHE_ASSIGN(const std::optional<Trial> trial, measure(words, words));
    if (trial) return *trial;
    return Error{Code::internal, "nothing was measured with the tuning '" + words + "'", {}};
  };
  LATHE_ASSIGN(const Trial rules, measured(""));
  told(rules, rules.rate);
  Trial best = rules;
  for (const Axis& axis : axes) {
    if (axis.executor && best.executor != axis.executor) continue;
    for (const std::string& value : axis.values) {
      LATHE_ASSIGN(const std::optional<Trial> trial,
                   measure(with(best.words, axis, value), best.words));
      if (!trial) continue;
      told(*trial, rules.rate);
      if (is_faster(*trial, best)) best = *trial;
    }
  }
  if (best.words.empty()) return Found{"", rules.rate, rules.rate};
  // Between the rules and the rules: what warms up or cools down meanwhile is no gain.
  LATHE_ASSIGN(const Trial before, measured(""));
  LATHE_ASSIGN(const Trial confirmed, measured(best.words));
  LATHE_ASSIGN(const Trial after, measured(""));
  const Trial& faster = after.rate > before.rate ? after : before;
  for (const Trial* trial : {&before, &confirmed, &after}) told(*trial, faster.rate);
  if (!is_faster(confirmed, faster)) return Found{"", faster.rate, faster.rate};
  return Found{best.words, confirmed.rate, faster.rate};
}

}  // namespace lathe::bench::tune
