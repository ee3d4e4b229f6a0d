// Owns the CPU's block codecs, written from the byte layouts that docs/formats.md states.
#include "codegen/format_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lathe/codegen/format.h"

namespace lathe {
namespace {

using u8 = std::uint8_t;

const u8* bytes(const std::byte* p) {
  return reinterpret_cast<const u8*>(p);
}
u8* bytes(std::byte* p) {
  return reinterpret_cast<u8*>(p);
}

float load_half(const u8* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return f16_to_f32(bits);
}

// Stores a half and returns what was stored, so that codes are chosen for the stored scale.
float store_half(u8* p, float value) {
  const std::uint16_t bits = f32_to_f16(value);
  std::memcpy(p, &bits, 2);
  return f16_to_f32(bits);
}

int code(float value, float scale, int low, int high) {
  const float q = scale != 0 ? std::nearbyint(value / scale) : 0;
  return static_cast<int>(std::clamp(q, static_cast<float>(low), static_cast<float>(high)));
}

float greatest_magnitude(const float* x, int count) {
  float top = 0;
  for (int i = 0; i < count; ++i) top = std::max(top, std::fabs(x[i]));
  return top;
}

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

// Six-bit scale and min of sub-block s of a Q4_K or Q5_K block.
void scale_and_min(const u8* packed, int s, int& scale, int& min) {
  if (s < 4) {
    scale = packed[s] & 63;
    min = packed[s + 4] & 63;
  } else {
    scale = (packed[s + 4] & 15) | packed[s - 4] >> 6 << 4;
    min = packed[s + 4] >> 4 | packed[s] >> 6 << 4;
  }
}

void set_scale_and_min(u8* packed, int s, int scale, int min) {
  if (s < 4) {
    packed[s] |= static_cast<u8>(scale);
    packed[s + 4] |= static_cast<u8>(min);
  } else {
    packed[s + 4] |= static_cast<u8>((scale & 15) | (min & 15) << 4);
    packed[s - 4] |= static_cast<u8>(scale >> 4 << 6);
    packed[s] |= static_cast<u8>(min >> 4 << 6);
  }
}

// Q4_K and Q5_K: d, dmin, 12 bytes of scales, (32 bytes of fifth bits,) 128 bytes of nibbles.
template <bool kFifth>
void unpack_k(const std::byte* blocks, std::int64_t values, float* out) {
  constexpr int kBytes = kFifth ? 176 : 144;
  for (std::int64_t b = 0; b < values / 256; ++b) {
    const u8* p = bytes(blocks) + b * kBytes;
    const float d = load_half(p), dmin = load_half(p + 2);
    const u8* nibbles = p + kBytes - 128;
    for (int s = 0; s < 8; ++s) {
      int scale, min;
      scale_and_min(p + 4, s, scale, min);
      const float ds = d * static_cast<float>(scale), dm = dmin * static_cast<float>(min);
      for (int l = 0; l < 32; ++l) {
        const int byte = nibbles[32 * (s / 2) + l];
        int q = s % 2 ? byte >> 4 : byte & 15;
        if (kFifth) q |= (p[16 + l] >> s & 1) << 4;
        out[b * 256 + s * 32 + l] = ds * static_cast<float>(q) - dm;
      }
    }
  }
}

template <bool kFifth>
void pack_k(const float* in, std::int64_t values, std::byte* blocks) {
  constexpr int kBytes = kFifth ? 176 : 144;
  constexpr int kTop = kFifth ? 31 : 15;
  for (std::int64_t b = 0; b < values / 256; ++b) {
    u8* p = bytes(blocks) + b * kBytes;
    std::memset(p, 0, kBytes);
    float range[8], low[8], top_range = 0, top_low = 0;
    for (int s = 0; s < 8; ++s) {
      const float* x = in + b * 256 + s * 32;
      const auto [least, most] = std::minmax_element(x, x + 32);
      low[s] = std::min(*least, 0.0f);  // mins are stored as magnitudes: never positive
      range[s] = (*most - low[s]) / kTop;
      top_range = std::max(top_range, range[s]);
      top_low = std::max(top_low, -low[s]);
    }
    const float d = store_half(p, top_range / 63), dmin = store_half(p + 2, top_low / 63);
    for (int s = 0; s < 8; ++s) {
      const int scale = code(range[s], d, 0, 63), min = code(-low[s], dmin, 0, 63);
      set_scale_and_min(p + 4, s, scale, min);
      const float* x = in + b * 256 + s * 32;
      const float ds = d * static_cast<float>(scale), dm = dmin * static_cast<float>(min);
      for (int l = 0; l < 32; ++l) {
        const int q = code(x[l] + dm, ds, 0, kTop);
        p[kBytes - 128 + 32 * (s / 2) + l] |= static_cast<u8>((q & 15) << (s % 2 * 4));
        if (kFifth) p[16 + l] |= static_cast<u8>(q >> 4 << s);
      }
    }
  }
}

}  // namespace

void unpack_f32(const std::byte* blocks, std::int64_t values, float* out) {
  std::memcpy(out, blocks, static_cast<std::size_t>(values) * 4);
}
void pack_f32(const float* in, std::int64_t values, std::byte* blocks) {
  std::memcpy(blocks, in, static_cast<std::size_t>(values) * 4);
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
void unpack_q4_k(const std::byte* b, std::int64_t n, float* o) {
  unpack_k<false>(b, n, o);
}
void pack_q4_k(const float* i, std::int64_t n, std::byte* b) {
  pack_k<false>(i, n, b);
}
void unpack_q5_k(const std::byte* b, std::int64_t n, float* o) {
  unpack_k<true>(b, n, o);
}
void pack_q5_k(const float* i, std::int64_t n, std::byte* b) {
  pack_k<true>(i, n, b);
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

// 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, d.
void unpack_q6_k(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    const u8* p = bytes(blocks) + b * 210;
    const float d = load_half(p + 208);
    for (int g = 0; g < 8; ++g) {
      const int n = g / 4, part = g % 4;
      const u8* low = p + 64 * n + 32 * (part & 1);
      const u8* high = p + 128 + 32 * n;
      const int low_shift = part < 2 ? 0 : 4;
      float scale[2];
      for (int h = 0; h < 2; ++h)
        scale[h] = d * static_cast<float>(static_cast<std::int8_t>(p[192 + 2 * g + h]));
      for (int l = 0; l < 32; ++l) {
        const int q = (low[l] >> low_shift & 15) | (high[l] >> (2 * part) & 3) << 4;
        out[b * 256 + g * 32 + l] = scale[l / 16] * static_cast<float>(q - 32);
      }
    }
  }
}
void pack_q6_k(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    const float* x = in + b * 256;
    u8* p = bytes(blocks) + b * 210;
    std::memset(p, 0, 210);
    const float d = store_half(p + 208, greatest_magnitude(x, 256) / 31 / 127);
    for (int e = 0; e < 256; e += 16) {
      const int scale = code(greatest_magnitude(x + e, 16) / 31, d, 0, 127);
      p[192 + e / 128 * 8 + e % 128 / 16] = static_cast<u8>(scale);
      for (int i = e; i < e + 16; ++i) {
        const int n = i / 128, g = i % 128 / 32, l = i % 32;
        const int q = code(x[i], d * static_cast<float>(scale), -32, 31) + 32;
        p[64 * n + l + 32 * (g & 1)] |= static_cast<u8>((q & 15) << (g < 2 ? 0 : 4));
        p[128 + 32 * n + l] |= static_cast<u8>(q >> 4 << (2 * g));
      }
    }
  }
}

}  // namespace lathe
