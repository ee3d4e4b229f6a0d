// Owns the softmax row: y = e^(scale x) / sum of e^(scale x), n rows of k values. Device code:
// ptx_templates/ops/softmax.h.
#include "codegen/kernels/rows.h"

namespace lathe {
namespace {

Result<void> check(const KernelKey& key) {
  LATHE_TRY(check_rows(key));
  if (!(key.scale > 0)) return invalid("scale is {}; it must be above 0", key.scale);
  return {};
}

Geometry geometry(const KernelKey& key) {
  return block_per_row(key, 2);
}

std::vector<Param> params(const KernelKey& key) {
  const std::int64_t values = static_cast<std::int64_t>(key.n) * key.k;
  return {vector_in("x", values, true), vector_out("y", values)};
}

OpCall call(const KernelKey& key) {
  return row_call("softmax", parameters(2), key, key.scale);
}

Cost cost(const KernelKey& key) {
  const std::int64_t values = static_cast<std::int64_t>(key.n) * key.k;
  return {values * 4, values * 4, values * 40};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto [first, last] = share(key.n, part, parts);
  for (std::int64_t r = first; r < last; ++r) {
    const auto* x = static_cast<const float*>(arguments[0]) + r * key.k;
    auto* y = static_cast<float*>(arguments[1]) + r * key.k;
    const double greatest = *std::max_element(x, x + key.k), scale = key.scale;
    double sum = 0;
    for (int i = 0; i < key.k; ++i) sum += std::exp((x[i] - greatest) * scale);
    for (int i = 0; i < key.k; ++i)
      y[i] = static_cast<float>(std::exp((x[i] - greatest) * scale) / sum);
  }
}

}  // namespace

const KernelRow kSoftmaxRow = {
    KernelType::softmax,
    "softmax",
    "softmax of n rows of k values",
    "k n warps scale",
    "f32",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    2e-6,
    "exponents are differences from the greatest score, so that those that count are small; a sum "
    "of k in parallel and a few roundings per value",
    no_template};

}  // namespace lathe
