// Owns the rms_norm row: y = x / sqrt(mean(x^2) + epsilon) * weight (+ residual), n rows of k.
// Device code: ptx_templates/ops/rms_norm.h.
#include "codegen/kernels/rows.h"

namespace lathe {
namespace {

Result<void> check(const KernelKey& key) {
  LATHE_TRY(check_rows(key));
  return check_epsilon(key);
}

Geometry geometry(const KernelKey& key) {
  return block_per_row(key, 1);
}

std::vector<Param> params(const KernelKey& key) {
  const std::int64_t values = static_cast<std::int64_t>(key.n) * key.k;
  std::vector<Param> out = {vector_in("x", values, true), vector_in("weight", key.k)};
  if (key.residual) out.push_back(vector_in("residual", values, true));
  out.push_back(vector_out("y", values));
  return out;
}

OpCall call(const KernelKey& key) {
  return row_call("rms_norm", parameters_of({true, true, key.residual, true}), key, key.epsilon);
}

Cost cost(const KernelKey& key) {
  const std::int64_t values = static_cast<std::int64_t>(key.n) * key.k;
  return {(values * (key.residual ? 2 : 1) + key.k) * 4, values * 4, values * 4};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto* x = static_cast<const float*>(arguments[0]);
  const auto* weight = static_cast<const float*>(arguments[1]);
  const auto* residual = key.residual ? static_cast<const float*>(arguments[2]) : nullptr;
  auto* y = static_cast<float*>(arguments[key.residual ? 3 : 2]);
  const auto [first, last] = share(key.n, part, parts);
  for (std::int64_t r = first; r < last; ++r) {
    const std::int64_t base = r * key.k;
    double squares = 0;
    for (int i = 0; i < key.k; ++i) squares += static_cast<double>(x[base + i]) * x[base + i];
    const double factor = 1 / std::sqrt(squares / key.k + key.epsilon);
    for (int i = 0; i < key.k; ++i) {
      const double value =
          x[base + i] * factor * weight[i] + (residual ? residual[base + i] : 0.0f);
      y[base + i] = static_cast<float>(value);
    }
  }
}

const char* text_template(const KernelKey&) {
  return "rms_norm";
}

}  // namespace

const KernelRow kRmsNormRow = {KernelType::rms_norm,
                               "rms_norm",
                               "root mean square normalization of n rows of k values",
                               "k n warps epsilon residual",
                               "f32",
                               check,
                               geometry,
                               params,
                               call,
                               cost,
                               oracle,
                               2e-6,
                               "f32 sum of k squares in parallel, then four roundings per value",
                               text_template};

}  // namespace lathe
