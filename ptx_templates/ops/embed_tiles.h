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
  if (Tiles::code_bits < 4) {
    const u32 pairs = tile_word(q, q.sub / 4, q.word) >> (q.sub % 4 * 2) & 0x03030303u;
    if (Tiles::code_bits == 2) return pairs;
    return pairs | (tile_word(q, 2, q.word) >> q.sub & 0x01010101u) << 2;
  }
  const u32 odd = static_cast<u32>(q.sub % 2) * 4;
  const u32 low = tile_word(q, q.sub / 2, q.word) >> odd & 0x0f0f0f0fu;
  if (Tiles::code_bits == 4) return low;
  const u32 fifths = load_u32(q.tile + tile_nibble_bytes(subs) + q.lane * 2 * subs + q.sub / 2 * 4);
  return low | (fifths >> (static_cast<u32>(q.word) + odd) & 0x01010101u) << 4;
}

// Factor and summand of the codes. `scales` are those of the tile; the first argument only says of
// which format.
template <class Raw>
LATHE_DEVICE void tile_scale(Raw, const u8* scales, const TileQuad& q, int subs, f32& scale,
                             f32& offset) {
  const int g = q.lane / 4, r = q.word % 2, pair = q.sub / 2, odd = q.sub % 2;
  if (Raw::block == 32) {
    const u8* half = scales + (g * (subs / 2) + pair) * 8 + r * 4 + odd * 2;
    scale = f16_to_f32(load_u16(half));
    offset = Raw::has_offset ? f16_to_f32(load_u16(half + 32 * subs)) : 0.0f;
  } else {  // q4_k, q5_k
    const u32 six = scales[(4 * g + pair) * 4 + 2 * r + odd];
    const u32 four = scales[kTileMinsAt + (4 * g + pair) * 2 + odd];
    const u32 min = (four >> (4 * r) & 15u) | (six >> 2 & 0x30u);
    const u32 halves = load_u32(scales + kTileHalvesAt + g * 8 + r * 4);
    scale = f16_to_f32(halves) * byte_to_f32(six & 63u, 0, 0.0f);
    offset = -(f16_to_f32(halves >> 16) * byte_to_f32(min, 0, 0.0f));
  }
}
LATHE_DEVICE void tile_scale(Q6_K, const u8* scales, const TileQuad& q, int, f32& scale, f32&) {
  const int g = q.lane / 4, r = q.word % 2, pair = q.sub / 2, odd = q.sub % 2;
  const i8* runs = reinterpret_cast<const i8*>(scales) + (4 * g + pair) * 8;
  scale = f16_to_f32(load_u16(scales + kTileDeltaAt + g * 4 + r * 2)) *
          static_cast<f32>(runs[r * 4 + odd * 2 + q.word / 2]);
}
LATHE_DEVICE void tile_scale(Q2_K, const u8* scales, const TileQuad& q, int, f32& scale,
                             f32& offset) {
  const int g = q.lane / 4, r = q.word % 2, pair = q.sub / 2, odd = q.sub % 2;
  const u32 packed = scales[(4 * g + pair) * 8 + r * 4 + odd * 2 + q.word / 2];
  const u32 halves = load_u32(scales + kTileDeltaAt + g * 8 + r * 4);
  scale = f16_to_f32(halves) * byte_to_f32(packed & 15u, 0, 0.0f);
  offset = -(f16_to_f32(halves >> 16) * byte_to_f32(packed >> 4, 0, 0.0f));
}
LATHE_DEVICE void tile_scale(Q3_K, const u8* scales, const TileQuad& q, int, f32& scale, f32&) {
  const int g = q.lane / 4, r = q.word % 2, pair = q.sub / 2;
  const int run = q.sub % 2 * 2 + q.word / 2;  // of the lane's four
  const u32 low = scales[(4 * g + pair) * 4 + run];
  const u32 high = load_u16(scales + kTileQ3HighAt + (4 * g + pair) * 2);
  const u32 two = high >> (4 * r + 8 * (run % 2) + 2 * (run / 2)) & 3u;
  scale = f16_to_f32(load_u16(scales + kTileQ3DeltaAt + g * 4 + r * 2)) *
          byte_to_f32((low >> (4 * r) & 15u) | two << 4, 0, 32.0f);
}
LATHE_DEVICE void tile_scale(IQ4_XS, const u8* scales, const TileQuad& q, int, f32& scale, f32&) {
  const int g = q.lane / 4, r = q.word % 2, pair = q.sub / 2, odd = q.sub % 2;
  const u32 low = load_u16(scales + (4 * g + pair) * 2),
            high = scales[kTileXsHighAt + 4 * g + pair];
  const u32 six = (low >> (8 * odd + 4 * r) & 15u) | (high >> (4 * r + 2 * odd) & 3u) << 4;
  scale =
      f16_to_f32(load_u16(scales + kTileXsDeltaAt + g * 4 + r * 2)) * byte_to_f32(six, 0, 32.0f);
}
LATHE_DEVICE void tile_scale(MXFP4, const u8* scales, const TileQuad& q, int subs, f32& scale,
                             f32&) {
  const int g = q.lane / 4, r = q.word % 2;
  scale = half_of_power(scales[(g * (subs / 2) + q.sub / 2) * 4 + 2 * r + q.sub % 2]);
}

