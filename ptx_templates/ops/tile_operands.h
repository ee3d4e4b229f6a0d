// Owns what the product of a tile with activations is made of: the activations of a tile column as
// a lane wants them, the lane's words of a tile, and its scales of q4_k and q5_k.
//
// Activations are 16-bit integers with a scale per 32 values, an upper and a lower byte each. B has
// eight columns: the two limbs of four sub-blocks, first the even, then the odd ones. Sub-block s
// of the tile meets its own limbs in two columns and zeros in the other six, so that lane 4g + t
// ends with the sums of sub-blocks 2t and 2t + 1 of rows g and g + 8: all lanes have scales to
// apply, and none has anything to exchange.
#pragma once

#include "ops/formats.h"
#include "ops/tile_shapes.h"

namespace lathe::dev {

// What a lane wants of the activations of one tile column.
struct Activation {
  u32 b[4][2][2];  // B words of sub-blocks 2i + p: zero but for the lanes of i, g / 2
  f32 scale[2];    // of sub-blocks 2t and 2t + 1
  f32 offset[2];   // scale * sum of the integers
  i32 sum[2][2];   // of the integers, per half of 16
};

LATHE_DEVICE void take_scales(const f32x4& f, const u32x4& s, Activation& x) {
  x.scale[0] = f.x;
  x.scale[1] = f.y;
  x.offset[0] = f.z;
  x.offset[1] = f.w;
  x.sum[0][0] = static_cast<i32>(s.x);
  x.sum[0][1] = static_cast<i32>(s.y);
  x.sum[1][0] = static_cast<i32>(s.z);
  x.sum[1][1] = static_cast<i32>(s.w);
}

// A column in shared memory: 16 bytes for each lane, limb g & 1 of sub-blocks 2 (g / 2) + p, values
// 4t ... and 16 + 4t ...; then for each t 16 bytes of scales and offsets, and 16 of sums. All are
// zero where the tile has no sub-block.
LATHE_DEVICE void load_activation(const u8* column, Activation& x) {
  const int lane = lane_index(), t = lane % 4;
  const u32x4 q = *reinterpret_cast<const u32x4*>(column + lane * 16);
  const f32x4 f = *reinterpret_cast<const f32x4*>(column + 512 + t * 16);
  const u32x4 s = *reinterpret_cast<const u32x4*>(column + 576 + t * 16);
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    const bool mine = lane / 8 == i;
    x.b[i][0][0] = pinned(mine ? q.x : 0u);
    x.b[i][0][1] = pinned(mine ? q.y : 0u);
    x.b[i][1][0] = pinned(mine ? q.z : 0u);
    x.b[i][1][1] = pinned(mine ? q.w : 0u);
  }
  take_scales(f, s, x);
}

// The same in place of another column's. The words that were zero stay so, as they are the same in
// every column: nothing is selected.
LATHE_DEVICE void replace_activation(const u8* column, Activation& x) {
  const int lane = lane_index(), t = lane % 4;
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i)
    shared_u32x4_if(lane / 8, i, column + lane * 16, x.b[i][0][0], x.b[i][0][1], x.b[i][1][0],
                    x.b[i][1][1]);
  const f32x4 f = *reinterpret_cast<const f32x4*>(column + 512 + t * 16);
  const u32x4 s = *reinterpret_cast<const u32x4*>(column + 576 + t * 16);
  take_scales(f, s, x);
}

// Lane's words of 16 bytes at a chunk of 512.
LATHE_DEVICE u32x4 tile_chunk(const u8* tile, int chunk) {
  return *reinterpret_cast<const u32x4*>(tile + chunk * kTileChunk + lane_index() * 16);
}

// The 6-bit scales and mins of q4_k and q5_k from a lane's word w and half word h at kTileMinsAt, a
// byte each: of rows g, g, g + 8, g + 8 and sub-blocks 2t, 2t + 1, without d and dmin.
struct SixBits {
  u32 scales, mins;
};
LATHE_DEVICE SixBits six_bits(u32 w, u32 h) {
  return {w & 0x3f3f3f3fu, ((h | h << 12) & 0x0f0f0f0fu) | (w >> 2 & 0x30303030u)};
}
LATHE_DEVICE void six_bit_scales(u32 w, u32 h, f32 (&scales)[4], f32 (&mins)[4]) {
  const SixBits bits = six_bits(w, h);
  bytes_to_f32(bits.scales, 0.0f, scales);
  bytes_to_f32(bits.mins, 0.0f, mins);
}

LATHE_DEVICE i32 joined(i32 high, i32 low) {
  return high * 256 + low;
}

}  // namespace lathe::dev
