// Owns the device decoders of the K quants: blocks of 256 weights, eight units each.
#pragma once

#include "ops/format_units.h"

namespace lathe::dev {

// Q4_K and Q5_K: unit u takes 16 nibble bytes of the 64-value chunk c = u / 2, half p = u % 2. Low
// nibbles are sub-block 2c, high nibbles 2c + 1.
LATHE_DEVICE int k_quant_run(int unit, int r) {
  return 64 * (unit / 2) + 16 * (unit % 2) + 32 * r;
}

// Scales and mins of sub-blocks 2c and 2c+1 from a block's first 16 bytes {d, dmin, scales[12]}.
LATHE_DEVICE void k_quant_scales(u32x4 head, int c, Unit& u) {
  const f32 d = f16_to_f32(head.x), dmin = f16_to_f32(head.x >> 16);
  const u32 w0 = head.y, w1 = head.z, w2 = head.w;
  // Sub-blocks 0-3 have six bits in place; 4-7 have four bits in w2 and two on top of w0, w1.
  const u32 high_scales = (w2 & 0x0f0f0f0fu) | (w0 >> 2 & 0x30303030u);
  const u32 high_mins = (w2 >> 4 & 0x0f0f0f0fu) | (w1 >> 2 & 0x30303030u);
  const u32 scales = c < 2 ? w0 & 0x3f3f3f3fu : high_scales;
  const u32 mins = c < 2 ? w1 & 0x3f3f3f3fu : high_mins;
  const u32 shift = static_cast<u32>(c & 1) * 16;
  u.scale[0] = d * byte_to_f32(scales >> shift, 0, 0.0f);
  u.scale[1] = d * byte_to_f32(scales >> shift, 1, 0.0f);
  u.offset[0] = -(dmin * byte_to_f32(mins >> shift, 0, 0.0f));
  u.offset[1] = -(dmin * byte_to_f32(mins >> shift, 1, 0.0f));
}

struct Q4_K {
  enum : int { block = 256, bytes = 144, units = 8, zero = 0 };
  enum : bool { has_offset = true };
  LATHE_DEVICE int run(int unit, int r) { return k_quant_run(unit, r); }
  LATHE_DEVICE void bytes_of(const u8* p, int unit, u32* words) {
    nibble_bytes(stream_u32x4(p + 16 + 16 * unit), words);
  }
  LATHE_DEVICE void scales_of(const u8* p, int unit, Unit& u) {
    k_quant_scales(*reinterpret_cast<const u32x4*>(p), unit / 2, u);
  }
  LATHE_DEVICE void decode(const u8* p, int unit, Unit& u) { decode_bytes<Q4_K>(p, unit, u); }
};

// The same nibbles first, then the products of scales and of mins as halves.
struct Q4_K_SoA {
  enum : int { block = 256, bytes = 160, units = 8, zero = 0 };
  enum : bool { has_offset = true };
  LATHE_DEVICE int run(int unit, int r) { return k_quant_run(unit, r); }
  LATHE_DEVICE void bytes_of(const u8* p, int unit, u32* words) {
    nibble_bytes(stream_u32x4(p + 16 * unit), words);
  }
  LATHE_DEVICE void decode(const u8* p, int unit, Unit& u) { decode_bytes<Q4_K_SoA>(p, unit, u); }
  LATHE_DEVICE void scales_of(const u8* p, int unit, Unit& u) {
    const u32 scales = load_u32(p + 128 + 4 * (unit / 2));
    const u32 offsets = load_u32(p + 144 + 4 * (unit / 2));
    u.scale[0] = f16_to_f32(scales);
    u.scale[1] = f16_to_f32(scales >> 16);
    u.offset[0] = -f16_to_f32(offsets);
    u.offset[1] = -f16_to_f32(offsets >> 16);
  }
};

struct Q5_K {
  enum : int { block = 256, bytes = 176, units = 8, zero = 0 };
  enum : bool { has_offset = true };
  LATHE_DEVICE int run(int unit, int r) { return k_quant_run(unit, r); }
  LATHE_DEVICE void bytes_of(const u8* p, int unit, u32* words) {
    nibble_bytes(stream_u32x4(p + 48 + 16 * unit), words);
    const u32x4 fifth = *reinterpret_cast<const u32x4*>(p + 16 + 16 * (unit % 2));
    const u32 bits[4] = {fifth.x, fifth.y, fifth.z, fifth.w};
    // Bit 2c of byte l of qh belongs to value l of sub-block 2c, bit 2c+1 to sub-block 2c+1.
    const u32 c = static_cast<u32>(unit / 2);
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const u32 b = bits[i] >> (2 * c);
      words[i] |= (b & 0x01010101u) << 4;
      words[4 + i] |= (b & 0x02020202u) << 3;
    }
  }
  LATHE_DEVICE void scales_of(const u8* p, int unit, Unit& u) {
    k_quant_scales(*reinterpret_cast<const u32x4*>(p), unit / 2, u);
  }
  LATHE_DEVICE void decode(const u8* p, int unit, Unit& u) { decode_bytes<Q5_K>(p, unit, u); }
};

