// Owns the activations of a matrix-vector phase: from a vector of floats to integers with scales.
#pragma once

#include "ops/exchange.h"
#include "ops/math.h"
#include "ops/tile_dot.h"

namespace lathe::dev {

// Bytes 0, or bytes 1, of four words.
LATHE_DEVICE u32 gather_bytes(const u32* q, u32 selector) {
  return byte_permute(byte_permute(q[0], q[1], selector), byte_permute(q[2], q[3], selector),
                      0x5410u);
}

// A warp takes four sub-blocks of 32 values at once, eight lanes each, four values a lane. Rounds
// the lane's values to integers with the sub-block's scale and puts them where load_activation()
// finds them: `column` is the sub-block's tile column, `sub` its number there; all lanes
// call, those whose sub-block is not `there` for the others' sake. A NaN, an
// infinity or a value of 2^125 and more becomes a scale that is NaN.
LATHE_DEVICE void store_activation(u8* column, bool there, int sub, const f32 (&v)[4]) {
  // As integers, magnitudes are ordered and NaN is above all.
  u32 top = 0;
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    const u32 magnitude = as_u32(v[i]) & 0x7fffffffu;
    top = magnitude > top ? magnitude : top;
  }
  LATHE_UNROLL(3)
  for (int mask = 1; mask <= 4; mask *= 2) {
    const u32 other = shuffle_xor(top, mask);
    top = other > top ? other : top;
  }
  // The largest becomes a little less than the limbs hold, 127 * 257, for the factor is a rounded
  // one. Where all is below 2^-100, it is below what a sum with anything else would notice.
  const f32 largest = 32600.0f, maximum = as_f32(top);
  const bool none = top < 0x0d800000u, finite = top < 0x7e000000u;
  const f32 inverse = none ? 0.0f : largest * reciprocal(maximum);
  f32 scale = none ? 0.0f : maximum * (1.0f / largest);
  if (!finite) scale = as_f32(0x7fc00000u);
  // 1.5 * 2^23 leaves the nearest integer in the low bits; 128 more makes byte 1 the upper limb
  // and, but for its top bit, byte 0 the lower.
  const f32 magic = 12582912.0f + 128.0f;
  u32 q[4];
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) q[i] = finite ? as_u32(fma(v[i], inverse, magic)) : as_u32(magic);
  const u32 low = gather_bytes(q, 0x0040u) ^ 0x80808080u, high = gather_bytes(q, 0x0051u);
  i32 sum = dot4(high, 0x01010101u, 0) * 256 + dot4(low, 0x01010101u, 0);
  sum += static_cast<i32>(shuffle_xor(static_cast<u32>(sum), 1));
  sum += static_cast<i32>(shuffle_xor(static_cast<u32>(sum), 2));
  const i32 whole = sum + static_cast<i32>(shuffle_xor(static_cast<u32>(sum), 4));
  if (!there) return;
  // Sub-block s is number p = s & 1 of the lanes 4g + t with g / 2 = s / 2: the upper limb of the
  // even g, the lower of the odd ones.
  const int lane = lane_index() % 8, half = lane / 4, t = lane % 4, p = sub & 1, pair = sub / 2;
  u8* q_place = column + (8 * pair + t) * 16 + p * 8 + half * 4;
  *reinterpret_cast<u32*>(q_place) = high;
  *reinterpret_cast<u32*>(q_place + 64) = low;
  if (t == 0)
    *reinterpret_cast<i32*>(column + 576 + pair * 16 + p * 8 + half * 4) = sum;
  if (lane == 0) {
    f32* place = reinterpret_cast<f32*>(column + 512 + pair * 16 + p * 4);
    place[0] = scale;
    place[2] = scale * static_cast<f32>(whole);
  }
}

}  // namespace lathe::dev
