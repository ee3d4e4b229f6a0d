// Owns the gemm_operand row: rows of numbers as an operand of gemm. Device code:
// ptx_templates/ops/gemm_operand.h.
#include "lathe/codegen/gemm_operand.h"

#include "codegen/kernels/rows.h"
#include "ptx_templates/ops/gemm_shapes.h"

namespace lathe {
namespace {

Result<void> check(const KernelKey& key) {
  if (!makes_gemm_operands(key.format_b))
    return invalid("format_b is {}; the numbers must be f32, f16 or bf16", row(key.format_b).name);
  LATHE_TRY(in_range("k", key.k, 1, 1 << 20));
  LATHE_TRY(in_range("n", key.n, 1, 1 << 20));
  return in_range("warps", key.warps, 1, 32);
}

Geometry geometry(const KernelKey& key) {
  const int rows = dev::gemm_row_blocks(key.n) * dev::kGemmRows;
  return {.grid_x = static_cast<unsigned>(ceil_div(rows, key.warps)),
          .threads = static_cast<unsigned>(key.warps * 32)};
}

std::vector<Param> params(const KernelKey& key) {
  const Matrix matrix = {key.format_b, key.n, key.k};
  return {blocks_param("x", matrix, Access::read),
          {"y", Access::write, Element::tiles, gemm_operand_bytes(key.format, key.n, key.k), 16}};
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/gemm_operand.h",
              fmt::format("gemm_operand_{}_of_{}", row(key.format).name, row(key.format_b).name),
              parameters(2)};
  for (int value : {key.k, key.n, key.warps}) call.arguments.push_back(integer(value));
  return call;
}

Cost cost(const KernelKey& key) {
  return {key.n * row_bytes(key.format_b, key.k), gemm_operand_bytes(key.format, key.n, key.k),
          std::int64_t{key.n} * key.k * 4};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto [first, last] = share(dev::gemm_row_blocks(key.n), part, parts);
  make_gemm_operand(
      key.format, key.format_b, key.n, key.k, static_cast<const std::byte*>(arguments[0]),
      static_cast<std::byte*>(arguments[1]), static_cast<int>(first), static_cast<int>(last));
}

Instructions key_instructions(const KernelKey& key) {
  if (key.format != Format::fp8_e4m3) return {};
  return {89, 81, "conversions to fp8_e4m3"};
}

}  // namespace

const KernelRow kGemmOperandRow = {KernelType::gemm_operand,
                                   "gemm_operand",
                                   "rows of numbers as an operand of gemm",
                                   "k n format_b warps",
                                   "f32 f16 bf16 fp8_e4m3",
                                   check,
                                   geometry,
                                   params,
                                   call,
                                   cost,
                                   oracle,
                                   0,
                                   "numbers are rounded as on the CPU",
                                   no_template,
                                   0,
                                   "",
                                   nullptr,
                                   nullptr,
                                   key_instructions};

}  // namespace lathe
