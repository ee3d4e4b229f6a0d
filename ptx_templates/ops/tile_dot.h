// Owns the product of one tile of 16 rows (see docs/weight-layout.md) with the activations of its
// columns, on the matrix units: here of the formats with a scale per 32 values, in two other files
// of the others.
#pragma once

#include "ops/tile_dot_half.h"
#include "ops/tile_dot_runs.h"
#include "ops/tile_operands.h"

namespace lathe::dev {

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
  const u32 w = load_u32(p + lane * 4), h = load_u16(p + kTileMinsAt + lane * 2);
  const u8* halves = p + kTileHalvesAt + lane / 4 * 8;
  const u32 d0 = load_u32(halves), d1 = load_u32(halves + 4);
  f32 s[4], m[4];
  six_bit_scales(w, h, s, m);
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
  enum : int { odd = 16, is_signed = 0, own_dot = 0 };
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    k_scales(tile + subs * 256, f, x, row0, row1);
  }
};
struct TileQ5_K : FiveBitTile {
  using Shape = Q5_KTiles;
  enum : int { odd = 1, is_signed = 0, own_dot = 0 };
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    k_scales(tile + subs * 320, f, x, row0, row1);
  }
};
struct TileQ4_0 : NibbleTile {
  using Shape = Q4_0Tiles;
  enum : int { odd = 16, is_signed = 0, own_dot = 0 };
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    f32 d[4];
    block_scales(tile + subs * 256, subs, d);
    add_scaled(d, f, 8.0f, x, row0, row1);
  }
};
struct TileQ4_1 : NibbleTile {
  using Shape = Q4_1Tiles;
  enum : int { odd = 16, is_signed = 0, own_dot = 0 };
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
  enum : int { odd = 1, is_signed = 0, own_dot = 0 };
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    f32 d[4];
    block_scales(tile + subs * 320, subs, d);
    add_scaled(d, f, 16.0f, x, row0, row1);
  }
};
struct TileQ5_1 : FiveBitTile {
  using Shape = Q5_1Tiles;
  enum : int { odd = 1, is_signed = 0, own_dot = 0 };
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
  enum : int { odd = 1, is_signed = 1, own_dot = 0 };
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

// Four-bit codes that number the entries of a table.
template <class Table>
struct TableTile {
  enum : int { odd = 1, is_signed = 1, own_dot = 0 };
  LATHE_DEVICE void codes(const u8* tile, int, int i, u32 (&a)[2][4]) {
    const u32x4 w = tile_chunk(tile, i);
    const u32 words[4] = {w.x, w.y, w.z, w.w};
    LATHE_UNROLL(4)
    for (int v = 0; v < 4; ++v) look_up(Table::table(), words[v], a[0][v], a[1][v]);
  }
};
struct TileIQ4_NL : TableTile<IQ4_NL> {
  using Shape = IQ4_NLTiles;
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    f32 d[4];
    block_scales(tile + subs * 256, subs, d);
    add_scaled(d, f, 0.0f, x, row0, row1);
  }
};
struct TileMXFP4 : TableTile<MXFP4> {
  using Shape = MXFP4Tiles;
  LATHE_DEVICE void finish(const u8* tile, int subs, const f32 (&f)[4], const Activation& x,
                           f32& row0, f32& row1) {
    const int lane = lane_index(), pairs = subs / 2;
    const u32 exponents =
        load_u32(tile + subs * 256 + (lane / 4 * pairs + min_int(lane % 4, pairs - 1)) * 4);
    f32 d[4];
    LATHE_UNROLL(4)
    for (int j = 0; j < 4; ++j) d[j] = half_of_power(exponents >> (8 * j) & 255u);
    add_scaled(d, f, 0.0f, x, row0, row1);
  }
};
struct TileIQ4_XS : TableTile<IQ4_XS> {
  using Shape = IQ4_XSTiles;
  LATHE_DEVICE void finish(const u8* tile, int, const f32 (&f)[4], const Activation&, f32& row0,
                           f32& row1) {
    const int lane = lane_index();
    const u8* scales = tile + 2048;
    const u32 low = load_u16(scales + lane * 2), high = scales[kTileXsHighAt + lane];
    const u32 d = load_u32(scales + kTileXsDeltaAt + lane / 4 * 4);
    const u32 nibbles = (low | low << 12) & 0x0f0f0f0fu, two = high | high << 12;
    f32 s[4];
    bytes_to_f32(nibbles | ((two | two << 6) & 0x03030303u) << 4, 32.0f, s);
    row0 = fma(f16_to_f32(d), fma(s[1], f[1], s[0] * f[0]), row0);
    row1 = fma(f16_to_f32(d >> 16), fma(s[3], f[3], s[2] * f[2]), row1);
  }
};

// The products of sub-blocks 2i and 2i + 1, on the sums of the even and the odd ones.
template <class Tile>
LATHE_DEVICE void multiply_codes(const u8* tile, int subs, int i, const Activation& x,
                                 i32 (&c)[2][4]) {
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
// Scales these sums and adds them to the rows.
template <class Tile>
LATHE_DEVICE void add_sums(const u8* tile, int subs, const i32 (&c)[2][4], const Activation& x,
                           f32& row0, f32& row1) {
  const f32 scale[2] = {x.scale[0], x.scale[1] * (1.0f / static_cast<f32>(Tile::odd))};
  f32 f[4];
  LATHE_UNROLL(4)
  for (int j = 0; j < 4; ++j)
    f[j] = static_cast<f32>(joined(c[j & 1][j & 2], c[j & 1][(j & 2) + 1])) * scale[j & 1];
  Tile::finish(tile, subs, f, x, row0, row1);
}

// Adds the products of one tile to the lane's shares of rows g and g + 8.
template <class Tile>
LATHE_DEVICE void tile_dot(const u8* tile, int subs, const Activation& x, f32& row0, f32& row1) {
  if constexpr (Tile::own_dot != 0) {
    Tile::dot(tile, subs, x, row0, row1);
  } else {
    i32 c[2][4] = {};
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      if (2 * i >= subs) break;
      multiply_codes<Tile>(tile, subs, i, x, c);
    }
    add_sums<Tile>(tile, subs, c, x, row0, row1);
  }
}

}  // namespace lathe::dev
