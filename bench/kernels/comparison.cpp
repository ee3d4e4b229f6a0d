// Owns the matching of rows and the table of ratios.
#include "bench/kernels/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "bench/common/table.h"

namespace lathe::bench::kernels {

namespace {

using Name = std::tuple<std::string, std::string, int>;

Name name_of(const Row& row) {
  return {row.key, row.route, row.position};
}

}  // namespace

int ReportComparison::slower(double tolerance) const {
  return static_cast<int>(
      std::ranges::count_if(pairs, [&](const Pair& pair) { return pair.ratio() > 1 + tolerance; }));
}

std::string ReportComparison::markdown(double tolerance) const {
  Table table;
  table.columns = {{"kernel"},         {"route"},       {"before us", true},
                   {"after us", true}, {"ratio", true}, {""}};
  double logarithms = 0;
  for (const Pair& pair : pairs) {
    logarithms += std::log(pair.ratio());
    table.rows.push_back({pair.kernel, pair.route, fmt::format("{:.2f}", pair.before * 1e6),
                          fmt::format("{:.2f}", pair.after * 1e6),
                          fmt::format("{:.3f}", pair.ratio()),
                          pair.ratio() > 1 + tolerance   ? "slower"
                          : pair.ratio() < 1 - tolerance ? "faster"
                                                         : ""});
  }
  const double mean = pairs.empty() ? 1 : std::exp(logarithms / static_cast<double>(pairs.size()));
  return fmt::format(
      "{}\n{} kernels, {} slower by more than {:.3g} %; geometric mean of the ratios {:.3f}; {} "
      "only "
      "before, {} only after\n",
      table.markdown(), pairs.size(), slower(tolerance), tolerance * 100, mean, only_before,
      only_after);
}

ReportComparison compare(const Report& before, const Report& after) {
  std::map<Name, double> old;
  for (const Row& row : before.rows) old[name_of(row)] = row.median();
  ReportComparison out;
  for (const Row& row : after.rows) {
    const auto found = old.find(name_of(row));
    if (found == old.end()) {
      ++out.only_after;
      continue;
    }
    const std::string kernel =
        row.position > 0 ? fmt::format("{} @ d{}", row.key, row.position) : row.key;
    out.pairs.push_back({kernel, row.route, found->second, row.median()});
    old.erase(found);
  }
  out.only_before = static_cast<int>(old.size());
  return out;
}

}  // namespace lathe::bench::kernels