// The codes as numbers; q8_0's are signed and, with the top bit flipped, count from -128. So do
// the entries of the tables.
template <class Tiles, class Raw>
LATHE_DEVICE void tile_numbers(Raw, u32 codes, f32* q) {
  bytes_to_f32(codes ^ (Tiles::code_bits == 8 ? 0x80808080u : 0u),
               static_cast<f32>(int{Tiles::zero}), q);
}
template <class Raw>
LATHE_DEVICE void table_numbers(u32 codes, f32* q) {
  u32 entries, none;
  look_up(Raw::table(), codes, entries, none);
  bytes_to_f32(entries ^ 0x80808080u, 128.0f, q);
}
template <class Tiles>
LATHE_DEVICE void tile_numbers(IQ4_NL, u32 codes, f32* q) {
  table_numbers<IQ4_NL>(codes, q);
}
template <class Tiles>
LATHE_DEVICE void tile_numbers(IQ4_XS, u32 codes, f32* q) {
  table_numbers<IQ4_XS>(codes, q);
}
template <class Tiles>
LATHE_DEVICE void tile_numbers(MXFP4, u32 codes, f32* q) {
  table_numbers<MXFP4>(codes, q);
}

// The four values from `column` on, a multiple of four, of a row.
template <class Raw, class Tiles>
LATHE_DEVICE void tile_values(const u8* table, i64 row, int column, int k, int subs, f32* q) {
  const TileQuad quad = tile_quad<Tiles>(table, row, column, k, subs);
  f32 factor = 0, summand = 0;
  tile_numbers<Tiles>(Raw{}, tile_codes<Tiles>(quad, subs), q);
  tile_scale(Raw{}, quad.tile + tile_code_bytes(Tiles::code_bits, subs), quad, subs, factor,
             summand);
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) q[i] = Raw::has_offset ? fma(factor, q[i], summand) : factor * q[i];
}

// Thread `index` of all gives four consecutive values to store(place, values).
template <class Raw, class Tiles, class Store>
LATHE_DEVICE void embed_tiles(const u8* table, const i32* token, int index, int k, int n, int subs,
                              f32 scale, Store store) {
  const int column = index * 4;
  if (column >= k) return;
  f32 q[4];
  tile_values<Raw, Tiles>(table, embed_row(token, n), column, k, subs, q);
  store(column, f32x4{scale * q[0], scale * q[1], scale * q[2], scale * q[3]});
}

// f16 and bf16: the value at `column` of the row.
template <class Decoder>
LATHE_DEVICE f32 half_tile_value(const u8* table, i64 row, int column, int k, int subs) {
  const TileQuad q = tile_quad<HalfTiles>(table, row, column, k, subs);
  const int chunk = 2 * q.sub + q.word / 2;
  return Decoder::value(q.tile + chunk * kTileChunk + q.lane * 16 + q.word % 2 * 8, column % 4);
}

