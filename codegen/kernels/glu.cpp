// Owns the glu row: y = activation(gate) * up. Device code: ptx_templates/ops/glu.h.
#include "codegen/kernels/rows.h"

#include <numbers>

namespace lathe {
namespace {

Result<void> check(const KernelKey& key) {
  LATHE_TRY(in_range("n", key.n, 1, 1 << 30));
  return in_range("warps", key.warps, 1, 32);
}

Geometry geometry(const KernelKey& key) {
  return per_element(key.n, key.warps);
}

std::vector<Param> params(const KernelKey& key) {
  return {vector_in("gate", key.n, true), vector_in("up", key.n, true), vector_out("y", key.n)};
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/glu.h", fmt::format("glu_{}", activation_name(key.activation)), parameters(3)};
  call.arguments.push_back(integer(key.n));
  call.arguments.push_back(integer(key.warps));
  return call;
}

Cost cost(const KernelKey& key) {
  return {key.n * 8ll, key.n * 4ll, key.n * 20ll};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto* gate = static_cast<const float*>(arguments[0]);
  const auto* up = static_cast<const float*>(arguments[1]);
  auto* y = static_cast<float*>(arguments[2]);
  const auto [first, last] = share(key.n, part, parts);
  for (std::int64_t i = first; i < last; ++i)
    y[i] = static_cast<float>(activated(gate[i], key.activation) * up[i]);
}

const char* text_template(const KernelKey&) {
  return "glu";
}

}  // namespace

const char* activation_name(Activation activation) {
  static constexpr const char* names[] = {"silu", "gelu_tanh", "gelu_erf", "relu"};
  return names[static_cast<std::size_t>(activation)];
}

double activated(double x, Activation activation) {
  if (activation == Activation::silu) return x / (1 + std::exp(-x));
  if (activation == Activation::gelu_erf) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  if (activation == Activation::relu) return std::max(x, 0.0);
  const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(inner));
}

const KernelRow kGluRow = {
    KernelType::glu,
    "glu",
    "gated linear unit: SwiGLU, GeGLU or ReGLU",
    "n warps activation",
    "f32",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    2e-6,
    "the exponential is good to 1 ulp of its argument; a few roundings per value",
    text_template};

}  // namespace lathe
