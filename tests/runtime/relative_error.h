// Owns how far vectors are from those that they should be.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace lathe::testing {

// Of the L2 norm; infinite where it is no number, and for vectors of two sizes.
inline double relative_error(std::span<const float> found, std::span<const float> expected) {
  if (found.size() != expected.size()) return INFINITY;
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double off = double(found[i]) - double(expected[i]);
    difference += off * off;
    size += double(expected[i]) * double(expected[i]);
  }
  const double relative = std::sqrt(difference / size);
  return std::isnan(relative) ? INFINITY : relative;
}

}  // namespace lathe::testing
