// Owns the layer_norm row: y = (x - mean) / sqrt(variance + epsilon) * weight (+ bias), n rows of
// k. Device code: ptx_templates/ops/layer_norm.h.
#include "codegen/kernels/rows.h"

namespace lathe {
namespace {

Result<void> check(const KernelKey& key) {
  LATHE_TRY(check_rows(key));
  return check_epsilon(key);
}

Geometry geometry(const KernelKey& key) {
  return block_per_row(key, 3);
}

std::vector<Param> params(const KernelKey& key) {
  const std::int64_t values = static_cast<std::int64_t>(key.n) * key.k;
  std::vector<Param> out = {vector_in("x", values, true), vector_in("weight", key.k)};
  if (key.bias) out.push_back(vector_in("bias", key.k));
  out.push_back(vector_out("y", values));
  return out;
}

OpCall call(const KernelKey& key) {
  return row_call("layer_norm", parameters_of({true, true, key.bias, true}), key, key.epsilon);
}

Cost cost(const KernelKey& key) {
  const std::int64_t values = static_cast<std::int64_t>(key.n) * key.k;
  return {(values + key.k * (key.bias ? 2 : 1)) * 4, values * 4, values * 8};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto* weight = static_cast<const float*>(arguments[1]);
  const auto* bias = key.bias ? static_cast<const float*>(arguments[2]) : nullptr;
  const auto [first, last] = share(key.n, part, parts);
  for (std::int64_t r = first; r < last; ++r) {
    const auto* x = static_cast<const float*>(arguments[0]) + r * key.k;
    auto* y = static_cast<float*>(arguments[key.bias ? 3 : 2]) + r * key.k;
    double mean = 0, variance = 0;
    for (int i = 0; i < key.k; ++i) mean += x[i];
    mean /= key.k;
    for (int i = 0; i < key.k; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const double factor = 1 / std::sqrt(variance / key.k + key.epsilon);
    for (int i = 0; i < key.k; ++i)
      y[i] = static_cast<float>((x[i] - mean) * factor * weight[i] + (bias ? bias[i] : 0.0f));
  }
}

}  // namespace

const KernelRow kLayerNormRow = {
    KernelType::layer_norm,
    "layer_norm",
    "normalization of n rows of k values by mean and deviation",
    "k n warps epsilon bias",
    "f32",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    2e-6,
    "f32 sums of k deviations in parallel, whose mean is corrected; then five roundings per value",
    no_template};

}  // namespace lathe
