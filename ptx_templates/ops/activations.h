// Owns the activations of a matrix-vector phase: from floats to integers with scales.
#pragma once

#include "ops/math.h"
#include "ops/tile_dot.h"

namespace lathe::dev {

// Bytes 0, or bytes 1, of four words.
LATHE_DEVICE u32 gather_bytes(const u32* q, u32 selector) {
  return byte_permute(byte_permute(q[0], q[1], selector), byte_permute(q[2], q[3], selector),
                      0x5410u);
}

// The sum of four integers, whose upper and lower bytes these are.
LATHE_DEVICE u32 sum_of_integers(u32 high, u32 low) {
  return static_cast<u32>(dot4(high, 0x01010101u, 0) * 256 + dot4(low, 0x01010101u, 0));
}

// Rounds a tile column's values to integers with a scale for each sub-block, and puts them where
// load_activation() finds them. A warp calls, with lane_index(). Lane 4g + t has values 4t ... 4t +
// 3 and 16 + 4t ... of sub-block g, if that is `there`: else its activations are zero. A NaN, an
// infinity or a value of 2^125 and more becomes a scale that is NaN.
LATHE_DEVICE void store_activation(u8* column, int lane, bool there, const f32 (&v)[8]) {
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
  // The largest becomes a little less than the limbs hold, 127 * 257, for the factor is a rounded
  // one. Where all is below 2^-100, it is below what a sum with anything else would notice.
  const f32 largest = 32600.0f, maximum = as_f32(top);
  const bool none = top < 0x0d800000u || !there;
  const f32 inverse = none ? 0.0f : largest * reciprocal(maximum);
  f32 scale = top >= 0x7e000000u ? as_f32(0x7fc00000u) : maximum * (1.0f / largest);
  if (none) scale = 0;
  // 1.5 * 2^23 leaves the nearest integer in the low bits; 128 more makes byte 1 the upper limb
  // and, but for its top bit, byte 0 the lower.
  const f32 magic = 12582912.0f + 128.0f;
  u32 q[8];
  LATHE_UNROLL(8)
  for (int i = 0; i < 8; ++i) q[i] = as_u32(fma(v[i], inverse, magic));
  const u32 high0 = gather_bytes(q, 0x0051u), low0 = gather_bytes(q, 0x0040u) ^ 0x80808080u;
  const u32 high1 = gather_bytes(q + 4, 0x0051u), low1 = gather_bytes(q + 4, 0x0040u) ^ 0x80808080u;
  const int g = lane / 4, t = lane % 4;
  const bool odd = g & 1;
  // Of the sub-block's halves, the sum of the first goes to lanes of even t, of the second to
  // others.
  const u32 first = sum_of_integers(high0, low0), second = sum_of_integers(high1, low1);
  u32 half = (t & 1 ? second : first) + shuffle_xor(t & 1 ? first : second, 1);
  half += shuffle_xor(half, 2);
  const i32 sum = static_cast<i32>(half + shuffle_xor(half, 1));
  // Lanes of even g keep the upper limbs of their sub-block and want those of the next, lanes of
  // odd g keep the lower limbs and want those of the one before.
  const u32 got0 = shuffle_xor(odd ? high0 : low0, 4), got1 = shuffle_xor(odd ? high1 : low1, 4);
  *reinterpret_cast<u32x4*>(column + lane * 16) = {odd ? got0 : high0, odd ? got1 : high1,
                                                   odd ? low0 : got0, odd ? low1 : got1};
  if (t == 0) {
    f32* place = reinterpret_cast<f32*>(column + 512 + g / 2 * 16 + g % 2 * 4);
    place[0] = scale;
    place[2] = scale * static_cast<f32>(sum);
  }
  if (t < 2) reinterpret_cast<u32*>(column + 576 + g / 2 * 16 + g % 2 * 8)[t] = half;
}

}  // namespace lathe::dev
