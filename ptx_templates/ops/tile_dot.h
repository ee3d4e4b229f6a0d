// Owns the product of one tile of 16 rows (see docs/weight-layout.md) with the activations of its
// columns, on the integer matrix units.
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
  x.scale[0] = f.x;
  x.scale[1] = f.y;
  x.offset[0] = f.z;
  x.offset[1] = f.w;
  x.sum[0][0] = static_cast<i32>(s.x);
  x.sum[0][1] = static_cast<i32>(s.y);
  x.sum[1][0] = static_cast<i32>(s.z);
  x.sum[1][1] = static_cast<i32>(s.w);
}

// Lane's words of 16 bytes at a chunk of 512.
LATHE_DEVICE u32x4 tile_chunk(const u8* tile, int chunk) {
  return *reinterpret_cast<const u32x4*>(tile + chunk * 512 + lane_index() * 16);
}

LATHE_DEVICE i32 joined(i32 high, i32 low) {
  return high * 256 + low;
}

// How the tile formats decode. codes(): A words of sub-blocks 2i and 2i + 1, the latter `odd` times
// too large. finish(): adds scale and offset of both rows.
struct NibbleTile {
  LATHE_DEVICE void codes(const u8* tile, int, int i, u32 (&a)[2][4]) {
    const u32x4 w = tile_chunk(tile, i);
    const u32 words[4] = {w.x, w.y, w.z, w.w};
    LATHE_UNROLL(4)
    for (int v = 0; v < 4; ++v) {
      a[0][v] = words[v] & 0x0f0f0f0fu;
      a[1][v] = words[v] & 0xf0f0f0f0u;
    }
  }
};
struct FiveBitTile {
  LATHE_DEVICE void codes(const u8* tile, int subs, int i, u32 (&a)[2][4]) {
    const u32x4 w = tile_chunk(tile, i);
    const u32 words[4] = {w.x, w.y, w.z, w.w};
    const u32 fifth = load_u32(tile + subs * 256 + lane_index() * 2 * subs + 4 * i);
    LATHE_UNROLL(4)
    for (int v = 0; v < 4; ++v) {
      a[0][v] = (words[v] & 0x0f0f0f0fu) | (fifth << (4 - v) & 0x10101010u);
      a[1][v] = (words[v] >> 4 & 0x0f0f0f0fu) | (fifth >> v & 0x10101010u);
    }
  }
};

// The 6-bit scales and mins of q4_k and q5_k: 256 bytes at `p`.
LATHE_DEVICE void k_scales(const u8* p, const f32 (&f)[4], const Activation& x, f32& row0,
                           f32& row1) {
  const int lane = lane_index();
  const u32 w = load_u32(p + lane * 4), h = load_u16(p + 128 + lane * 2);
  const u32 d0 = load_u32(p + 192 + lane / 4 * 8), d1 = load_u32(p + 196 + lane / 4 * 8);
  const u32 scales = w & 0x3f3f3f3fu;
  const u32 mins = ((h | h << 12) & 0x0f0f0f0fu) | (w >> 2 & 0x30303030u);
  f32 s[4], m[4];
  bytes_to_f32(scales, 0.0f, s);
  bytes_to_f32(mins, 0.0f, m);
  row0 = fma(f16_to_f32(d0), fma(s[1], f[1], s[0] * f[0]), row0);
  row0 = fma(-f16_to_f32(d0 >> 16), fma(m[1], x.offset[1], m[0] * x.offset[0]), row0);
  row1 = fma(f16_to_f32(d1), fma(s[3], f[3], s[2] * f[2]), row1);
  row1 = fma(-f16_to_f32(d1 >> 16), fma(m[3], x.offset[1], m[2] * x.offset[0]), row1);
}

