// Owns the CPU's codecs of the K quants: blocks of 256 values with a scale for each 16 or 32 of
// them, written from the byte layouts that docs/formats.md states.
#include "codegen/format_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codegen/block_codec.h"

namespace lathe {
namespace {

using namespace block_codec;

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

// Sixteen six-bit scales of Q3_K, 32 too large: eight bytes of low nibbles, four of high bit pairs.
int q3_scale(const u8* packed, int run) {
  return (packed[run % 8] >> (run / 8 * 4) & 15) | (packed[8 + run % 4] >> (run / 4 * 2) & 3) << 4;
}
void set_q3_scale(u8* packed, int run, int scale) {
  packed[run % 8] |= static_cast<u8>((scale & 15) << (run / 8 * 4));
  packed[8 + run % 4] |= static_cast<u8>(scale >> 4 << (run / 4 * 2));
}

}  // namespace

// 16 bytes of {scale, min} nibbles per run of 16 values, 64 of bit pairs, d, dmin. Byte l of the
// half block n has a pair of each of the values l, l + 32, l + 64 and l + 96 of that half.
void unpack_q2_k(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    const u8* p = bytes(blocks) + b * 84;
    const float d = load_half(p + 80), dmin = load_half(p + 82);
    for (int run = 0; run < 16; ++run) {
      const u8* pairs = p + 16 + 32 * (run / 8) + 16 * (run % 2);
      const int shift = run % 8 / 2 * 2;
      const float ds = d * static_cast<float>(p[run] & 15);
      const float dm = dmin * static_cast<float>(p[run] >> 4);
      for (int l = 0; l < 16; ++l)
        out[b * 256 + run * 16 + l] = ds * static_cast<float>(pairs[l] >> shift & 3) - dm;
    }
  }
}
void pack_q2_k(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    u8* p = bytes(blocks) + b * 84;
    std::memset(p, 0, 84);
    float range[16], low[16], top_range = 0, top_low = 0;
    for (int run = 0; run < 16; ++run) {
      const float* x = in + b * 256 + run * 16;
      const auto [least, most] = std::minmax_element(x, x + 16);
      low[run] = std::min(*least, 0.0f);
      range[run] = (*most - low[run]) / 3;
      top_range = std::max(top_range, range[run]);
      top_low = std::max(top_low, -low[run]);
    }
    const float d = store_half(p + 80, top_range / 15), dmin = store_half(p + 82, top_low / 15);
    for (int run = 0; run < 16; ++run) {
      const int scale = code(range[run], d, 0, 15), min = code(-low[run], dmin, 0, 15);
      p[run] = static_cast<u8>(scale | min << 4);
      const float* x = in + b * 256 + run * 16;
      const float ds = d * static_cast<float>(scale), dm = dmin * static_cast<float>(min);
      u8* pairs = p + 16 + 32 * (run / 8) + 16 * (run % 2);
      for (int l = 0; l < 16; ++l)
        pairs[l] |= static_cast<u8>(code(x[l] + dm, ds, 0, 3) << (run % 8 / 2 * 2));
    }
  }
}

// 32 bytes of third bits, 64 of bit pairs as in Q2_K, 12 of scales, d. A third bit that is not set
// stands for -4; bit i of byte l is that of value 32 i + l.
void unpack_q3_k(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    const u8* p = bytes(blocks) + b * 110;
    const float d = load_half(p + 108);
    for (int run = 0; run < 16; ++run) {
      const u8* thirds = p + 16 * (run % 2);
      const u8* pairs = p + 32 + 32 * (run / 8) + 16 * (run % 2);
      const int shift = run % 8 / 2 * 2;
      const float ds = d * static_cast<float>(q3_scale(p + 96, run) - 32);
      for (int l = 0; l < 16; ++l) {
        const int q = (pairs[l] >> shift & 3) | (thirds[l] >> (run / 2) & 1) << 2;
        out[b * 256 + run * 16 + l] = ds * static_cast<float>(q - 4);
      }
    }
  }
}
void pack_q3_k(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    const float* x = in + b * 256;
    u8* p = bytes(blocks) + b * 110;
    std::memset(p, 0, 110);
    const float d = store_half(p + 108, greatest_magnitude(x, 256) / 3 / 31);
    for (int run = 0; run < 16; ++run, x += 16) {
      const int scale = code(greatest_magnitude(x, 16) / 3, d, 0, 31);
      set_q3_scale(p + 96, run, scale + 32);
      u8* thirds = p + 16 * (run % 2);
      u8* pairs = p + 32 + 32 * (run / 8) + 16 * (run % 2);
      for (int l = 0; l < 16; ++l) {
        const int q = code(x[l], d * static_cast<float>(scale), -4, 3) + 4;
        pairs[l] |= static_cast<u8>((q & 3) << (run % 8 / 2 * 2));
        thirds[l] |= static_cast<u8>(q >> 2 << (run / 2));
      }
    }
  }
}

// 128 bytes of nibbles as in Q4_K, then a half for the scale of each 32 values, then one for what
// is taken off them.
void unpack_q4_k_soa(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    const u8* p = bytes(blocks) + b * 160;
    for (int s = 0; s < 8; ++s) {
      const float scale = load_half(p + 128 + 2 * s), offset = load_half(p + 144 + 2 * s);
      for (int l = 0; l < 32; ++l) {
        const int q = p[32 * (s / 2) + l] >> (s % 2 * 4) & 15;
        out[b * 256 + s * 32 + l] = scale * static_cast<float>(q) - offset;
      }
    }
  }
}
void pack_q4_k_soa(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    u8* p = bytes(blocks) + b * 160;
    std::memset(p, 0, 160);
    for (int s = 0; s < 8; ++s) {
      const float* x = in + b * 256 + s * 32;
      const auto [least, most] = std::minmax_element(x, x + 32);
      const float scale = store_half(p + 128 + 2 * s, (*most - *least) / 15);
      const float offset = store_half(p + 144 + 2 * s, -*least);
      for (int l = 0; l < 32; ++l)
        p[32 * (s / 2) + l] |= static_cast<u8>(code(x[l] + offset, scale, 0, 15) << (s % 2 * 4));
    }
  }
}

void q4_k_to_soa(const std::byte* blocks, std::int64_t values, std::byte* soa) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    const u8* p = bytes(blocks) + b * 144;
    u8* to = bytes(soa) + b * 160;
    std::memcpy(to, p + 16, 128);
    for (int s = 0; s < 8; ++s) {
      int scale, min;
      scale_and_min(p + 4, s, scale, min);
      store_half(to + 128 + 2 * s, load_half(p) * static_cast<float>(scale));
      store_half(to + 144 + 2 * s, load_half(p + 2) * static_cast<float>(min));
    }
  }
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
