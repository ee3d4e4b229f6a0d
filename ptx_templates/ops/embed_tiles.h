// Owns y[k] = scale * table[token] from a table in tiles: the same values as ops/embed.h gives, for
// a head that shares its weights with the embedding and has them in tiles.
#pragma once

#include "ops/embed.h"
#include "ops/tile_shapes.h"

namespace lathe::dev {

// Four consecutive values of a row: in which tile, and which word of which lane.
struct TileQuad {
  const u8* tile;
  int sub;   // sub-block of the tile
  int lane;  // 4g + t
  int word;  // r + 2h: row g + 8r, half h of the sub-block
};

template <class Tiles>
LATHE_DEVICE TileQuad tile_quad(const u8* table, i64 row, int column, int k, int subs) {
  const int sub = column / kTileSub, in_tile = static_cast<int>(row % kTileRows);
  const i64 tile = row / kTileRows * (tile_subs_total(k) / subs) + sub / subs;
  TileQuad q;
  q.tile = table + tile * tile_bytes(Tiles::code_bits, Tiles::scale_bytes, subs);
  q.sub = sub % subs;
  q.lane = in_tile % 8 * 4 + column % 16 / 4;
  q.word = in_tile / 8 + column % kTileSub / 16 * 2;
  return q;
}

LATHE_DEVICE u32 tile_word(const TileQuad& q, int chunk, int word) {
  return load_u32(q.tile + chunk * kTileChunk + q.lane * 16 + 4 * word);
}

// The four codes, one per byte.
template <class Tiles>
LATHE_DEVICE u32 tile_codes(const TileQuad& q, int subs) {
  if (Tiles::code_bits == 8) return tile_word(q, q.sub, q.word);
  if (Tiles::code_bits == 6) {
    u32 words[3];
    LATHE_UNROLL(3)
    for (int j = 0; j < 3; ++j) words[j] = tile_word(q, (3 * q.sub + j) / 4, (3 * q.sub + j) % 4);
    if (q.word < 3)
      return (q.word == 0 ? words[0] : q.word == 1 ? words[1] : words[2]) & 0x3f3f3f3fu;
    return (words[0] >> 2 & 0x30303030u) | (words[1] >> 4 & 0x0c0c0c0cu) |
           (words[2] >> 6 & 0x03030303u);
  }
  const u32 odd = static_cast<u32>(q.sub % 2) * 4;
  const u32 low = tile_word(q, q.sub / 2, q.word) >> odd & 0x0f0f0f0fu;
  if (Tiles::code_bits == 4) return low;
  const u32 fifths = load_u32(q.tile + tile_nibble_bytes(subs) + q.lane * 2 * subs + q.sub / 2 * 4);
  return low | (fifths >> (static_cast<u32>(q.word) + odd) & 0x01010101u) << 4;
}

// Factor and summand of the codes.
template <class Raw, class Tiles>
LATHE_DEVICE void tile_scale(const TileQuad& q, int subs, f32& scale, f32& offset) {
  const u8* scales = q.tile + tile_code_bytes(Tiles::code_bits, subs);
  const int g = q.lane / 4, r = q.word % 2, pair = q.sub / 2, odd = q.sub % 2;
  if (Raw::block == 32) {
    const u8* half = scales + (g * (subs / 2) + pair) * 8 + r * 4 + odd * 2;
    scale = f16_to_f32(load_u16(half));
    offset = Raw::has_offset ? f16_to_f32(load_u16(half + 32 * subs)) : 0.0f;
  } else if (Tiles::code_bits == 6) {
    const i8* runs = reinterpret_cast<const i8*>(scales) + (4 * g + pair) * 8;
    scale = f16_to_f32(load_u16(scales + kTileDeltaAt + g * 4 + r * 2)) *
            static_cast<f32>(runs[r * 4 + odd * 2 + q.word / 2]);
    offset = 0.0f;
  } else {
    const u32 six = scales[(4 * g + pair) * 4 + 2 * r + odd];
    const u32 four = scales[kTileMinsAt + (4 * g + pair) * 2 + odd];
    const u32 min = (four >> (4 * r) & 15u) | (six >> 2 & 0x30u);
    const u32 halves = load_u32(scales + kTileHalvesAt + g * 8 + r * 4);
    scale = f16_to_f32(halves) * byte_to_f32(six & 63u, 0, 0.0f);
    offset = -(f16_to_f32(halves >> 16) * byte_to_f32(min, 0, 0.0f));
  }
}

// `zero` is the code that stands for 0. q8_0's codes are signed: with the top bit flipped they
// count from -128.
// Thread `index` of all gives four consecutive values to store(place, values).
template <class Raw, class Tiles, class Store>
LATHE_DEVICE void embed_tiles(const u8* table, const i32* token, int index, int k, int n, int subs,
                              f32 scale, f32 zero, Store store) {
  const int column = index * 4;
  if (column >= k) return;
  const TileQuad quad = tile_quad<Tiles>(table, embed_row(token, n), column, k, subs);
  const u32 flipped = Tiles::code_bits == 8 ? 0x80808080u : 0u;
  f32 q[4], factor, summand;
  bytes_to_f32(tile_codes<Tiles>(quad, subs) ^ flipped, zero, q);
  tile_scale<Raw, Tiles>(quad, subs, factor, summand);
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i)
    q[i] = scale * (Raw::has_offset ? fma(factor, q[i], summand) : factor * q[i]);
  store(column, f32x4{q[0], q[1], q[2], q[3]});
}

