// Owns the device decoders of block formats: how 32 weights of a block become numbers.
//
// A block is decoded in units of 32 weights, the values one thread takes at a time: two runs of
// 16 that are consecutive along k, each an affine map of small integers: w = scale * q + offset.
// Kernels multiply with the integers first and apply scale and offset once per run.
//
// No decoder reads a byte outside its block, whatever the block's alignment.
#pragma once

#include "isa/isa.h"

namespace lathe::dev {

struct Unit {
  f32 q[32];                 // integers as floats: run 0, then run 1
  f32 scale[2], offset[2];   // per run; offset only where the decoder has_offset
};

// Byte i of `word` minus `zero`, exactly: 2^23 + byte is a float whose low mantissa bits are the
// byte.
LATHE_DEVICE f32 byte_to_f32(u32 word, int i, f32 zero) {
  return as_f32(byte_permute(word, 0x4b000000u, 0x7440u | static_cast<u32>(i))) -
         (8388608.0f + zero);
}

LATHE_DEVICE void bytes_to_f32(u32 word, f32 zero, f32* out) {
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) out[i] = byte_to_f32(word, i, zero);
}

LATHE_DEVICE u32 load_u16(const u8* p) { return *reinterpret_cast<const u16*>(p); }
LATHE_DEVICE u32 load_u32(const u8* p) { return *reinterpret_cast<const u32*>(p); }

// A 32-bit load from a 2-byte-aligned address.
LATHE_DEVICE u32 load_u32_align2(const u8* p) { return load_u16(p) | load_u16(p + 2) << 16; }

// 16 bytes from a 2-byte-aligned address that has at least 2 readable bytes before it: aligned
// words from there on, the last one only as far as the 16 bytes go.
LATHE_DEVICE u32x4 load_u32x4_align2(const u8* p) {
  const u32 odd = static_cast<u32>(reinterpret_cast<u64>(p)) & 2u;
  const u8* base = p - odd;
  const u32 w0 = load_u32(base), w1 = load_u32(base + 4), w2 = load_u32(base + 8),
            w3 = load_u32(base + 12), w4 = load_u16(p + 14);
  const u32 shift = odd * 8;
  u32x4 v;
  v.x = funnel_right(w0, w1, shift);
  v.y = funnel_right(w1, w2, shift);
  v.z = funnel_right(w2, w3, shift);
  v.w = odd ? (w3 >> 16 | w4 << 16) : w3;
  return v;
}

// The same with nothing readable before p: one load more.
LATHE_DEVICE u32x4 load_u32x4_align2_start(const u8* p) {
  const bool odd = static_cast<u32>(reinterpret_cast<u64>(p)) & 2u;
  const u8* base = odd ? p + 2 : p;
  const u32 first = load_u16(p), w0 = load_u32(base), w1 = load_u32(base + 4),
            w2 = load_u32(base + 8), last0 = load_u16(p + 12), last1 = load_u16(p + 14);
  u32x4 v;
  v.x = odd ? (first | w0 << 16) : w0;
  v.y = odd ? (w0 >> 16 | w1 << 16) : w1;
  v.z = odd ? (w1 >> 16 | w2 << 16) : w2;
  v.w = last0 | last1 << 16;
  return v;
}

LATHE_DEVICE void nibbles_to_f32(u32x4 v, f32 zero, f32* q) {
  const u32 words[4] = {v.x, v.y, v.z, v.w};
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    bytes_to_f32(words[i] & 0x0f0f0f0fu, zero, q + 4 * i);
    bytes_to_f32(words[i] >> 4 & 0x0f0f0f0fu, zero, q + 16 + 4 * i);
  }
}

// Bits i .. i+3 of `bits` moved to bit 4 of four bytes.
LATHE_DEVICE u32 spread_fifth_bits(u32 bits, int i) {
  const u32 b = bits >> i & 15u;
  return (b << 4 & 0x10u) | (b << 11 & 0x1000u) | (b << 18 & 0x100000u) | (b << 25 & 0x10000000u);
}

