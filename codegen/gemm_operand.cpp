// Owns the making of gemm's operands on the host.
#include "lathe/codegen/gemm_operand.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "ptx_templates/ops/gemm_shapes.h"

namespace lathe {
namespace {

int planes_of(Format form) {
  return form == Format::f32 ? 2 : 1;
}

// The number in the plane, and what it leaves.
std::uint16_t plane_number(Format form, float& value) {
  const bool brain = form == Format::bf16;
  // The kernel's NaN is another than that of f32_to_bf16().
  if (brain && std::isnan(value)) return 0x7fc0;
  const std::uint16_t bits = brain ? f32_to_bf16(value) : f32_to_f16(value);
  value -= brain ? bf16_to_f32(bits) : f16_to_f32(bits);
  return bits;
}

}  // namespace

bool has_gemm_operands(Format form) {
  return form == Format::f32 || form == Format::f16 || form == Format::bf16;
}

std::int64_t gemm_operand_bytes(Format form, int rows, int k) {
  return dev::gemm_operand_bytes(rows, k, planes_of(form));
}

void make_gemm_operand(Format form, Format source, int rows, int k, const std::byte* numbers,
                       std::byte* operand, int first, int last) {
  const int planes = planes_of(form), depth_blocks = dev::gemm_depth_blocks(k);
  std::vector<float> values(static_cast<std::size_t>(depth_blocks) * dev::kGemmDepth);
  for (int r = first * dev::kGemmRows; r < last * dev::kGemmRows; ++r) {
    std::ranges::fill(values, 0.0f);
    if (r < rows) row(source).unpack(numbers + r * row_bytes(source, k), k, values.data());
    unsigned greatest = 0;
    for (const float value : values)
      greatest = std::max(greatest, std::bit_cast<unsigned>(value) & 0x7fffffffu);
    const std::int32_t exponent = dev::gemm_exponent(greatest);
    std::memcpy(operand + dev::gemm_exponents_at(rows, k, planes) + std::int64_t{r} * 4, &exponent,
                4);
    const auto factor = std::bit_cast<float>(static_cast<std::uint32_t>(127 - exponent) << 23);
    for (int i = 0; i < depth_blocks * dev::kGemmDepth; ++i) {
      float value = values[static_cast<std::size_t>(i)] * factor;
      std::byte* to =
          operand + dev::gemm_piece_at(r, i / 8, depth_blocks, planes) + std::int64_t{i % 8} * 2;
      for (int plane = 0; plane < planes; ++plane) {
        const std::uint16_t bits = plane_number(form, value);
        std::memcpy(to + std::int64_t{plane} * dev::kGemmPlaneBytes, &bits, 2);
      }
    }
  }
}

void make_gemm_operand(Format form, Format source, int rows, int k, const std::byte* numbers,
                       std::byte* operand) {
  make_gemm_operand(form, source, rows, k, numbers, operand, 0, dev::gemm_row_blocks(rows));
}

}  // namespace lathe
