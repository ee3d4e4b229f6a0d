// Owns the device decoders of the formats that activations are rounded to, and of ternary weights.
#pragma once

#include "ops/format_units.h"

namespace lathe::dev {

// 32 signed bytes from a 4-byte-aligned address.
LATHE_DEVICE void signed_bytes_to_f32(const u8* p, f32* q) {
  LATHE_UNROLL(8)
  for (int i = 0; i < 8; ++i) bytes_to_f32(load_u32(p + 4 * i) ^ 0x80808080u, 128.0f, q + 4 * i);
}

struct Q8_1 {
  enum : int { block = 32, bytes = 36, units = 1 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void decode(const u8* p, int, Unit& u) {
    signed_bytes_to_f32(p + 4, u.q);
    u.scale[0] = u.scale[1] = f16_to_f32(load_u16(p));
  }
};

struct Q8_1_Tail {
  enum : int { block = 32, bytes = 36, units = 1 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void decode(const u8* p, int, Unit& u) {
    signed_bytes_to_f32(p, u.q);
    u.scale[0] = u.scale[1] = f16_to_f32(load_u16(p + 32));
  }
};

struct Q8_K {
  enum : int { block = 256, bytes = 292, units = 8 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int unit, int r) { return 32 * unit + 16 * r; }
  LATHE_DEVICE void decode(const u8* p, int unit, Unit& u) {
    signed_bytes_to_f32(p + 4 + 32 * unit, u.q);
    u.scale[0] = u.scale[1] = as_f32(load_u32(p));
  }
};

// A word has the codes of a run, the lowest bits first: 0, 1, -1 and 0 again.
struct Ternary {
  enum : int { block = 32, bytes = 8, units = 1 };
  enum : bool { has_offset = false };
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void decode(const u8* p, int, Unit& u) {
    LATHE_UNROLL(2)
    for (int r = 0; r < 2; ++r) {
      const u32 word = load_u32(p + 4 * r);
      LATHE_UNROLL(4)
      for (int place = 0; place < 4; ++place) {  // of a code in its byte
        const u32 ones = word >> (2 * place) & 0x01010101u;
        const u32 minus = word >> (2 * place + 1) & 0x01010101u;
        LATHE_UNROLL(4)
        for (int i = 0; i < 4; ++i)
          u.q[16 * r + 4 * i + place] = byte_to_f32(0x01010101u + ones - minus, i, 1.0f);
      }
      u.scale[r] = 1.0f;
    }
  }
};

}  // namespace lathe::dev
