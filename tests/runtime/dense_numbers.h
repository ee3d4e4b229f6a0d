// Owns the numbers that dense products are tested with, and the error of what they give.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "verification/random.h"

namespace lathe::testing {

inline std::vector<float> drawn(std::size_t count, std::uint64_t seed) {
  verification::Random random(seed);
  std::vector<float> out(count);
  for (float& value : out) value = random.normal();
  return out;
}

// The relative L2 error of results against those of the floats that the weight stands for.
inline double product_error(std::span<const float> hidden, std::span<const float> weight,
                            std::span<const float> out, int batch, int n_in, int n_out) {
  double error = 0, norm = 0;
  for (int b = 0; b < batch; ++b) {
    for (int n = 0; n < n_out; ++n) {
      double sum = 0;
      const float* x = hidden.data() + std::size_t(b) * std::size_t(n_in);
      const float* w = weight.data() + std::size_t(n) * std::size_t(n_in);
      for (int i = 0; i < n_in; ++i) sum += double(x[i]) * double(w[i]);
      const double off = double(out[std::size_t(b) * std::size_t(n_out) + std::size_t(n)]) - sum;
      error += off * off;
      norm += sum * sum;
    }
  }
  return std::sqrt(error / norm);
}

}  // namespace lathe::testing
