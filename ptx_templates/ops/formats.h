// Owns the device decoders of unquantized formats and of those with 32-value blocks, and brings
// together those of all formats.
#pragma once

#include "ops/format_units.h"
#include "ops/k_formats.h"
#include "ops/q8_formats.h"
#include "ops/table_formats.h"

namespace lathe::dev {

// d and m of a block whose weights are d * q + m.
LATHE_DEVICE void scale_and_offset(u32 dm, Unit& u) {
  u.scale[0] = u.scale[1] = f16_to_f32(dm);
  u.offset[0] = u.offset[1] = f16_to_f32(dm >> 16);
}

// The 32-value formats: one unit per block, runs at 0 and 16.
struct Q4_0 {
  enum : int { block = 32, bytes = 18, units = 1, zero = 8 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void bytes_of(const u8* p, int, u32* words) {
    nibble_bytes(load_u32x4_align2(p + 2), words);
  }
  LATHE_DEVICE void scales_of(const u8* p, int, Unit& u) {
    u.scale[0] = u.scale[1] = f16_to_f32(load_u16(p));
  }
  LATHE_DEVICE void decode(const u8* p, int part, Unit& u) { decode_bytes<Q4_0>(p, part, u); }
};

struct Q4_1 {
  enum : int { block = 32, bytes = 20, units = 1, zero = 0 };
  enum : bool { has_offset = true };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void bytes_of(const u8* p, int, u32* words) {
    nibble_bytes({load_u32(p + 4), load_u32(p + 8), load_u32(p + 12), load_u32(p + 16)}, words);
  }
  LATHE_DEVICE void scales_of(const u8* p, int, Unit& u) { scale_and_offset(load_u32(p), u); }
  LATHE_DEVICE void decode(const u8* p, int part, Unit& u) { decode_bytes<Q4_1>(p, part, u); }
};

struct Q5_0 {
  enum : int { block = 32, bytes = 22, units = 1, zero = 16 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void bytes_of(const u8* p, int, u32* words) {
    five_bit_bytes(load_u32x4_align2(p + 6), load_u32_align2(p + 2), words);
  }
  LATHE_DEVICE void scales_of(const u8* p, int, Unit& u) {
    u.scale[0] = u.scale[1] = f16_to_f32(load_u16(p));
  }
  LATHE_DEVICE void decode(const u8* p, int part, Unit& u) { decode_bytes<Q5_0>(p, part, u); }
};

struct Q5_1 {
  enum : int { block = 32, bytes = 24, units = 1, zero = 0 };
  enum : bool { has_offset = true };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void bytes_of(const u8* p, int, u32* words) {
    five_bit_bytes({load_u32(p + 8), load_u32(p + 12), load_u32(p + 16), load_u32(p + 20)},
                   load_u32(p + 4), words);
  }
  LATHE_DEVICE void scales_of(const u8* p, int, Unit& u) { scale_and_offset(load_u32(p), u); }
  LATHE_DEVICE void decode(const u8* p, int part, Unit& u) { decode_bytes<Q5_1>(p, part, u); }
};

struct Q8_0 {
  enum : int { block = 32, bytes = 34, units = 1, zero = 128 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void bytes_of(const u8* p, int, u32* words) {
    LATHE_UNROLL(2)
    for (int r = 0; r < 2; ++r) {
      const u32x4 v = load_u32x4_align2(p + 2 + 16 * r);
      const u32 from[4] = {v.x, v.y, v.z, v.w};
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i) words[4 * r + i] = from[i] ^ 0x80808080u;
    }
  }
  LATHE_DEVICE void scales_of(const u8* p, int, Unit& u) {
    u.scale[0] = u.scale[1] = f16_to_f32(load_u16(p));
  }
  LATHE_DEVICE void decode(const u8* p, int part, Unit& u) { decode_bytes<Q8_0>(p, part, u); }
};

// Unquantized formats: one value at a time, or 8 at a time from an address that is aligned to them,
// or to 16 bytes.
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

// Known by its value alone: what takes eight at a time sums in f32.
struct F64 {
  enum : int { bytes = 8 };
  LATHE_DEVICE f32 value(const u8* p, i64 i) {
    return static_cast<f32>(reinterpret_cast<const f64*>(p)[i]);
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

// Four bits of exponent and three of fraction, as those of an f16 that is 2^8 times too small.
struct FP8_E4M3 {
  enum : int { bytes = 1 };
  LATHE_DEVICE f32 number(u32 bits) {
    const f32 value = 256.0f * f16_to_f32((bits & 0x80u) << 8 | (bits & 0x7fu) << 7);
    return (bits & 0x7fu) == 0x7fu ? as_f32(0x7fc00000u | (bits & 0x80u) << 24) : value;
  }
  LATHE_DEVICE f32 value(const u8* p, i64 i) { return number(p[i]); }
  LATHE_DEVICE void eight(const u8* p, f32* out) {
    const u64 v = *reinterpret_cast<const u64*>(p);
    LATHE_UNROLL(8)
    for (int i = 0; i < 8; ++i) out[i] = number(static_cast<u32>(v >> (8 * i)));
  }
};

}  // namespace lathe::dev
