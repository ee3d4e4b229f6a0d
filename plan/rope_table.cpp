// Owns the RoPE frequencies that kernels read.
#include <cmath>
#include <numbers>

#include "lathe/plan/plan.h"

namespace lathe {

std::vector<float> rope_table(const RopeSpec& rope, int head_dim) {
  const int dims = rope.dims > 0 ? rope.dims : head_dim;
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(dims));
  for (int i = 0; i < dims / 2; ++i) {
    const double factor = rope.factors.empty() ? 1 : rope.factors[static_cast<std::size_t>(i)];
    const double radians = rope.freq_scale * std::pow(rope.theta, -2.0 * i / dims) / factor;
    const double revolutions = radians / (2 * std::numbers::pi);
    const auto high = static_cast<float>(revolutions);
    table.push_back(high);
    table.push_back(static_cast<float>(revolutions - high));
  }
  return table;
}

}  // namespace lathe
