// Owns the computation of mean, deviation and order statistics.
#include "bench/common/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace lathe::bench {

Statistics statistics(std::span<const double> values) {
  if (values.empty()) return {};
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  const auto count = static_cast<double>(sorted.size());

  Statistics out;
  out.min = sorted.front();
  out.max = sorted.back();
  out.median = sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  out.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count;
  double squares = 0;
  for (double value : sorted) squares += (value - out.mean) * (value - out.mean);
  if (sorted.size() > 1) out.deviation = std::sqrt(squares / (count - 1));
  return out;
}

}  // namespace lathe::bench
