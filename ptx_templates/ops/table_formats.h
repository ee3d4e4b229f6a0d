// Owns the device decoders of the formats whose four-bit codes number the entries of a table.
#pragma once

#include "ops/format_units.h"

namespace lathe::dev {

// Sixteen signed bytes, four in a word.
struct ByteTable {
  u32 words[4];
};
LATHE_DEVICE ByteTable iq4_table() {
  return {{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}};
}
// Twice the numbers of one sign, two exponent and one mantissa bits.
LATHE_DEVICE ByteTable fp4_table() {
  return {{0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}};
}

// The entries of a word's eight codes: `low` those of the low nibbles, `high` of the high ones. A
// permutation looks four codes up in half of the table; a second one takes the half that the codes'
// top bits say.
LATHE_DEVICE void look_up(const ByteTable& table, u32 codes, u32& low, u32& high) {
  const u32 index = codes & 0x77777777u, half = (codes >> 1 & 0x44444444u) | 0x32103210u;
  u32 mixed[2];
  LATHE_UNROLL(2)
  for (int i = 0; i < 2; ++i) {
    const u32 four = index >> (16 * i);
    mixed[i] = byte_permute(byte_permute(table.words[0], table.words[1], four & 0xffffu),
                            byte_permute(table.words[2], table.words[3], four & 0xffffu),
                            half >> (16 * i) & 0xffffu);
  }
  low = byte_permute(mixed[0], mixed[1], 0x6420u);
  high = byte_permute(mixed[0], mixed[1], 0x7531u);
}

LATHE_DEVICE void entries_to_f32(const ByteTable& table, u32x4 v, f32* q) {
  const u32 words[4] = {v.x, v.y, v.z, v.w};
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    u32 low, high;
    look_up(table, words[i], low, high);
    bytes_to_f32(low ^ 0x80808080u, 128.0f, q + 4 * i);
    bytes_to_f32(high ^ 0x80808080u, 128.0f, q + 16 + 4 * i);
  }
}

struct IQ4_NL {
  enum : int { block = 32, bytes = 18, units = 1 };
  enum : bool { has_offset = false };
  LATHE_DEVICE ByteTable table() { return iq4_table(); }
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void decode(const u8* p, int, Unit& u) {
    entries_to_f32(iq4_table(), load_u32x4_align2(p + 2), u.q);
    u.scale[0] = u.scale[1] = f16_to_f32(load_u16(p));
  }
};

// Unit u is sub-block u; the block is aligned to 8 bytes.
struct IQ4_XS {
  enum : int { block = 256, bytes = 136, units = 8 };
  enum : bool { has_offset = false };
  LATHE_DEVICE ByteTable table() { return iq4_table(); }
  LATHE_DEVICE int run(int unit, int r) { return 32 * unit + 16 * r; }
  LATHE_DEVICE void decode(const u8* p, int unit, Unit& u) {
    const u8* from = p + 8 + 16 * unit;
    const u32x4 v = {load_u32(from), load_u32(from + 4), load_u32(from + 8), load_u32(from + 12)};
    entries_to_f32(iq4_table(), v, u.q);
    const u32 head = load_u32(p), low = load_u32(p + 4);
    const u32 scale = (low >> (4 * unit) & 15u) | (head >> (16 + 2 * unit) & 3u) << 4;
    u.scale[0] = u.scale[1] = f16_to_f32(head) * byte_to_f32(scale, 0, 32.0f);
  }
};

// Half of 2^(exponent - 127), for the table's entries are doubled.
LATHE_DEVICE f32 half_of_power(u32 exponent) {
  return as_f32(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

struct MXFP4 {
  enum : int { block = 32, bytes = 17, units = 1 };
  enum : bool { has_offset = false };
  LATHE_DEVICE ByteTable table() { return fp4_table(); }
  LATHE_DEVICE int run(int, int r) { return 16 * r; }
  LATHE_DEVICE void decode(const u8* p, int, Unit& u) {
    entries_to_f32(fp4_table(), load_u32x4_align1(p + 1), u.q);
    u.scale[0] = u.scale[1] = half_of_power(*p);
  }
};

}  // namespace lathe::dev
