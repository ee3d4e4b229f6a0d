// Owns what the device decoders of block formats share: the unit of 32 weights that they make,
// loads from blocks that are aligned to less than a word, small integers as floats.
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
  f32 q[32];                // integers as floats: run 0, then run 1
  f32 scale[2], offset[2];  // per run; offset only where the decoder has_offset
};

// Value j of run r of a unit that Decoder made.
template <class Decoder>
LATHE_DEVICE f32 unit_value(const Unit& u, int r, int j) {
  return Decoder::has_offset ? fma(u.scale[r], u.q[16 * r + j], u.offset[r])
                             : u.scale[r] * u.q[16 * r + j];
}

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

LATHE_DEVICE u32 load_u16(const u8* p) {
  return *reinterpret_cast<const u16*>(p);
}
LATHE_DEVICE u32 load_u32(const u8* p) {
  return *reinterpret_cast<const u32*>(p);
}

// A 32-bit load from a 2-byte-aligned address.
LATHE_DEVICE u32 load_u32_align2(const u8* p) {
  return load_u16(p) | load_u16(p + 2) << 16;
}

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

// 16 bytes from any address that has one readable byte before it, none of more: three aligned words
// within, the edges byte by byte.
LATHE_DEVICE u32x4 load_u32x4_align1(const u8* p) {
  const u32 odd = static_cast<u32>(reinterpret_cast<u64>(p)) & 3u, shift = odd * 8;
  const u8* base = p - odd;
  // The first word begins before what is readable if two bytes of it or more are not wanted.
  const u32 first = load_u32(odd < 2 ? base : base + 4);
  const u32 w0 = odd < 2 ? first : (p[0] | static_cast<u32>(p[1]) << 8) << shift;
  const u32 w1 = load_u32(base + 4), w2 = load_u32(base + 8), w3 = load_u32(base + 12);
  const u32 last = p[13] | static_cast<u32>(p[14]) << 8 | static_cast<u32>(p[15]) << 16;
  const u32 w4 = last >> (24 - shift);
  u32x4 v;
  v.x = funnel_right(w0, w1, shift);
  v.y = funnel_right(w1, w2, shift);
  v.z = funnel_right(w2, w3, shift);
  v.w = funnel_right(w3, w4, shift);
  return v;
}

// Decoders with `zero` have a unit's integers as bytes too, four a word, without a sign: a weight's
// integer is its byte minus zero.
template <class Decoder>
LATHE_DEVICE void decode_bytes(const u8* p, int part, Unit& u) {
  u32 words[8];
  Decoder::bytes_of(p, part, words);
  LATHE_UNROLL(8)
  for (int i = 0; i < 8; ++i) bytes_to_f32(words[i], static_cast<f32>(Decoder::zero), u.q + 4 * i);
  Decoder::scales_of(p, part, u);
}

// Low nibbles are run 0, high nibbles run 1.
LATHE_DEVICE void nibble_bytes(u32x4 v, u32* words) {
  const u32 from[4] = {v.x, v.y, v.z, v.w};
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    words[i] = from[i] & 0x0f0f0f0fu;
    words[4 + i] = from[i] >> 4 & 0x0f0f0f0fu;
  }
}

// Bits i .. i+3 of `bits` moved to bit 4 of four bytes.
LATHE_DEVICE u32 spread_fifth_bits(u32 bits, int i) {
  const u32 b = bits >> i & 15u;
  return (b << 4 & 0x10u) | (b << 11 & 0x1000u) | (b << 18 & 0x100000u) | (b << 25 & 0x10000000u);
}

// Nibbles with fifth bits, bit j of `fifth` belonging to value j of the unit.
LATHE_DEVICE void five_bit_bytes(u32x4 v, u32 fifth, u32* words) {
  nibble_bytes(v, words);
  LATHE_UNROLL(8)
  for (int i = 0; i < 8; ++i) words[i] |= spread_fifth_bits(fifth, 4 * i);
}

}  // namespace lathe::dev
