// Owns the gemv row: y[n] = W[n][k] . x[k] (* scale) (+ bias) (+ residual), W in any format, x in
// f32 or f16, or rounded to blocks of signed bytes; with W in f64 everything is. Device code:
// ptx_templates/ops/gemv.h, gemv_dot.h, gemv_f64.h and formats.h.
#include "codegen/kernels/rows.h"
#include "ptx_templates/ops/launch_shapes.h"

namespace lathe {
namespace {

bool is_f64(const KernelKey& key) {
  return key.format == Format::f64;
}

// x is q8_1 or q8_k, and integers are multiplied with integers.
bool of_integers(const KernelKey& key) {
  return key.format_b == Format::q8_1 || key.format_b == Format::q8_k;
}

// Weights that are integers times a factor, of no more than eight bits.
Result<void> check_integers(const KernelKey& key) {
  switch (key.format) {
    case Format::q4_0:
    case Format::q4_1:
    case Format::q5_0:
    case Format::q5_1:
    case Format::q8_0:
    case Format::q4_k:
    case Format::q5_k:
    case Format::q6_k:
    case Format::q4_k_soa:
      break;
    default:
      return invalid("format_b is {}; weights of {} are multiplied with x in f32 or f16",
                     row(key.format_b).name, row(key.format).name);
  }
  const int block = row(key.format_b).block;
  if (key.k % block == 0) return {};
  return invalid("k is {}; x in {} comes in blocks of {}", key.k, row(key.format_b).name, block);
}

Result<void> check(const KernelKey& key) {
  LATHE_TRY(whole_blocks(key));
  LATHE_TRY(in_range("n", key.n, 1, 1 << 30));
  LATHE_TRY(in_range("warps", key.warps, 1, 16));
  LATHE_TRY(in_range("rows", key.rows, 1, dev::kGemvMaxRows));
  if (is_f64(key) && key.format_b != Format::f32)
    return invalid("format_b is {}; with weights of f64 x is f64, and format_b left as it is",
                   row(key.format_b).name);
  if (of_integers(key)) return check_integers(key);
  if (key.format_b != Format::f32 && key.format_b != Format::f16)
    return invalid("format_b is {}; x must be f32, f16, q8_1 or q8_k", row(key.format_b).name);
  return {};
}

Geometry geometry(const KernelKey& key) {
  const bool stages = !of_integers(key) && !is_f64(key);
  return {.grid_x = static_cast<unsigned>(ceil_div(key.n, key.warps * key.rows)),
          .threads = static_cast<unsigned>(key.warps * 32),
          .shared_bytes = stages ? static_cast<unsigned>(dev::gemv_shared_bytes(key.k)) : 0};
}

std::vector<Param> params_f64(const KernelKey& key) {
  const auto vector = [](const char* name, int values, Access access = Access::read) {
    return blocks_param(name, {Format::f64, 1, values}, access);
  };
  std::vector<Param> out = {blocks_in("weights", key), vector("x", key.k)};
  if (key.scaled) out.push_back(vector("scales", key.n));
  if (key.bias) out.push_back(vector("bias", key.n));
  if (key.residual) {
    out.push_back(vector("residual", key.n));
    out.back().may_alias = true;
  }
  out.push_back(vector("y", key.n, Access::write));
  return out;
}

std::vector<Param> params(const KernelKey& key) {
  if (is_f64(key)) return params_f64(key);
  std::vector<Param> out = {blocks_in("weights", key)};
  out.push_back(key.format_b == Format::f32
                    ? vector_in("x", key.k)
                    : blocks_param("x", {key.format_b, 1, key.k}, Access::read));
  if (key.scaled) out.push_back(vector_in("scales", key.n));
  if (key.bias) out.push_back(vector_in("bias", key.n));
  if (key.residual) out.push_back(vector_in("residual", key.n, true));
  out.push_back(vector_out("y", key.n));
  return out;
}

OpCall call(const KernelKey& key) {
  const bool integers = of_integers(key);
  OpCall call{is_f64(key) ? "ops/gemv_f64.h"
              : integers  ? "ops/gemv_dot.h"
                          : "ops/gemv.h",
              fmt::format("gemv_{}{}", integers ? "dot_" : "", row(key.format).name),
              parameters_of({true, true, key.scaled, key.bias, key.residual, true})};
  for (int value : {key.k, key.n, key.warps, key.rows}) call.arguments.push_back(integer(value));
  if (is_f64(key)) return call;
  // Of x: halves, or the longer of the two blocks.
  const bool other = key.format_b == (integers ? Format::q8_k : Format::f16);
  call.arguments.push_back(integer(other ? 1 : 0));
  return call;
}

Cost cost(const KernelKey& key) {
  const int of_rows = (key.scaled ? 1 : 0) + (key.bias ? 1 : 0) + (key.residual ? 1 : 0);
  const Format numbers = is_f64(key) ? Format::f64 : Format::f32;
  const Format of_x = is_f64(key) ? Format::f64 : key.format_b;
  return {key.n * row_bytes(key.format, key.k) + row_bytes(of_x, key.k) +
              of_rows * row_bytes(numbers, key.n),
          row_bytes(numbers, key.n), 2ll * key.n * key.k};
}

// In 64 bits where the kernel has 53.
void oracle_f64(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  std::size_t next = 0;
  const auto operand = [&](bool there) {
    return there ? static_cast<const double*>(arguments[next++]) : nullptr;
  };
  const double *w = operand(true), *x = operand(true), *scales = operand(key.scaled),
               *bias = operand(key.bias), *residual = operand(key.residual);
  auto* y = static_cast<double*>(arguments[next]);
  const std::int64_t k = key.k;
  const auto [first, last] = share(key.n, part, parts);
  for (std::int64_t r = first; r < last; ++r) {
    long double total = 0;
    for (std::int64_t i = 0; i < k; ++i) total += static_cast<long double>(w[r * k + i]) * x[i];
    if (scales) total *= scales[r];
    if (bias) total += bias[r];
    if (residual) total += residual[r];
    y[r] = static_cast<double>(total);
  }
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  if (is_f64(key)) return oracle_f64(key, arguments, part, parts);
  const auto* weights = static_cast<const std::byte*>(arguments[0]);
  const auto* x = static_cast<const float*>(arguments[1]);
  std::vector<float> numbers;
  if (key.format_b != Format::f32) {
    numbers.resize(static_cast<std::size_t>(key.k));
    row(key.format_b).unpack(static_cast<const std::byte*>(arguments[1]), key.k, numbers.data());
    x = numbers.data();
  }
  std::size_t next = 2;
  const auto* scales = key.scaled ? static_cast<const float*>(arguments[next++]) : nullptr;
  const auto* bias = key.bias ? static_cast<const float*>(arguments[next++]) : nullptr;
  const auto* residual = key.residual ? static_cast<const float*>(arguments[next++]) : nullptr;
  auto* y = static_cast<float*>(arguments[next]);
  const FormatRow& format = row(key.format);
  const std::int64_t bytes = row_bytes(key.format, key.k);
  // A piece of a row at a time, so that the unpacked values stay in the L1 cache.
  constexpr int kPiece = 1024;
  alignas(64) float w[kPiece];
  const auto [first, last] = share(key.n, part, parts);
  for (std::int64_t r = first; r < last; ++r) {
    double sums[8] = {};
    for (int at = 0; at < key.k; at += kPiece) {
      const int count = std::min(kPiece, key.k - at);
      format.unpack(weights + r * bytes + row_bytes(key.format, at), count, w);
      int i = 0;
      for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; ++j)
          sums[j] += static_cast<double>(w[i + j]) * static_cast<double>(x[at + i + j]);
      for (; i < count; ++i) sums[0] += static_cast<double>(w[i]) * static_cast<double>(x[at + i]);
    }
    double total =
        ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    if (scales) total *= scales[r];
    if (bias) total += bias[r];
    if (residual) total += residual[r];
    y[r] = static_cast<float>(total);
  }
}

const char* text_template(const KernelKey& key) {
  if (key.scaled || key.format_b != Format::f32) return nullptr;
  switch (key.format) {
    case Format::q4_k:
      return key.rows <= 4 ? "gemv_q4_k" : nullptr;  // more take more registers than 16 warps have
    case Format::q5_0:
      return "gemv_q5_0";
    case Format::q6_k:
      return "gemv_q6_k";
    case Format::q8_0:
      return "gemv_q8_0";
    default:
      return nullptr;
  }
}

}  // namespace

const KernelRow kGemvRow = {
    KernelType::gemv,
    "gemv",
    "matrix-vector product with optional bias and residual",
    "k n format_b warps rows scaled bias residual",
    kAnyFormat,
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    5e-6,
    "f32 sums of k products in 32 lanes of several chains; grows with "
    "sqrt(k), stated for k to 2^17; in f64 1e-14",
    text_template,
    0,
    "",
    nullptr,
    [](const KernelKey& key) { return is_f64(key) ? 1e-14 : kGemvRow.bound; }};

}  // namespace lathe
