// Owns the activations of a matrix-vector phase: from a vector of floats to integers with scales.
#pragma once

#include "ops/exchange.h"
#include "ops/tile_dot.h"

namespace lathe::dev {

// Bytes 0, or bytes 1, of four words.
LATHE_DEVICE u32 gather_bytes(const u32* q, u32 selector) {
  return byte_permute(byte_permute(q[0], q[1], selector), byte_permute(q[2], q[3], selector),
                      0x5410u);
}

// Rounds the lane's 8 values of sub-block g, v[0..3] of its first half and v[4..7] of its second,
// to integers with the sub-block's scale, and puts them into a column for load_activation(). A NaN
// or an infinity becomes a scale that is NaN.
LATHE_DEVICE void store_activation(u8* column, const f32 (&v)[8]) {
  // As integers, magnitudes are ordered and NaN is above all.
  u32 top = 0;
  LATHE_UNROLL(8)
  for (int i = 0; i < 8; ++i) {
    const u32 magnitude = as_u32(v[i]) & 0x7fffffffu;
    top = magnitude > top ? magnitude : top;
  }
  LATHE_UNROLL(2)
  for (int mask = 1; mask <= 2; mask *= 2) {
    const u32 other = shuffle_xor(top, mask);
    top = other > top ? other : top;
  }
  // The power of two that brings the largest into 2^14 ... 127 * 257: it costs half a bit on
  // average, and no division. Where all is below 2^-100, it is below what a sum with anything else
  // would notice.
  const bool none = top < 0x0d800000u, finite = top < 0x7f800000u;
  const u32 exponent = (top + 0x00010200u) & 0x7f800000u;
  const f32 inverse = none ? 0.0f : as_f32(((254u + 14u) << 23) - exponent);
  f32 scale = none ? 0.0f : as_f32(exponent - (14u << 23));
  if (!finite) scale = as_f32(0x7fc00000u);
  // 1.5 * 2^23 leaves the nearest integer in the low bits; 128 more makes byte 1 the upper limb
  // and, but for its top bit, byte 0 the lower.
  const f32 magic = 12582912.0f + 128.0f;
  u32 q[8];
  LATHE_UNROLL(8)
  for (int i = 0; i < 8; ++i) q[i] = finite ? as_u32(fma(v[i], inverse, magic)) : as_u32(magic);
  const int lane = lane_index(), g = lane / 4, t = lane % 4;
  i32 sum[2];
  u32 high[2], low[2];
  LATHE_UNROLL(2)
  for (int h = 0; h < 2; ++h) {
    low[h] = gather_bytes(q + 4 * h, 0x0040u) ^ 0x80808080u;
    high[h] = gather_bytes(q + 4 * h, 0x0051u);
    sum[h] = dot4(high[h], 0x01010101u, 0) * 256 + dot4(low[h], 0x01010101u, 0);
    sum[h] += static_cast<i32>(shuffle_xor(static_cast<u32>(sum[h]), 1));
    sum[h] += static_cast<i32>(shuffle_xor(static_cast<u32>(sum[h]), 2));
  }
  // Sub-block g is number p = g & 1 of the lanes 4g' + t with g' / 2 = g / 2: the upper limb of the
  // even ones, the lower of the odd ones.
  u8* q_place = column + (lane & ~4) * 16 + (g & 1) * 8;
  *reinterpret_cast<u64*>(q_place) = static_cast<u64>(high[1]) << 32 | high[0];
  *reinterpret_cast<u64*>(q_place + 64) = static_cast<u64>(low[1]) << 32 | low[0];
  if (t == 0) {
    u8* s_place = column + 512 + g / 2 * 16 + (g & 1) * 4;
    *reinterpret_cast<f32*>(s_place) = scale;
    *reinterpret_cast<f32*>(s_place + 8) = scale * static_cast<f32>(sum[0] + sum[1]);
    *reinterpret_cast<u64*>(column + 576 + g / 2 * 16 + (g & 1) * 8) =
        static_cast<u64>(static_cast<u32>(sum[1])) << 32 | static_cast<u32>(sum[0]);
  }
}

// The two places of four values that lane 4g + t holds of tile column `column`.
LATHE_DEVICE int value_place(int column, int subs, int half) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  return (column * subs + g) * 32 + 16 * half + 4 * t;
}

}  // namespace lathe::dev
