// Owns what is said about repeated measurements of one thing.
#pragma once

#include <span>

namespace lathe::bench {

struct Statistics {
  double mean = 0;
  double deviation = 0;  // standard deviation of a sample: over n - 1; 0 for a single value
  double median = 0;
  double min = 0;
  double max = 0;
};

// All zero without values.
Statistics statistics(std::span<const double> values);

}  // namespace lathe::bench
