// Owns the CPU's codecs of the formats whose four-bit codes number the entries of a table, written
// from the byte layouts that docs/formats.md states.
#include <array>
#include <bit>

#include "codegen/block_codec.h"
#include "codegen/format_blocks.h"

namespace lathe {
namespace {

using namespace block_codec;

using Table = std::array<std::int8_t, 16>;
constexpr Table kIq4 = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// Twice the numbers of one sign, two exponent and one mantissa bits.
constexpr Table kFp4 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The code whose entry is nearest to value / scale.
u8 nearest(const Table& table, float value, float scale) {
  const float wanted = scale != 0 ? value / scale : 0;
  int best = 0;
  const auto distance = [&](int code) {
    return std::fabs(wanted - static_cast<float>(table[static_cast<std::size_t>(code)]));
  };
  for (int code = 1; code < 16; ++code)
    if (distance(code) < distance(best)) best = code;
  return static_cast<u8>(best);
}

// 32 values from 16 bytes: low nibbles, then high nibbles.
void unpack_nibbles(const Table& table, const u8* nibbles, float scale, float* out) {
  for (int j = 0; j < 16; ++j) out[j] = scale * static_cast<float>(table[nibbles[j] & 15]);
  for (int j = 0; j < 16; ++j) out[16 + j] = scale * static_cast<float>(table[nibbles[j] >> 4]);
}
void pack_nibbles(const Table& table, const float* in, float scale, u8* nibbles) {
  for (int j = 0; j < 16; ++j)
    nibbles[j] =
        static_cast<u8>(nearest(table, in[j], scale) | nearest(table, in[16 + j], scale) << 4);
}

// The scale that makes the value of greatest magnitude the table's last entry, 113.
float iq4_scale(const float* x) {
  float extreme = 0;
  for (int i = 0; i < 32; ++i)
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  return extreme / 113;
}

// Half of 2^(exponent - 127), for the entries are doubled. Every byte is a power of two: 255 too.
float half_of_power(int exponent) {
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent
                                           : static_cast<std::uint32_t>(exponent - 1) << 23);
}

// Six-bit scale of sub-block s of an IQ4_XS block, 32 too large.
int xs_scale(const u8* p, int s) {
  return (p[4 + s / 2] >> (s % 2 * 4) & 15) | (p[2 + s / 4] >> (s % 4 * 2) & 3) << 4;
}
void set_xs_scale(u8* p, int s, int scale) {
  p[4 + s / 2] |= static_cast<u8>((scale & 15) << (s % 2 * 4));
  p[2 + s / 4] |= static_cast<u8>(scale >> 4 << (s % 4 * 2));
}

}  // namespace

// d, then 16 bytes of nibbles.
void unpack_iq4_nl(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t b = 0; b < values / 32; ++b) {
    const u8* p = bytes(blocks) + b * 18;
    unpack_nibbles(kIq4, p + 2, load_half(p), out + b * 32);
  }
}
void pack_iq4_nl(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t b = 0; b < values / 32; ++b) {
    u8* p = bytes(blocks) + b * 18;
    const float d = store_half(p, iq4_scale(in + b * 32));
    pack_nibbles(kIq4, in + b * 32, d, p + 2);
  }
}

// d, two bytes of the scales' high bits, four of their low bits, 128 of nibbles.
void unpack_iq4_xs(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    const u8* p = bytes(blocks) + b * 136;
    const float d = load_half(p);
    for (int s = 0; s < 8; ++s)
      unpack_nibbles(kIq4, p + 8 + 16 * s, d * static_cast<float>(xs_scale(p, s) - 32),
                     out + b * 256 + s * 32);
  }
}
void pack_iq4_xs(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    const float* x = in + b * 256;
    u8* p = bytes(blocks) + b * 136;
    std::memset(p, 0, 136);
    float scales[8];
    for (int s = 0; s < 8; ++s) scales[s] = iq4_scale(x + 32 * s);
    const float d = store_half(p, greatest_magnitude(scales, 8) / 31);
    for (int s = 0; s < 8; ++s) {
      const int scale = code(scales[s], d, -31, 31);
      set_xs_scale(p, s, scale + 32);
      pack_nibbles(kIq4, x + 32 * s, d * static_cast<float>(scale), p + 8 + 16 * s);
    }
  }
}

// An exponent, then 16 bytes of nibbles: 17 bytes, so that blocks are aligned to nothing.
void unpack_mxfp4(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t b = 0; b < values / 32; ++b) {
    const u8* p = bytes(blocks) + b * 17;
    unpack_nibbles(kFp4, p + 1, half_of_power(p[0]), out + b * 32);
  }
}
void pack_mxfp4(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t b = 0; b < values / 32; ++b) {
    u8* p = bytes(blocks) + b * 17;
    // The least power of two that leaves no value above the greatest entry.
    const float top = greatest_magnitude(in + b * 32, 32);
    int exponent = 0;
    while (exponent < 254 && 12 * half_of_power(exponent) < top) ++exponent;
    p[0] = static_cast<u8>(exponent);
    pack_nibbles(kFp4, in + b * 32, half_of_power(exponent), p + 1);
  }
}

}  // namespace lathe