// For each format its kernel, and the share of one thread in a persistent kernel.
#define LATHE_TILES_OP(name, Raw, Tiles)                                                          \
  LATHE_OP name(const u8* table, const i32* token, f32* y, int k, int n, int subs, int warps,     \
                f32 scale) {                                                                      \
    f32* row = y + static_cast<i64>(block_y()) * k;                                               \
    embed_tiles<Raw, Tiles>(                                                                      \
        table, token + block_y(), block_x() * warps * kWarp + thread_index(), k, n, subs, scale,  \
        [=](int at, const f32x4& v) { *reinterpret_cast<f32x4*>(row + at) = v; });                \
  }                                                                                               \
  template <int = 0>                                                                              \
  LATHE_DEVICE void name##_share(const Exchange& e, const u8* table, const i32* token, f32* y,    \
                                 int index, int k, int n, int subs, f32 scale) {                  \
    embed_tiles<Raw, Tiles>(table, token, index, k, n, subs, scale, [=](int at, const f32x4& v) { \
      send(e, y + at, v.x);                                                                       \
      send(e, y + at + 1, v.y);                                                                   \
      send(e, y + at + 2, v.z);                                                                   \
      send(e, y + at + 3, v.w);                                                                   \
    });                                                                                           \
  }

LATHE_TILES_OP(embed_tiles_q4_0, Q4_0, Q4_0Tiles)
LATHE_TILES_OP(embed_tiles_q4_1, Q4_1, Q4_1Tiles)
LATHE_TILES_OP(embed_tiles_q5_0, Q5_0, Q5_0Tiles)
LATHE_TILES_OP(embed_tiles_q5_1, Q5_1, Q5_1Tiles)
LATHE_TILES_OP(embed_tiles_q8_0, Q8_0, Q8_0Tiles)
LATHE_TILES_OP(embed_tiles_q4_k, Q4_K, Q4_KTiles)
LATHE_TILES_OP(embed_tiles_q5_k, Q5_K, Q5_KTiles)
LATHE_TILES_OP(embed_tiles_q6_k, Q6_K, Q6_KTiles)
LATHE_TILES_OP(embed_tiles_q2_k, Q2_K, Q2_KTiles)
LATHE_TILES_OP(embed_tiles_q3_k, Q3_K, Q3_KTiles)
LATHE_TILES_OP(embed_tiles_iq4_nl, IQ4_NL, IQ4_NLTiles)
LATHE_TILES_OP(embed_tiles_iq4_xs, IQ4_XS, IQ4_XSTiles)
LATHE_TILES_OP(embed_tiles_mxfp4, MXFP4, MXFP4Tiles)

// The same for f16 and bf16, whose rows may have any length: a thread of the kernel has one value.
#define LATHE_HALVES_OP(name, Decoder)                                                            \
  LATHE_OP name(const u8* table, const i32* token, f32* y, int k, int n, int subs, int warps,     \
                f32 scale) {                                                                      \
    const int i = block_x() * warps * kWarp + thread_index();                                     \
    if (i < k)                                                                                    \
      y[static_cast<i64>(block_y()) * k + i] =                                                    \
          scale * half_tile_value<Decoder>(table, embed_row(token + block_y(), n), i, k, subs);   \
  }                                                                                               \
  template <int = 0>                                                                              \
  LATHE_DEVICE void name##_share(const Exchange& e, const u8* table, const i32* token, f32* y,    \
                                 int index, int k, int n, int subs, f32 scale) {                  \
    LATHE_UNROLL(4)                                                                               \
    for (int i = 4 * index; i < 4 * index + 4; ++i)                                               \
      if (i < k)                                                                                  \
        send(e, y + i, scale * half_tile_value<Decoder>(table, embed_row(token, n), i, k, subs)); \
  }

LATHE_HALVES_OP(embed_tiles_f16, F16)
LATHE_HALVES_OP(embed_tiles_bf16, BF16)

}  // namespace lathe::dev
