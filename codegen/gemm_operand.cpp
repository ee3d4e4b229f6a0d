// Owns the making of gemm's operands on the host.
#include "lathe/codegen/gemm_operand.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ptx_templates/ops/gemm_shapes.h"

namespace lathe {
namespace {

int planes_of(Format form) {
  return form == Format::f32 ? 2 : 1;
}
bool is_eight(Format form) {
  return form == Format::fp8_e4m3;
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

unsigned greatest_magnitude(std::span<const float> numbers) {
  unsigned greatest = 0;
  for (const float number : numbers)
    greatest = std::max(greatest, std::bit_cast<unsigned>(number) & 0x7fffffffu);
  return greatest;
}

// As an operand has it.
std::uint8_t rounded_eight(float number, float factor) {
  return std::isnan(factor) ? std::uint8_t{0} : f32_to_e4m3(number * (1.0f / factor));
}

}  // namespace

bool has_gemm_operands(Format form) {
  return makes_gemm_operands(form) || is_eight(form);
}

bool makes_gemm_operands(Format source) {
  return source == Format::f32 || source == Format::f16 || source == Format::bf16;
}

std::int64_t gemm_operand_bytes(Format form, int rows, int k) {
  return dev::gemm_operand_bytes(rows, dev::gemm_words(k, is_eight(form)), planes_of(form));
}

float gemm_row_factor(std::span<const float> numbers) {
  const unsigned greatest = greatest_magnitude(numbers);
  if (greatest >= 0x7f800000u) return std::bit_cast<float>(0x7fffffffu);
  return std::max(std::bit_cast<float>(greatest) / static_cast<float>(dev::kGemmEightMost),
                  std::bit_cast<float>(unsigned{dev::kGemmEightLeast}));
}

void round_gemm_row(std::span<const float> numbers, std::span<double> rounded) {
  const float factor = gemm_row_factor(numbers);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    rounded[i] = static_cast<double>(e4m3_to_f32(rounded_eight(numbers[i], factor))) *
                 static_cast<double>(factor);
}

void make_gemm_operand(Format form, Format source, int rows, int k, const std::byte* numbers,
                       std::byte* operand, int first, int last) {
  const int planes = planes_of(form), words = dev::gemm_words(k, is_eight(form));
  const int depth_blocks = dev::gemm_depth_blocks(words);
  const int width = depth_blocks * dev::kGemmDepth * (is_eight(form) ? 2 : 1);
  std::vector<float> values(static_cast<std::size_t>(width));
  for (int r = first * dev::kGemmRows; r < last * dev::kGemmRows; ++r) {
    std::ranges::fill(values, 0.0f);
    if (r < rows) row(source).unpack(numbers + r * row_bytes(source, k), k, values.data());
    std::byte* scale = operand + dev::gemm_exponents_at(rows, words, planes) + std::int64_t{r} * 4;
    const auto piece = [&](int i) {
      return operand + dev::gemm_piece_at(r, i, depth_blocks, planes);
    };
    if (is_eight(form)) {
      const float factor = gemm_row_factor(values);
      std::memcpy(scale, &factor, 4);
      for (int i = 0; i < width; ++i)
        piece(i / 16)[i % 16] =
            static_cast<std::byte>(rounded_eight(values[static_cast<std::size_t>(i)], factor));
      continue;
    }
    const std::int32_t exponent = dev::gemm_exponent(greatest_magnitude(values));
    std::memcpy(scale, &exponent, 4);
    const auto factor = std::bit_cast<float>(static_cast<std::uint32_t>(127 - exponent) << 23);
    for (int i = 0; i < width; ++i) {
      float value = values[static_cast<std::size_t>(i)] * factor;
      std::byte* to = piece(i / 8) + std::int64_t{i % 8} * 2;
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