// The f16 scales of 32-value blocks at `p`, those of the lane: rows g, g, g + 8, g + 8 and
// sub-blocks 2t, 2t + 1. Lanes beyond the tile's sub-blocks take others; their activations are 0.
LATHE_DEVICE void block_scales(const u8* p, int subs, f32 (&d)[4]) {
  const int lane = lane_index(), pairs = subs / 2;
  const u8* at = p + (lane / 4 * pairs + min_int(lane % 4, pairs - 1)) * 8;
  const u32 row0 = load_u32(at), row1 = load_u32(at + 4);
  d[0] = f16_to_f32(row0);
  d[1] = f16_to_f32(row0 >> 16);
  d[2] = f16_to_f32(row1);
  d[3] = f16_to_f32(row1 >> 16);
}
// rows += d (f - zero * offset)
LATHE_DEVICE void add_scaled(const f32 (&d)[4], const f32 (&f)[4], f32 zero, const Activation& x,
                             f32& row0, f32& row1) {
  row0 = fma(d[0], fma(-zero, x.offset[0], f[0]), row0);
  row0 = fma(d[1], fma(-zero, x.offset[1], f[1]), row0);
  row1 = fma(d[2], fma(-zero, x.offset[0], f[2]), row1);
  row1 = fma(d[3], fma(-zero, x.offset[1], f[3]), row1);
}
LATHE_DEVICE void add_offsets(const f32 (&m)[4], const Activation& x, f32& row0, f32& row1) {
  row0 = fma(m[1], x.offset[1], fma(m[0], x.offset[0], row0));
  row1 = fma(m[3], x.offset[1], fma(m[2], x.offset[0], row1));
}

struct TileQ4_K : NibbleTile {
  using Shape = Q4_KTiles;
  enum : int { odd = 16, is_signed = 0, halves = 0 };
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    k_scales(tile + subs * 256, f, x, row0, row1);
  }
};
struct TileQ5_K : FiveBitTile {
  using Shape = Q5_KTiles;
  enum : int { odd = 1, is_signed = 0, halves = 0 };
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    k_scales(tile + subs * 320, f, x, row0, row1);
  }
};
struct TileQ4_0 : NibbleTile {
  using Shape = Q4_0Tiles;
  enum : int { odd = 16, is_signed = 0, halves = 0 };
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    f32 d[4];
    block_scales(tile + subs * 256, subs, d);
    add_scaled(d, f, 8.0f, x, row0, row1);
  }
};
struct TileQ4_1 : NibbleTile {
  using Shape = Q4_1Tiles;
  enum : int { odd = 16, is_signed = 0, halves = 0 };
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    f32 d[4], m[4];
    block_scales(tile + subs * 256, subs, d);
    block_scales(tile + subs * 288, subs, m);
    add_scaled(d, f, 0.0f, x, row0, row1);
    add_offsets(m, x, row0, row1);
  }
};
struct TileQ5_0 : FiveBitTile {
  using Shape = Q5_0Tiles;
  enum : int { odd = 1, is_signed = 0, halves = 0 };
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    f32 d[4];
    block_scales(tile + subs * 320, subs, d);
    add_scaled(d, f, 16.0f, x, row0, row1);
  }
};
struct TileQ5_1 : FiveBitTile {
  using Shape = Q5_1Tiles;
  enum : int { odd = 1, is_signed = 0, halves = 0 };
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    f32 d[4], m[4];
    block_scales(tile + subs * 320, subs, d);
    block_scales(tile + subs * 352, subs, m);
    add_scaled(d, f, 0.0f, x, row0, row1);
    add_offsets(m, x, row0, row1);
  }
};
struct TileQ8_0 {
  using Shape = Q8_0Tiles;
  enum : int { odd = 1, is_signed = 1, halves = 0 };
  LATHE_DEVICE void codes(const u8* tile, int, int i, u32 (&a)[2][4]) {
    LATHE_UNROLL(2)
    for (int p = 0; p < 2; ++p) {
      const u32x4 w = tile_chunk(tile, 2 * i + p);
      a[p][0] = w.x;
      a[p][1] = w.y;
      a[p][2] = w.z;
      a[p][3] = w.w;
    }
  }
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    f32 d[4];
    block_scales(tile + subs * 512, subs, d);
    add_scaled(d, f, 0.0f, x, row0, row1);
  }
};

