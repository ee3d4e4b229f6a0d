// Owns the CPU's codecs of unquantized formats and of those with 32-value blocks, written from the
// byte layouts that docs/formats.md states.
#include "codegen/format_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codegen/block_codec.h"

namespace lathe {
namespace {

using namespace block_codec;

// The 32-value formats share one shape: halves d and m, an optional fifth bit per value, nibbles.
template <bool kMin, bool kFifth>
void unpack_legacy(const std::byte* blocks, std::int64_t values, float* out) {
  constexpr int kHeader = kMin ? 4 : 2;
  constexpr int kBytes = kHeader + (kFifth ? 4 : 0) + 16;
  constexpr int kZero = kMin ? 0 : kFifth ? 16 : 8;
  for (std::int64_t b = 0; b < values / 32; ++b) {
    const u8* p = bytes(blocks) + b * kBytes;
    // Adding -0 changes no value; adding 0 would turn -0 into 0.
    const float d = load_half(p), m = kMin ? load_half(p + 2) : -0.0f;
    std::uint32_t fifth = 0;
    if (kFifth) std::memcpy(&fifth, p + kHeader, 4);
    const u8* nibbles = p + kBytes - 16;
    // One loop per half, free of conditions, so that the compiler makes vectors of them.
    float* low = out + b * 32;
    float* high = low + 16;
    for (int j = 0; j < 16; ++j) {
      const int q = (nibbles[j] & 15) | static_cast<int>(fifth >> j & 1) << 4;
      low[j] = d * static_cast<float>(q - kZero) + m;
    }
    for (int j = 0; j < 16; ++j) {
      const int q = nibbles[j] >> 4 | static_cast<int>(fifth >> (j + 16) & 1) << 4;
      high[j] = d * static_cast<float>(q - kZero) + m;
    }
  }
}

template <bool kMin, bool kFifth>
void pack_legacy(const float* in, std::int64_t values, std::byte* blocks) {
  constexpr int kHeader = kMin ? 4 : 2;
  constexpr int kBytes = kHeader + (kFifth ? 4 : 0) + 16;
  constexpr int kTop = kFifth ? 31 : 15;
  constexpr int kZero = kMin ? 0 : kFifth ? 16 : 8;
  for (std::int64_t b = 0; b < values / 32; ++b) {
    const float* x = in + b * 32;
    u8* p = bytes(blocks) + b * kBytes;
    std::memset(p, 0, kBytes);
    float d, m = 0;
    if (kMin) {
      const auto [low, high] = std::minmax_element(x, x + 32);
      d = store_half(p, (*high - *low) / kTop);
      m = store_half(p + 2, *low);
    } else {
      d = store_half(p, greatest_magnitude(x, 32) / (kTop - kZero));
    }
    std::uint32_t fifth = 0;
    for (int j = 0; j < 32; ++j) {
      const int q = code(x[j] - m, d, -kZero, kTop - kZero) + kZero;
      p[kBytes - 16 + j % 16] |= static_cast<u8>((q & 15) << (j < 16 ? 0 : 4));
      fifth |= static_cast<std::uint32_t>(q >> 4) << j;
    }
    if (kFifth) std::memcpy(p + kHeader, &fifth, 4);
  }
}

}  // namespace

void unpack_f32(const std::byte* blocks, std::int64_t values, float* out) {
  std::memcpy(out, blocks, static_cast<std::size_t>(values) * 4);
}
void pack_f32(const float* in, std::int64_t values, std::byte* blocks) {
  std::memcpy(blocks, in, static_cast<std::size_t>(values) * 4);
}

void unpack_f64(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t i = 0; i < values; ++i) {
    double value;
    std::memcpy(&value, blocks + 8 * i, 8);
    out[i] = static_cast<float>(value);
  }
}
void pack_f64(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t i = 0; i < values; ++i) {
    const double value = in[i];
    std::memcpy(blocks + 8 * i, &value, 8);
  }
}

void unpack_f16(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t i = 0; i < values; ++i) out[i] = load_half(bytes(blocks) + 2 * i);
}
void pack_f16(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t i = 0; i < values; ++i) store_half(bytes(blocks) + 2 * i, in[i]);
}

void unpack_bf16(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t i = 0; i < values; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, blocks + 2 * i, 2);
    out[i] = bf16_to_f32(bits);
  }
}
void pack_bf16(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t i = 0; i < values; ++i) {
    const std::uint16_t bits = f32_to_bf16(in[i]);
    std::memcpy(blocks + 2 * i, &bits, 2);
  }
}

void unpack_fp8_e4m3(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t i = 0; i < values; ++i) out[i] = e4m3_to_f32(bytes(blocks)[i]);
}
void pack_fp8_e4m3(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t i = 0; i < values; ++i) bytes(blocks)[i] = f32_to_e4m3(in[i]);
}

// Four codes a byte, the lowest bits first: 0, 1, -1 and 0 again.
void unpack_ternary(const std::byte* blocks, std::int64_t values, float* out) {
  constexpr float kValues[] = {0, 1, -1, 0};
  for (std::int64_t i = 0; i < values; ++i)
    out[i] = kValues[bytes(blocks)[i / 4] >> (i % 4 * 2) & 3];
}
void pack_ternary(const float* in, std::int64_t values, std::byte* blocks) {
  std::memset(blocks, 0, static_cast<std::size_t>(values / 4));
  for (std::int64_t i = 0; i < values; ++i) {
    const int trit = code(in[i], 1, -1, 1);
    bytes(blocks)[i / 4] |= static_cast<u8>((trit < 0 ? 2 : trit) << (i % 4 * 2));
  }
}

void unpack_q4_0(const std::byte* b, std::int64_t n, float* o) {
  unpack_legacy<false, false>(b, n, o);
}
void pack_q4_0(const float* i, std::int64_t n, std::byte* b) {
  pack_legacy<false, false>(i, n, b);
}
void unpack_q4_1(const std::byte* b, std::int64_t n, float* o) {
  unpack_legacy<true, false>(b, n, o);
}
void pack_q4_1(const float* i, std::int64_t n, std::byte* b) {
  pack_legacy<true, false>(i, n, b);
}
void unpack_q5_0(const std::byte* b, std::int64_t n, float* o) {
  unpack_legacy<false, true>(b, n, o);
}
void pack_q5_0(const float* i, std::int64_t n, std::byte* b) {
  pack_legacy<false, true>(i, n, b);
}
void unpack_q5_1(const std::byte* b, std::int64_t n, float* o) {
  unpack_legacy<true, true>(b, n, o);
}
void pack_q5_1(const float* i, std::int64_t n, std::byte* b) {
  pack_legacy<true, true>(i, n, b);
}
// d, then 32 signed bytes.
void unpack_q8_0(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t b = 0; b < values / 32; ++b) {
    const u8* p = bytes(blocks) + b * 34;
    const float d = load_half(p);
    for (int j = 0; j < 32; ++j)
      out[b * 32 + j] = d * static_cast<float>(static_cast<std::int8_t>(p[2 + j]));
  }
}
void pack_q8_0(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t b = 0; b < values / 32; ++b) {
    u8* p = bytes(blocks) + b * 34;
    const float d = store_half(p, greatest_magnitude(in + b * 32, 32) / 127);
    for (int j = 0; j < 32; ++j) p[2 + j] = static_cast<u8>(code(in[b * 32 + j], d, -127, 127));
  }
}

}  // namespace lathe
