// Owns the gemm row: dense rows times dense rows, by the matrix units. Device code:
// ptx_templates/ops/gemm.h, of f64 ops/gemm_f64.h.
#include "codegen/kernels/matvec.h"
#include "codegen/kernels/rows.h"
#include "lathe/codegen/gemm_operand.h"
#include "ptx_templates/ops/gemm_shapes.h"

namespace lathe {
namespace {

constexpr int kMost = 1 << 20;

bool is_faithful(const KernelKey& key) {
  return key.format == Format::f32;
}
bool is_eight(const KernelKey& key) {
  return key.format == Format::fp8_e4m3;
}
// All of it, from rows as they lie.
bool is_f64(const KernelKey& key) {
  return key.format == Format::f64;
}
dev::GemmTile tile_of(const KernelKey& key) {
  return dev::gemm_tile(is_faithful(key) ? 2 : 1, is_faithful(key) || is_eight(key), key.grouped);
}
int tiles_of(const KernelKey& key) {
  const int columns = is_f64(key) ? int{dev::kGemmF64Columns} : tile_of(key).columns;
  return dev::gemm_tiles(key.tokens, key.n, columns);
}

Result<void> check(const KernelKey& key) {
  LATHE_TRY(in_range("k", key.k, 1, kMost));
  LATHE_TRY(in_range("n", key.n, 1, kMost));
  LATHE_TRY(in_range("tokens", key.tokens, 1, kMost));
  LATHE_TRY(in_range("blocks", key.blocks, 0, 1 << 14));
  if (is_f64(key) && key.grouped)
    return invalid("grouped is 1; four warps together multiply no f64: it must be 0");
  const int warps = dev::kGemmWarps + (key.grouped ? 1 : 0);
  if (key.warps != warps)
    return invalid("warps is {}; it must be {}: {}", key.warps, warps,
                   key.grouped ? "eight that multiply and one that copies" : "all multiply");
  if (key.operation != Operation::copy && key.operation != Operation::activate)
    return invalid("a product is copied or activated; operation must be one of these");
  if (is_f64(key) && key.operation == Operation::activate && key.activation != Activation::relu)
    return invalid("activation is {}; of products of f64 it must be relu",
                   activation_name(key.activation));
  return check_activation(key);
}

Geometry geometry(const KernelKey& key) {
  const int blocks = key.blocks > 0 ? std::min(key.blocks, tiles_of(key)) : tiles_of(key);
  return {.grid_x = static_cast<unsigned>(blocks),
          .threads = static_cast<unsigned>(key.warps * 32),
          .shared_bytes =
              static_cast<unsigned>(is_f64(key) ? int{dev::kGemmF64Bytes} : tile_of(key).bytes)};
}

Param operand_in(const char* name, const KernelKey& key, int rows) {
  if (is_f64(key)) return blocks_param(name, {Format::f64, rows, key.k}, Access::read);
  return {name,
          Access::read,
          Element::tiles,
          gemm_operand_bytes(key.format, rows, key.k),
          16,
          false,
          false,
          false,
          {Format::f32, rows, key.k}};
}

std::vector<Param> params(const KernelKey& key) {
  std::vector<Param> out = {operand_in("x", key, key.tokens), operand_in("w", key, key.n)};
  if (is_f64(key)) {
    if (key.bias) out.push_back(blocks_param("bias", {Format::f64, 1, key.n}, Access::read));
    out.push_back(blocks_param("y", {Format::f64, key.tokens, key.n}, Access::write));
    return out;
  }
  if (key.bias) out.push_back(vector_in("bias", key.n));
  out.push_back(vector_out("y", std::int64_t{key.tokens} * key.n));
  return out;
}

OpCall call(const KernelKey& key) {
  OpCall call{is_f64(key) ? "ops/gemm_f64.h" : "ops/gemm.h",
              fmt::format("gemm_{}{}", row(key.format).name, key.grouped ? "_grouped" : ""),
              parameters_of({true, true, key.bias, true})};
  const int activation =
      key.operation == Operation::activate ? 1 + static_cast<int>(key.activation) : 0;
  for (int value : {key.tokens, key.n, key.k, static_cast<int>(geometry(key).grid_x), activation})
    call.arguments.push_back(integer(value));
  return call;
}

Cost cost(const KernelKey& key) {
  const std::int64_t m = key.tokens, n = key.n;
  if (is_f64(key))
    return {((m + n) * key.k + (key.bias ? n : 0)) * 8, m * n * 8, 2 * m * n * key.k};
  return {gemm_operand_bytes(key.format, key.tokens, key.k) +
              gemm_operand_bytes(key.format, key.n, key.k) + (key.bias ? n * 4 : 0),
          m * n * 4, 2 * m * n * key.k};
}

double finished(const KernelKey& key, double value) {
  return key.operation == Operation::activate ? activated(value, key.activation) : value;
}

// In 64 bits where the kernel has 53.
void oracle_f64(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto* x = static_cast<const double*>(arguments[0]);
  const auto* w = static_cast<const double*>(arguments[1]);
  const auto* bias = key.bias ? static_cast<const double*>(arguments[2]) : nullptr;
  auto* y = static_cast<double*>(arguments[key.bias ? 3 : 2]);
  const std::int64_t k = key.k, n = key.n;
  const auto [first, last] = share(key.n, part, parts);
  for (std::int64_t column = first; column < last; ++column) {
    for (std::int64_t r = 0; r < key.tokens; ++r) {
      long double value = 0;
      for (std::int64_t i = 0; i < k; ++i)
        value += static_cast<long double>(x[r * k + i]) * w[column * k + i];
      if (bias) value += bias[column];
      y[r * n + column] = finished(key, static_cast<double>(value));
    }
  }
}

// Rows of x times rows of w, each of which `line_of` makes of its numbers.
template <class Number, class LineOf>
void multiply_rows(const KernelKey& key, std::span<const Number> x, std::span<const float> w,
                   const float* bias, float* y, int part, int parts, LineOf line_of) {
  const auto k = static_cast<std::size_t>(key.k), columns = static_cast<std::size_t>(key.n);
  const auto [first, last] = share(key.n, part, parts);
  std::vector<double> line(k);
  for (auto column = static_cast<std::size_t>(first); column < static_cast<std::size_t>(last);
       ++column) {
    line_of(w.subspan(column * k, k), std::span(line));
    for (std::size_t r = 0; r < static_cast<std::size_t>(key.tokens); ++r) {
      double value = dot_product(x.subspan(r * k, k), line.data());
      if (bias) value += static_cast<double>(bias[column]);
      y[r * columns + column] = static_cast<float>(finished(key, value));
    }
  }
}

// Reads rows of f32 where the kernel reads the operands that they become; of e4m3 the numbers are
// rounded as these are, for then their products are exact.
void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  if (is_f64(key)) return oracle_f64(key, arguments, part, parts);
  const auto k = static_cast<std::size_t>(key.k);
  const auto rows = static_cast<std::size_t>(key.tokens), columns = static_cast<std::size_t>(key.n);
  const std::span x(static_cast<const float*>(arguments[0]), rows * k);
  const std::span w(static_cast<const float*>(arguments[1]), columns * k);
  const auto* bias = key.bias ? static_cast<const float*>(arguments[2]) : nullptr;
  auto* y = static_cast<float*>(arguments[key.bias ? 3 : 2]);
  if (!is_eight(key))
    return multiply_rows(key, x, w, bias, y, part, parts,
                         [](std::span<const float> numbers, std::span<double> line) {
                           std::ranges::copy(numbers, line.begin());
                         });
  std::vector<double> rounded(rows * k);
  for (std::size_t r = 0; r < rows; ++r)
    round_gemm_row(x.subspan(r * k, k), std::span(rounded).subspan(r * k, k));
  multiply_rows(key, std::span<const double>(rounded), w, bias, y, part, parts, round_gemm_row);
}

// x f'(x) / f(x), by which relative errors grow, is 1.29 at most for positive x, of SiLU and GELU.
// Below zero it is more, but there results are small.
constexpr double kGrowthByActivation = 1.3;

double bound_of_key(const KernelKey& key) {
  const bool curved = key.operation == Operation::activate && key.activation != Activation::relu;
  switch (key.format) {
    case Format::f64:
      return 1e-14;
    case Format::f32:
      return 1e-6;
    case Format::fp8_e4m3:
      return 1e-3;
    case Format::f16:
      return 1e-3 * (curved ? kGrowthByActivation : 1);
    default:
      return kGemmRow.bound * (curved ? kGrowthByActivation : 1);
  }
}

Instructions key_instructions(const KernelKey& key) {
  if (!is_eight(key)) return {};
  return {89, key.grouped ? 80 : 84, "products of fp8_e4m3"};
}

}  // namespace

const KernelRow kGemmRow = {
    KernelType::gemm,
    "gemm",
    "dense rows times dense rows, with bias and activation",
    "k n tokens warps blocks grouped bias operation activation",
    "f32 f16 bf16 fp8_e4m3 f64",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    4e-3,
    "two numbers of bf16, of 8 bits, are off by 2^-9 each at most, which makes 2.4e-3 of many "
    "random ones; f16 has 11 bits: 1e-3; after SiLU or GELU both 1.3 times that. The faithful "
    "form, f32, has 22 and sums in f32: 1e-6. Numbers of fp8_e4m3 are exact against an oracle that "
    "rounds as their operands do; the matrix units sum 128 products of them in some 14 bits: 1e-3. "
    "f64: 1e-14. Sums grow worse with sqrt(k): stated for k to 2^15",
    no_template,
    80,
    "asynchronous copies",
    [](const KernelKey&) { return "mma wgmma"; },
    bound_of_key,
    key_instructions};

}  // namespace lathe