// Scales of 16 values: the halves of a sub-block have sums of their own, and the matrix
// instruction half as deep keeps them apart.
LATHE_DEVICE void tile_dot_q6_k(const u8* tile, const Activation& x, f32& row0, f32& row1) {
  i32 c[2][2][4] = {};  // sub-block parity, half
  const int lane = lane_index(), g = lane / 4;
  LATHE_UNROLL(2)
  for (int half = 0; half < 2; ++half) {  // of the codes: registers are few
    u32 words[12];
    LATHE_UNROLL(3)
    for (int i = 0; i < 3; ++i) {
      const u32x4 w = tile_chunk(tile, 3 * half + i);
      words[4 * i] = w.x;
      words[4 * i + 1] = w.y;
      words[4 * i + 2] = w.z;
      words[4 * i + 3] = w.w;
    }
    LATHE_UNROLL(4)
    for (int s = 0; s < 4; ++s) {
      const u32 w0 = words[3 * s], w1 = words[3 * s + 1], w2 = words[3 * s + 2];
      // The fourth word's codes four times too large.
      const u32 a3 = (w0 & 0xc0c0c0c0u) | (w1 >> 2 & 0x30303030u) | (w2 >> 4 & 0x0c0c0c0cu);
      const int p = s & 1, i = 2 * half + s / 2;
      mma_u8_k16(c[p][0], w0 & 0x3f3f3f3fu, w1 & 0x3f3f3f3fu, x.b[i][p][0]);
      mma_u8_k16(c[p][1], w2 & 0x3f3f3f3fu, a3, x.b[i][p][1]);
    }
  }
  const u8* scales = tile + 3072;
  const u32 s0 = load_u32(scales + lane * 8), s1 = load_u32(scales + lane * 8 + 4);
  const u32 d = load_u32(scales + 256 + g * 4);
  f32 sum[2] = {0, 0};
  LATHE_UNROLL(2)
  for (int r = 0; r < 2; ++r) {
    LATHE_UNROLL(4)
    for (int j = 0; j < 4; ++j) {
      const int p = j / 2, h = j % 2;
      const i32 raw = joined(c[p][h][2 * r], c[p][h][2 * r + 1]);
      // w = scale (code - 32)
      const f32 centred = r == 1 && h == 1 ? static_cast<f32>(raw - x.sum[p][h] * 128) * 0.25f
                                           : static_cast<f32>(raw - x.sum[p][h] * 32);
      const f32 scale = static_cast<f32>(static_cast<i8>((r ? s1 : s0) >> (8 * j) & 255u));
      sum[r] = fma(centred * scale, x.scale[p], sum[r]);
    }
  }
  row0 = fma(f16_to_f32(d), sum[0], row0);
  row1 = fma(f16_to_f32(d >> 16), sum[1], row1);
}
struct TileQ6_K {
  using Shape = Q6_KTiles;
  enum : int { halves = 1 };
};

// Adds the products of one tile to the lane's shares of rows g and g + 8.
template <class Tile>
LATHE_DEVICE void tile_dot(const u8* tile, int subs, const Activation& x, f32& row0, f32& row1) {
  if constexpr (Tile::halves) {
    tile_dot_q6_k(tile, x, row0, row1);
  } else {
    i32 c[2][4] = {};
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      if (2 * i >= subs) break;
      u32 a[2][4];
      Tile::codes(tile, subs, i, a);
      LATHE_UNROLL(2)
      for (int p = 0; p < 2; ++p) {
        if (Tile::is_signed)
          mma_s8_k32(c[p], a[p][0], a[p][1], a[p][2], a[p][3], x.b[i][p][0], x.b[i][p][1]);
        else
          mma_u8_k32(c[p], a[p][0], a[p][1], a[p][2], a[p][3], x.b[i][p][0], x.b[i][p][1]);
      }
    }
    const f32 scale[2] = {x.scale[0], x.scale[1] * (1.0f / static_cast<f32>(Tile::odd))};
    f32 f[4];
    LATHE_UNROLL(4)
    for (int j = 0; j < 4; ++j)
      f[j] = static_cast<f32>(joined(c[j & 1][j & 2], c[j & 1][(j & 2) + 1])) * scale[j & 1];
    Tile::finish(tile, subs, f, x, row0, row1);
  }
}

}  // namespace lathe::dev