// Nibbles with fifth bits, bit j of `fifth` belonging to value j of the unit.
LATHE_DEVICE void five_bits_to_f32(u32x4 v, u32 fifth, f32 zero, f32* q) {
  const u32 words[4] = {v.x, v.y, v.z, v.w};
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    bytes_to_f32((words[i] & 0x0f0f0f0fu) | spread_fifth_bits(fifth, 4 * i), zero, q + 4 * i);
    bytes_to_f32((words[i] >> 4 & 0x0f0f0f0fu) | spread_fifth_bits(fifth, 16 + 4 * i), zero,
                 q + 16 + 4 * i);
  }
}

// The 32-value formats: one unit per block, runs at 0 and 16.
struct Q4_0 {
  enum : int { block = 32, bytes = 18, units = 1 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void decode(const u8* p, int, Unit& u) {
    nibbles_to_f32(load_u32x4_align2(p + 2), 8.0f, u.q);
    u.scale[0] = u.scale[1] = f16_to_f32(load_u16(p));
  }
};

struct Q4_1 {
  enum : int { block = 32, bytes = 20, units = 1 };
  enum : bool { has_offset = true };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void decode(const u8* p, int, Unit& u) {
    const u32x4 v = {load_u32(p + 4), load_u32(p + 8), load_u32(p + 12), load_u32(p + 16)};
    nibbles_to_f32(v, 0.0f, u.q);
    const u32 dm = load_u32(p);
    u.scale[0] = u.scale[1] = f16_to_f32(dm);
    u.offset[0] = u.offset[1] = f16_to_f32(dm >> 16);
  }
};

struct Q5_0 {
  enum : int { block = 32, bytes = 22, units = 1 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void decode(const u8* p, int, Unit& u) {
    five_bits_to_f32(load_u32x4_align2(p + 6), load_u32_align2(p + 2), 16.0f, u.q);
    u.scale[0] = u.scale[1] = f16_to_f32(load_u16(p));
  }
};

struct Q5_1 {
  enum : int { block = 32, bytes = 24, units = 1 };
  enum : bool { has_offset = true };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void decode(const u8* p, int, Unit& u) {
    const u32x4 v = {load_u32(p + 8), load_u32(p + 12), load_u32(p + 16), load_u32(p + 20)};
    five_bits_to_f32(v, load_u32(p + 4), 0.0f, u.q);
    const u32 dm = load_u32(p);
    u.scale[0] = u.scale[1] = f16_to_f32(dm);
    u.offset[0] = u.offset[1] = f16_to_f32(dm >> 16);
  }
};

struct Q8_0 {
  enum : int { block = 32, bytes = 34, units = 1 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void decode(const u8* p, int, Unit& u) {
    LATHE_UNROLL(2)
    for (int r = 0; r < 2; ++r) {
      const u32x4 v = load_u32x4_align2(p + 2 + 16 * r);
      const u32 words[4] = {v.x, v.y, v.z, v.w};
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i)
        bytes_to_f32(words[i] ^ 0x80808080u, 128.0f, u.q + 16 * r + 4 * i);
    }
    u.scale[0] = u.scale[1] = f16_to_f32(load_u16(p));
  }
};

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
  enum : int { block = 256, bytes = 144, units = 8 };
  enum : bool { has_offset = true };
  LATHE_DEVICE int run(int unit, int r) { return k_quant_run(unit, r); }
  LATHE_DEVICE void decode(const u8* p, int unit, Unit& u) {
    nibbles_to_f32(stream_u32x4(p + 16 + 16 * unit), 0.0f, u.q);
    k_quant_scales(*reinterpret_cast<const u32x4*>(p), unit / 2, u);
  }
};

struct Q5_K {
  enum : int { block = 256, bytes = 176, units = 8 };
  enum : bool { has_offset = true };
  LATHE_DEVICE int run(int unit, int r) { return k_quant_run(unit, r); }
  LATHE_DEVICE void decode(const u8* p, int unit, Unit& u) {
    const u32x4 low = stream_u32x4(p + 48 + 16 * unit);
    const u32x4 fifth = *reinterpret_cast<const u32x4*>(p + 16 + 16 * (unit % 2));
    const u32 words[4] = {low.x, low.y, low.z, low.w};
    const u32 bits[4] = {fifth.x, fifth.y, fifth.z, fifth.w};
    // Bit 2c of byte l of qh belongs to value l of sub-block 2c, bit 2c+1 to sub-block 2c+1.
    const u32 c = static_cast<u32>(unit / 2);
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const u32 b = bits[i] >> (2 * c);
      bytes_to_f32((words[i] & 0x0f0f0f0fu) | (b & 0x01010101u) << 4, 0.0f, u.q + 4 * i);
      bytes_to_f32((words[i] >> 4 & 0x0f0f0f0fu) | (b & 0x02020202u) << 3, 0.0f,
                   u.q + 16 + 4 * i);
    }
    k_quant_scales(*reinterpret_cast<const u32x4*>(p), unit / 2, u);
  }
};

