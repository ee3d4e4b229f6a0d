// Owns the one table of number formats: how weights, KV entries and activations are stored.
//
// Block layouts are those of GGUF, where it has them. A block is the smallest run of values along k
// that decodes on its own; a row of k values takes k / block * bytes bytes, and k is a multiple of
// block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "lathe/codegen/result.h"

namespace lathe {

enum class Format : std::uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
  q2_k,
  q3_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
  q8_1,
  q8_1_tail,
  q8_k,
  q4_k_soa,
  fp8_e4m3,
  ternary,
  f64
};

// The file type of formats that no file has.
inline constexpr std::uint32_t kNoFileType = 0xffffffff;

struct FormatRow {
  Format format;
  const char* name;         // "q4_k": the name in kernel keys and on command lines
  std::uint32_t ggml_type;  // the type id in a GGUF file, or kNoFileType
  int block;                // values per block
  int bytes;                // bytes per block
  int alignment;            // greatest power of two that divides every block's offset in a row
  // Decodes `values` values (a multiple of block) to f32, exactly as the format defines them; those
  // of f64 become the nearest.
  void (*unpack)(const std::byte* blocks, std::int64_t values, float* out);
  // Rounds `values` values to the format by the nearest representable code (not searched for the
  // least error, as a quantizer for distribution would).
  void (*pack)(const float* in, std::int64_t values, std::byte* blocks);
};

// All formats, in the order of the enum.
std::span<const FormatRow> formats();
const FormatRow& row(Format format);

// Bytes of one row of k values. k must be a multiple of the format's block.
std::int64_t row_bytes(Format format, std::int64_t k);

// Bytes of one position in a KV cache of `values` values. In f16 and f32 they lie one after the
// other. In q8_0 all bytes come first, then the scales, then nothing up to a multiple of 16.
std::int64_t kv_position_bytes(Format format, std::int64_t values);

// By name ("q4_k", "Q4_K") or by GGUF type id. The error lists what is known.
Result<Format> format_by_name(std::string_view name);
Result<Format> format_by_ggml_type(std::uint32_t type);

// Blocks of q4_k to as many of q4_k_soa: the products of scales, and of mins, rounded to f16.
void q4_k_to_soa(const std::byte* blocks, std::int64_t values, std::byte* soa);

// IEEE half and bfloat16 conversions, round to nearest even, infinities and NaN kept.
float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);
float bf16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_bf16(float value);
// Eight bits: sign, four of exponent, three of fraction; no infinity, and NaN where all seven are
// set. To the nearest code, the greatest being 448; NaN is kept.
float e4m3_to_f32(std::uint8_t bits);
std::uint8_t f32_to_e4m3(float value);

}  // namespace lathe
