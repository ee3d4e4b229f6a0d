// Owns the elementwise row: y = scale * operation(x, b) for each of n values, b repeated every k.
// Device code: ptx_templates/ops/elementwise.h.
#include "codegen/kernels/rows.h"

namespace lathe {
namespace {

bool has_b(const KernelKey& key) {
  return key.operation == Operation::add || key.operation == Operation::multiply || key.bias;
}

// Values of b.
int length_of_b(const KernelKey& key) {
  return key.k > 0 ? key.k : key.n;
}

Result<void> check(const KernelKey& key) {
  LATHE_TRY(in_range("n", key.n, 1, 1 << 30));
  LATHE_TRY(in_range("k", key.k, 0, has_b(key) ? key.n : 0));
  LATHE_TRY(in_range("warps", key.warps, 1, 32));
  if (key.n % length_of_b(key) != 0)
    return invalid("k is {}; b is repeated a whole number of times, and n is {}", key.k, key.n);
  if (key.bias && key.operation != Operation::activate)
    return invalid("a bias is added before activate; operation must be that");
  return check_activation(key);
}

Geometry geometry(const KernelKey& key) {
  return per_element(ceil_div(key.n, 4), key.warps);
}

std::vector<Param> params(const KernelKey& key) {
  std::vector<Param> out = {vector_in("x", key.n, true)};
  if (has_b(key)) out.push_back(vector_in("b", length_of_b(key), length_of_b(key) == key.n));
  out.push_back(vector_out("y", key.n));
  return out;
}

std::string op_name(const KernelKey& key) {
  switch (key.operation) {
    case Operation::copy:
      return "elementwise_copy";
    case Operation::add:
      return "elementwise_add";
    case Operation::multiply:
      return "elementwise_multiply";
    case Operation::activate:
      return fmt::format("elementwise_{}", activation_name(key.activation));
  }
  return {};
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/elementwise.h", op_name(key), parameters_of({true, has_b(key), true})};
  for (int value : {key.n, length_of_b(key), key.warps}) call.arguments.push_back(integer(value));
  call.arguments.push_back(real(key.scale));
  return call;
}

Cost cost(const KernelKey& key) {
  const std::int64_t read = std::int64_t{key.n} + (has_b(key) ? length_of_b(key) : 0);
  return {read * 4, key.n * 4ll, key.n * (key.operation == Operation::activate ? 20ll : 1ll)};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto* x = static_cast<const float*>(arguments[0]);
  const auto* b = has_b(key) ? static_cast<const float*>(arguments[1]) : nullptr;
  auto* y = static_cast<float*>(arguments[has_b(key) ? 2 : 1]);
  const auto [first, last] = share(key.n, part, parts);
  for (std::int64_t i = first; i < last; ++i) {
    const double v = x[i], w = b ? b[i % length_of_b(key)] : 0;
    const double value = key.operation == Operation::multiply   ? v * w
                         : key.operation == Operation::activate ? activated(v + w, key.activation)
                                                                : v + w;
    y[i] = static_cast<float>(key.scale * value);
  }
}

}  // namespace

const KernelRow kElementwiseRow = {
    KernelType::elementwise,
    "elementwise",
    "copy, sum, product or activation of n values, times a factor",
    "k n operation warps scale bias activation",
    "f32",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    2e-6,
    "the exponential is good to 1 ulp of its argument; a few roundings per value",
    no_template};

}  // namespace lathe
