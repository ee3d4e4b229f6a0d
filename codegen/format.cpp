// Owns the format table: block geometry and the CPU's pack and unpack of every format.
#include "lathe/codegen/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>

#include "codegen/format_blocks.h"

namespace lathe {
namespace {

// In the order of the enum.
constexpr std::array kFormats = {
    FormatRow{Format::f32, "f32", 0, 1, 4, 4, unpack_f32, pack_f32},
    FormatRow{Format::f16, "f16", 1, 1, 2, 2, unpack_f16, pack_f16},
    FormatRow{Format::bf16, "bf16", 30, 1, 2, 2, unpack_bf16, pack_bf16},
    FormatRow{Format::q4_0, "q4_0", 2, 32, 18, 2, unpack_q4_0, pack_q4_0},
    FormatRow{Format::q4_1, "q4_1", 3, 32, 20, 4, unpack_q4_1, pack_q4_1},
    FormatRow{Format::q5_0, "q5_0", 6, 32, 22, 2, unpack_q5_0, pack_q5_0},
    FormatRow{Format::q5_1, "q5_1", 7, 32, 24, 8, unpack_q5_1, pack_q5_1},
    FormatRow{Format::q8_0, "q8_0", 8, 32, 34, 2, unpack_q8_0, pack_q8_0},
    FormatRow{Format::q4_k, "q4_k", 12, 256, 144, 16, unpack_q4_k, pack_q4_k},
    FormatRow{Format::q5_k, "q5_k", 13, 256, 176, 16, unpack_q5_k, pack_q5_k},
    FormatRow{Format::q6_k, "q6_k", 14, 256, 210, 2, unpack_q6_k, pack_q6_k},
    FormatRow{Format::q2_k, "q2_k", 10, 256, 84, 4, unpack_q2_k, pack_q2_k},
    FormatRow{Format::q3_k, "q3_k", 11, 256, 110, 2, unpack_q3_k, pack_q3_k},
    FormatRow{Format::iq4_nl, "iq4_nl", 20, 32, 18, 2, unpack_iq4_nl, pack_iq4_nl},
    FormatRow{Format::iq4_xs, "iq4_xs", 23, 256, 136, 8, unpack_iq4_xs, pack_iq4_xs},
    FormatRow{Format::mxfp4, "mxfp4", 39, 32, 17, 1, unpack_mxfp4, pack_mxfp4},
    FormatRow{Format::q8_1, "q8_1", 9, 32, 36, 4, unpack_q8_1, pack_q8_1},
    FormatRow{Format::q8_1_tail, "q8_1_tail", kNoFileType, 32, 36, 4, unpack_q8_1_tail,
              pack_q8_1_tail},
    FormatRow{Format::q8_k, "q8_k", 15, 256, 292, 4, unpack_q8_k, pack_q8_k},
    FormatRow{Format::q4_k_soa, "q4_k_soa", 112, 256, 160, 32, unpack_q4_k_soa, pack_q4_k_soa},
    FormatRow{Format::fp8_e4m3, "fp8_e4m3", kNoFileType, 1, 1, 1, unpack_fp8_e4m3, pack_fp8_e4m3},
    FormatRow{Format::ternary, "ternary", kNoFileType, 32, 8, 8, unpack_ternary, pack_ternary},
    FormatRow{Format::f64, "f64", kNoFileType, 1, 8, 8, unpack_f64, pack_f64},
};

std::string names_of(bool in_files_only) {
  std::string out;
  for (const FormatRow& format : kFormats)
    if (!in_files_only || format.ggml_type != kNoFileType) out += fmt::format(" {}", format.name);
  return out;
}

}  // namespace

std::span<const FormatRow> formats() {
  return kFormats;
}

const FormatRow& row(Format format) {
  return kFormats[static_cast<std::size_t>(format)];
}

std::int64_t row_bytes(Format format, std::int64_t k) {
  const FormatRow& f = row(format);
  return k / f.block * f.bytes;
}

std::int64_t kv_position_bytes(Format format, std::int64_t values) {
  const std::int64_t bytes = row_bytes(format, values);
  return format == Format::q8_0 ? (bytes + 15) / 16 * 16 : bytes;
}

Result<Format> format_by_name(std::string_view name) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  for (const FormatRow& format : kFormats)
    if (std::ranges::equal(name, std::string_view(format.name), same)) return format.format;
  return Error{Code::unsupported,
               fmt::format("format '{}' is not known; known:{}", name, names_of(false)),
               {}};
}

Result<Format> format_by_ggml_type(std::uint32_t type) {
  for (const FormatRow& format : kFormats)
    if (format.ggml_type == type && type != kNoFileType) return format.format;
  return Error{Code::unsupported,
               fmt::format("tensor type {} is not supported; supported:{}", type, names_of(true)),
               {}};
}

float f16_to_f32(std::uint16_t bits) {
  // The exponent field moved into a float's reads 2^-112 times too small, subnormals included.
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fff) << 13;
  const std::uint32_t finite =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const bool special = (bits & 0x7c00) == 0x7c00;  // infinity or NaN
  return std::bit_cast<float>(sign | (special ? magnitude | 0x7f800000 : finite));
}

std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;          // NaN, as the device converts it
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds past the greatest half
  if (magnitude < 0x38800000) {                       // subnormal: a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::nearbyint(scaled)));
  }
  const std::uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<std::uint16_t>(sign | (rounded - 0x38000000) >> 13);
}

float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float e4m3_to_f32(std::uint8_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80) << 24;
  const std::uint32_t code = bits & 0x7f;
  if (code == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000);
  // The exponent field moved into a float's reads 2^-120 times too small, subnormals included.
  const float magnitude = std::bit_cast<float>(code << 20) * 0x1p120f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

std::uint8_t f32_to_e4m3(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<std::uint8_t>(sign | 0x7f);
  if (magnitude > 0x43e00000) return static_cast<std::uint8_t>(sign | 0x7e);  // 448
  if (magnitude < 0x3c800000) {  // subnormal: a multiple of 2^-9
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p9f;
    return static_cast<std::uint8_t>(sign | static_cast<std::uint32_t>(std::nearbyint(scaled)));
  }
  const std::uint32_t rounded = magnitude + 0x7ffff + (magnitude >> 20 & 1);
  return static_cast<std::uint8_t>(sign | (rounded - 0x3c000000) >> 20);
}

}  // namespace lathe