// Q6_K: unit u takes 16 bytes of low nibbles in half n = u / 4. Low nibbles are group g = u % 4 / 2
// of 32 values, high nibbles group g + 2; their upper two bits stand in 16 shared bytes of qh.
struct Q6_K {
  enum : int { block = 256, bytes = 210, units = 8, zero = 32 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int unit, int r) { return 128 * (unit / 4) + 16 * (unit % 4) + 64 * r; }
  LATHE_DEVICE void bytes_of(const u8* p, int unit, u32* words) {
    const int n = unit / 4, part = unit % 4, g = part / 2;
    nibble_bytes(load_u32x4_align2_start(p + 16 * unit), words);
    const u32x4 high = load_u32x4_align2(p + 128 + 32 * n + 16 * (part % 2));
    const u32 pairs[4] = {high.x, high.y, high.z, high.w};
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const u32 b = pairs[i] >> (2 * g);
      words[i] |= (b & 0x03030303u) << 4;
      words[4 + i] |= b & 0x30303030u;
    }
  }
  LATHE_DEVICE void scales_of(const u8* p, int unit, Unit& u) {
    const f32 d = f16_to_f32(load_u16(p + 208));
    const i8* scales = reinterpret_cast<const i8*>(p + 192) + 8 * (unit / 4) + unit % 4;
    u.scale[0] = d * static_cast<f32>(scales[0]);
    u.scale[1] = d * static_cast<f32>(scales[4]);
  }
  LATHE_DEVICE void decode(const u8* p, int unit, Unit& u) { decode_bytes<Q6_K>(p, unit, u); }
};

// Q2_K and Q3_K: unit u takes 16 bytes of bit pairs in half n = u / 4, those of every second run,
// and of each byte the pairs 2j and 2j + 1, j = u % 4 / 2.
LATHE_DEVICE int bit_pair_run(int unit, int r) {
  return 128 * (unit / 4) + 64 * (unit % 4 / 2) + 32 * r + 16 * (unit % 2);
}

struct Q2_K {
  enum : int { block = 256, bytes = 84, units = 8 };
  enum : bool { has_offset = true };
  LATHE_DEVICE int run(int unit, int r) { return bit_pair_run(unit, r); }
  LATHE_DEVICE void decode(const u8* p, int unit, Unit& u) {
    const u8* pairs = p + 16 + 32 * (unit / 4) + 16 * (unit % 2);
    const u32 shift = static_cast<u32>(unit % 4 / 2) * 4;
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const u32 w = load_u32(pairs + 4 * i) >> shift;
      bytes_to_f32(w & 0x03030303u, 0.0f, u.q + 4 * i);
      bytes_to_f32(w >> 2 & 0x03030303u, 0.0f, u.q + 16 + 4 * i);
    }
    const u32 halves = load_u32(p + 80);
    const f32 d = f16_to_f32(halves), dmin = f16_to_f32(halves >> 16);
    LATHE_UNROLL(2)
    for (int r = 0; r < 2; ++r) {
      const u32 packed = p[bit_pair_run(unit, r) / 16];
      u.scale[r] = d * byte_to_f32(packed & 15u, 0, 0.0f);
      u.offset[r] = -(dmin * byte_to_f32(packed >> 4, 0, 0.0f));
    }
  }
};

struct Q3_K {
  enum : int { block = 256, bytes = 110, units = 8 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int unit, int r) { return bit_pair_run(unit, r); }
  LATHE_DEVICE void decode(const u8* p, int unit, Unit& u) {
    const int half = unit / 4, part = unit % 4 / 2;
    const u32x4 low = load_u32x4_align2(p + 32 + 32 * half + 16 * (unit % 2));
    const u32x4 high = load_u32x4_align2_start(p + 16 * (unit % 2));
    const u32 pairs[4] = {low.x, low.y, low.z, low.w};
    const u32 thirds[4] = {high.x, high.y, high.z, high.w};
    const u32 shift = static_cast<u32>(part) * 4, bit = static_cast<u32>(4 * half + 2 * part);
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const u32 w = pairs[i] >> shift, t = thirds[i] >> bit;
      bytes_to_f32((w & 0x03030303u) | (t & 0x01010101u) << 2, 4.0f, u.q + 4 * i);
      bytes_to_f32((w >> 2 & 0x03030303u) | (t & 0x02020202u) << 1, 4.0f, u.q + 16 + 4 * i);
    }
    const f32 d = f16_to_f32(load_u16(p + 108));
    LATHE_UNROLL(2)
    for (int r = 0; r < 2; ++r) {
      const int run = bit_pair_run(unit, r) / 16;
      const u32 four = static_cast<u32>(p[96 + run % 8]) >> (run / 8 * 4) & 15u;
      const u32 two = static_cast<u32>(p[104 + run % 4]) >> (run / 4 * 2) & 3u;
      u.scale[r] = d * byte_to_f32(four | two << 4, 0, 32.0f);
    }
  }
};

}  // namespace lathe::dev