// f16 and bf16: lane l of a tile has `subs` values of each row from column l * subs on.
template <class Decoder>
LATHE_DEVICE void embed_half_tiles(const u8* table, const i32* token, f32* y, int k, int n,
                                   int subs, int warps, f32 scale) {
  const int i = block_x() * warps * kWarp + thread_index();
  if (i >= k) return;
  const i64 row = embed_row(token, n);
  const int in_tile = static_cast<int>(row % kTileRows), column = i % (kTileSub * subs);
  const i64 tile = row / kTileRows * (tile_subs_total(k) / subs) + i / (kTileSub * subs);
  const int rows = 8 / subs;  // of a chunk
  const int at = in_tile / rows * kTileChunk + column / subs * 16 +
                 (in_tile % rows * subs + column % subs) * Decoder::bytes;
  y[i] = scale * Decoder::value(table + tile * tile_code_bytes(HalfTiles::code_bits, subs) + at, 0);
}

// For each format its kernel, and the share of one thread in a persistent kernel.
#define LATHE_TILES_OP(name, Raw, Tiles, zero)                                                    \
  LATHE_OP name(const u8* table, const i32* token, f32* y, int k, int n, int subs, int warps,     \
                f32 scale) {                                                                      \
    embed_tiles<Raw, Tiles>(table, token, block_x() * warps * kWarp + thread_index(), k, n, subs, \
                            scale, zero, [=](int at, const f32x4& v) {                            \
                              *reinterpret_cast<f32x4*>(y + at) = v;                              \
                            });                                                                   \
  }                                                                                               \
  template <int = 0>                                                                              \
  LATHE_DEVICE void name##_share(const Exchange& e, const u8* table, const i32* token, f32* y,    \
                                 int index, int k, int n, int subs, f32 scale) {                  \
    embed_tiles<Raw, Tiles>(table, token, index, k, n, subs, scale, zero,                         \
                            [=](int at, const f32x4& v) {                                         \
                              send(e, y + at, v.x);                                               \
                              send(e, y + at + 1, v.y);                                           \
                              send(e, y + at + 2, v.z);                                           \
                              send(e, y + at + 3, v.w);                                           \
                            });                                                                   \
  }

LATHE_TILES_OP(embed_tiles_q4_0, Q4_0, Q4_0Tiles, 8.0f)
LATHE_TILES_OP(embed_tiles_q4_1, Q4_1, Q4_1Tiles, 0.0f)
LATHE_TILES_OP(embed_tiles_q5_0, Q5_0, Q5_0Tiles, 16.0f)
LATHE_TILES_OP(embed_tiles_q5_1, Q5_1, Q5_1Tiles, 0.0f)
LATHE_TILES_OP(embed_tiles_q8_0, Q8_0, Q8_0Tiles, 128.0f)
LATHE_TILES_OP(embed_tiles_q4_k, Q4_K, Q4_KTiles, 0.0f)
LATHE_TILES_OP(embed_tiles_q5_k, Q5_K, Q5_KTiles, 0.0f)
LATHE_TILES_OP(embed_tiles_q6_k, Q6_K, Q6_KTiles, 32.0f)

LATHE_OP embed_tiles_f16(const u8* table, const i32* token, f32* y, int k, int n, int subs,
                         int warps, f32 scale) {
  embed_half_tiles<F16>(table, token, y, k, n, subs, warps, scale);
}
LATHE_OP embed_tiles_bf16(const u8* table, const i32* token, f32* y, int k, int n, int subs,
                          int warps, f32 scale) {
  embed_half_tiles<BF16>(table, token, y, k, n, subs, warps, scale);
}

}  // namespace lathe::dev