// Q6_K: unit u takes 16 bytes of low nibbles in half n = u / 4. Low nibbles are group g = u % 4 / 2
// of 32 values, high nibbles group g + 2; their upper two bits stand in 16 shared bytes of qh.
struct Q6_K {
  enum : int { block = 256, bytes = 210, units = 8 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int unit, int r) {
    return 128 * (unit / 4) + 16 * (unit % 4) + 64 * r;
  }
  LATHE_DEVICE void decode(const u8* p, int unit, Unit& u) {
    const int n = unit / 4, part = unit % 4, g = part / 2;
    const u32x4 low = load_u32x4_align2_start(p + 16 * unit);
    const u32x4 high = load_u32x4_align2(p + 128 + 32 * n + 16 * (part % 2));
    const u32 words[4] = {low.x, low.y, low.z, low.w};
    const u32 pairs[4] = {high.x, high.y, high.z, high.w};
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const u32 b = pairs[i] >> (2 * g);
      bytes_to_f32((words[i] & 0x0f0f0f0fu) | (b & 0x03030303u) << 4, 32.0f, u.q + 4 * i);
      bytes_to_f32((words[i] >> 4 & 0x0f0f0f0fu) | (b & 0x30303030u), 32.0f, u.q + 16 + 4 * i);
    }
    const f32 d = f16_to_f32(load_u16(p + 208));
    const i8* scales = reinterpret_cast<const i8*>(p + 192) + 8 * n + part;
    u.scale[0] = d * static_cast<f32>(scales[0]);
    u.scale[1] = d * static_cast<f32>(scales[4]);
  }
};

// Unquantized formats: one value at a time, or 8 at a time from a 16-byte-aligned address.
struct F32 {
  enum : int { bytes = 4 };
  LATHE_DEVICE f32 value(const u8* p, i64 i) { return reinterpret_cast<const f32*>(p)[i]; }
  LATHE_DEVICE void eight(const u8* p, f32* out) {
    LATHE_UNROLL(2)
    for (int h = 0; h < 2; ++h) {
      const u32x4 v = stream_u32x4(p + 16 * h);
      out[4 * h] = as_f32(v.x);
      out[4 * h + 1] = as_f32(v.y);
      out[4 * h + 2] = as_f32(v.z);
      out[4 * h + 3] = as_f32(v.w);
    }
  }
};

struct F16 {
  enum : int { bytes = 2 };
  LATHE_DEVICE f32 value(const u8* p, i64 i) {
    return f16_to_f32(reinterpret_cast<const u16*>(p)[i]);
  }
  LATHE_DEVICE void eight(const u8* p, f32* out) {
    const u32x4 v = stream_u32x4(p);
    const u32 words[4] = {v.x, v.y, v.z, v.w};
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = f16_to_f32(words[i]);
      out[2 * i + 1] = f16_to_f32(words[i] >> 16);
    }
  }
};

struct BF16 {
  enum : int { bytes = 2 };
  LATHE_DEVICE f32 value(const u8* p, i64 i) {
    return as_f32(static_cast<u32>(reinterpret_cast<const u16*>(p)[i]) << 16);
  }
  LATHE_DEVICE void eight(const u8* p, f32* out) {
    const u32x4 v = stream_u32x4(p);
    const u32 words[4] = {v.x, v.y, v.z, v.w};
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = as_f32(words[i] << 16);
      out[2 * i + 1] = as_f32(words[i] & 0xffff0000u);
    }
  }
};

}  // namespace lathe::dev
