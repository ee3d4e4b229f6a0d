// Owns the comparison of two reports, kernel by kernel.
#pragma once

#include <string>
#include <vector>

#include "bench/kernels/row.h"

namespace lathe::bench::kernels {

struct Pair {
  std::string kernel;  // key, and the position if there is one
  std::string route;
  double before = 0;  // median seconds
  double after = 0;

  double ratio() const { return after / before; }
};

// Kernels that both reports have, by key, route and position.
struct ReportComparison {
  std::vector<Pair> pairs;
  int only_before = 0;
  int only_after = 0;

  // How many take longer by more than `tolerance`, a share.
  int slower(double tolerance) const;
  // A table, and a line with the counts and the geometric mean of the ratios.
  std::string markdown(double tolerance) const;
};

ReportComparison compare(const Report& before, const Report& after);

}  // namespace lathe::bench::kernels
