// Owns the step from the blocks of a model file to tiles, which is taken once, when a matrix is
// uploaded. A warp writes a tile; each lane gathers what it will read of it later.
//
// Rows and sub-blocks beyond the matrix become zero bits. docs/weight-layout.md has the layout.
#pragma once

#include "ops/formats.h"
#include "ops/tile_shapes.h"

namespace lathe::dev {

// What a lane takes of a tile: rows g and g + 8, and of each 16 values the four from 4t on.
struct TileLane {
  const u8* row[2];  // where the tile's part of the two rows begins
  bool has[2];       // whether the matrix has them
  int subs;          // sub-blocks that the matrix has here
  int lane, g, t;
  u8* tile;
};

// The tile of this warp, -1 when there is none.
LATHE_DEVICE int retile_tile(int k, int n, int subs, int warps) {
  const int tile = block_x() * warps + warp_index();
  return tile < tile_row_tiles(n) * (tile_subs_total(k) / subs) ? tile : -1;
}

template <class Raw, class Tiles>
LATHE_DEVICE TileLane tile_lane(const u8* blocks, u8* tiles, int tile, int k, int n, int subs) {
  TileLane p;
  p.lane = lane_index();
  p.g = p.lane / 4;
  p.t = p.lane % 4;
  p.tile = tiles + static_cast<i64>(tile) * tile_bytes(Tiles::code_bits, Tiles::scale_bytes, subs);
  const int across = tile_subs_total(k) / subs, k_tile = tile % across;
  const i64 row_bytes = static_cast<i64>(k / Raw::block) * Raw::bytes;
  const i64 offset = static_cast<i64>(k_tile) * (subs * kTileSub / Raw::block) * Raw::bytes;
  LATHE_UNROLL(2)
  for (int r = 0; r < 2; ++r) {
    const int row = tile / across * kTileRows + p.g + 8 * r;
    p.has[r] = n % kTileRows == 0 || row < n;
    p.row[r] = blocks + row * row_bytes + offset;
  }
  p.subs = k % (2 * kTileSub) == 0 ? subs : min_int(subs, k / kTileSub - k_tile * subs);
  return p;
}

// Bytes at `at` of the part of row r that sub-block `sub` belongs to, or zeros without one.
template <class Raw>
LATHE_DEVICE u32 raw_u32(const TileLane& p, int r, int sub, int at) {
  if (!p.has[r] || sub >= p.subs) return 0;
  const u8* from = p.row[r] + at;
  if (Raw::bytes % 4 == 0) return load_u32(from);
  if (Raw::bytes % 2 == 0) return load_u32_align2(from);
  return from[0] | static_cast<u32>(from[1]) << 8 | static_cast<u32>(from[2]) << 16 |
         static_cast<u32>(from[3]) << 24;
}
LATHE_DEVICE u32 raw_u16(const TileLane& p, int r, int sub, int at) {
  return p.has[r] && sub < p.subs ? load_u16(p.row[r] + at) : 0;
}
LATHE_DEVICE u32 raw_u8(const TileLane& p, int r, int sub, int at) {
  return p.has[r] && sub < p.subs ? p.row[r][at] : 0;
}

LATHE_DEVICE void store_u32(u8* p, u32 v) {
  *reinterpret_cast<u32*>(p) = v;
}
LATHE_DEVICE void store_u64(u8* p, u32 low, u32 high) {
  *reinterpret_cast<u32x2*>(p) = {low, high};
}
LATHE_DEVICE void store_chunk(u8* section, int chunk, int lane, const u32* words) {
  const u32x4 v = {words[0], words[1], words[2], words[3]};
  *reinterpret_cast<u32x4*>(section + chunk * kTileChunk + lane * 16) = v;
}

// Bit i of the low four bits of `bits` as bit 0 of byte i.
LATHE_DEVICE u32 spread_bits(u32 bits) {
  return (bits & 15u) * 0x00204081u & 0x01010101u;
}

// Of the pair i of sub-blocks, for row r: words of four low codes in the low nibbles (sub-block 2i)
// and the high ones (2i + 1), for both halves of the sub-blocks.
template <class Raw>
LATHE_DEVICE void raw_nibbles(const TileLane& p, int r, int i, u32& first, u32& second) {
  if (Raw::block == 256 && Raw::has_offset) {  // q4_k, q5_k: as they stand in the block
    const int at = Raw::bytes - 128 + 32 * i + 4 * p.t;
    first = raw_u32<Raw>(p, r, 2 * i, at);
    second = raw_u32<Raw>(p, r, 2 * i, at + 16);
  } else {
    const int stride = Raw::block == 256 ? 16 : int{Raw::bytes};
    const int at = (Raw::block == 256 ? 8 : Raw::bytes - 16) + 2 * i * stride + 4 * p.t;
    const u32 even = raw_u32<Raw>(p, r, 2 * i, at);
    const u32 odd = raw_u32<Raw>(p, r, 2 * i + 1, at + stride);
    first = (even & 0x0f0f0f0fu) | (odd & 0x0f0f0f0fu) << 4;
    second = (even >> 4 & 0x0f0f0f0fu) | (odd & 0xf0f0f0f0u);
  }
}

// The fifth bits of the same codes, as bits 0 and 4 of each byte.
template <class Raw>
LATHE_DEVICE void raw_fifths(const TileLane& p, int r, int i, u32& first, u32& second) {
  if (Raw::block == 256) {
    const u32 shift = static_cast<u32>(2 * i);
    const u32 a = raw_u32<Raw>(p, r, 2 * i, 16 + 4 * p.t) >> shift;
    const u32 b = raw_u32<Raw>(p, r, 2 * i, 32 + 4 * p.t) >> shift;
    first = (a & 0x01010101u) | (a & 0x02020202u) << 3;
    second = (b & 0x01010101u) | (b & 0x02020202u) << 3;
  } else {
    const int at = 2 * i * Raw::bytes + Raw::bytes - 20;
    const u32 shift = static_cast<u32>(4 * p.t);
    const u32 even = raw_u32<Raw>(p, r, 2 * i, at) >> shift;
    const u32 odd = raw_u32<Raw>(p, r, 2 * i + 1, at + Raw::bytes) >> shift;
    first = spread_bits(even) | spread_bits(odd) << 4;
    second = spread_bits(even >> 16) | spread_bits(odd >> 16) << 4;
  }
}

template <class Raw>
LATHE_DEVICE void retile_nibbles(const TileLane& p, int subs) {
  LATHE_UNROLL(4)
  for (int i = 0; i < subs / 2; ++i) {
    u32 words[4];
    raw_nibbles<Raw>(p, 0, i, words[0], words[2]);
    raw_nibbles<Raw>(p, 1, i, words[1], words[3]);
    store_chunk(p.tile, i, p.lane, words);
  }
}

template <class Raw>
LATHE_DEVICE void retile_fifths(const TileLane& p, u8* section, int subs) {
  LATHE_UNROLL(4)
  for (int i = 0; i < subs / 2; ++i) {
    u32 words[4];
    raw_fifths<Raw>(p, 0, i, words[0], words[2]);
    raw_fifths<Raw>(p, 1, i, words[1], words[3]);
    store_u32(section + p.lane * 2 * subs + 4 * i,
              words[0] | words[1] << 1 | words[2] << 2 | words[3] << 3);
  }
}

// The half at `at` of each 32-value block: those of two rows and two sub-blocks per lane.
template <class Raw>
LATHE_DEVICE void retile_halves(const TileLane& p, u8* section, int subs, int at) {
  if (p.t >= subs / 2) return;
  u32 pair[2];
  LATHE_UNROLL(2)
  for (int r = 0; r < 2; ++r) {
    const int sub = 2 * p.t;
    pair[r] = raw_u16(p, r, sub, sub * Raw::bytes + at) |
              raw_u16(p, r, sub + 1, (sub + 1) * Raw::bytes + at) << 16;
  }
  store_u64(section + (p.g * (subs / 2) + p.t) * 8, pair[0], pair[1]);
}

// Scales and mins of q4_k and q5_k: two sub-blocks of two rows per lane.
template <class Raw>
LATHE_DEVICE void retile_k_scales(const TileLane& p, u8* section) {
  u32 scales = 0, mins = 0;
  LATHE_UNROLL(2)
  for (int r = 0; r < 2; ++r) {
    const u32 w0 = raw_u32<Raw>(p, r, 0, 4), w1 = raw_u32<Raw>(p, r, 0, 8),
              w2 = raw_u32<Raw>(p, r, 0, 12);
    // Sub-blocks 0-3 have six bits in place; 4-7 have four bits in w2 and two on top of w0, w1.
    const u32 four_scales =
        p.t < 2 ? w0 & 0x3f3f3f3fu : (w2 & 0x0f0f0f0fu) | (w0 >> 2 & 0x30303030u);
    const u32 four_mins =
        p.t < 2 ? w1 & 0x3f3f3f3fu : (w2 >> 4 & 0x0f0f0f0fu) | (w1 >> 2 & 0x30303030u);
    const u32 shift = static_cast<u32>(p.t % 2) * 16;
    scales |= (four_scales >> shift & 0xffffu) << (16 * r);
    mins |= (four_mins >> shift & 0xffffu) << (16 * r);
  }
  store_u32(section + p.lane * 4, scales | (mins & 0x30303030u) << 2);
  const u32 low = (mins & 0x0f0fu) | (mins >> 16 & 0x0f0fu) << 4;
  const u32 next = shuffle_xor(low, 1);
  if (p.t % 2 == 0) store_u32(section + kTileMinsAt + p.lane * 2, low | next << 16);
  // d and dmin of row g from lane t = 0, of row g + 8 from t = 1.
  const u32 first = raw_u32<Raw>(p, 0, 0, 0), second = raw_u32<Raw>(p, 1, 0, 0);
  if (p.t < 2) store_u32(section + kTileHalvesAt + p.g * 8 + p.t * 4, p.t == 0 ? first : second);
}

// The formats of four and five bits: their codes, then what is theirs of scales.
template <class Raw, class Tiles>
LATHE_DEVICE u8* retile_codes(const TileLane& p, int subs) {
  retile_nibbles<Raw>(p, subs);
  if (Tiles::code_bits == 5) retile_fifths<Raw>(p, p.tile + tile_nibble_bytes(subs), subs);
  return p.tile + tile_code_bytes(Tiles::code_bits, subs);
}
template <class Raw, class Tiles>
LATHE_DEVICE void retile_small(const TileLane& p, int subs) {
  u8* scales = retile_codes<Raw, Tiles>(p, subs);
  if (Raw::block == 256) {
    retile_k_scales<Raw>(p, scales);
  } else {
    retile_halves<Raw>(p, scales, subs, 0);
    if (Raw::has_offset) retile_halves<Raw>(p, scales + 32 * subs, subs, 2);
  }
}

// mxfp4: an exponent per block.
template <class Raw, class Tiles>
LATHE_DEVICE void retile_mxfp4_tile(const TileLane& p, int subs) {
  u8* scales = retile_codes<Raw, Tiles>(p, subs);
  if (p.t >= subs / 2) return;
  u32 four = 0;
  LATHE_UNROLL(4)
  for (int j = 0; j < 4; ++j) {
    const int sub = 2 * p.t + j % 2;
    four |= raw_u8(p, j / 2, sub, sub * Raw::bytes) << (8 * j);
  }
  store_u32(scales + (p.g * (subs / 2) + p.t) * 4, four);
}

// iq4_xs: of each lane's four scales the low nibbles, then the high pairs, then d.
template <class Raw, class Tiles>
LATHE_DEVICE void retile_iq4_xs_tile(const TileLane& p, int subs) {
  u8* scales = retile_codes<Raw, Tiles>(p, subs);
  const u32 low0 = raw_u8(p, 0, 0, 4 + p.t), low1 = raw_u8(p, 1, 0, 4 + p.t);
  const u32 low = (low0 & 15u) | (low1 & 15u) << 4 | low0 >> 4 << 8 | low1 >> 4 << 12;
  const u32 shift = static_cast<u32>(4 * p.t);
  const u32 high = (raw_u16(p, 0, 0, 2) >> shift & 15u) | (raw_u16(p, 1, 0, 2) >> shift & 15u) << 4;
  *reinterpret_cast<u16*>(scales + p.lane * 2) = static_cast<u16>(low);
  scales[kTileXsHighAt + p.lane] = static_cast<u8>(high);
  const u32 delta = raw_u16(p, 0, 0, 0) | raw_u16(p, 1, 0, 0) << 16;
  if (p.t == 0) store_u32(scales + kTileXsDeltaAt + p.g * 4, delta);
}

// The words of a section of the blocks that are a chunk as they stand: bytes 16h + 4t ... of both
// rows.
template <class Raw>
LATHE_DEVICE void retile_as_it_is(const TileLane& p, int at, int chunk) {
  u32 words[4];
  LATHE_UNROLL(4)
  for (int v = 0; v < 4; ++v) words[v] = raw_u32<Raw>(p, v % 2, 0, at + v / 2 * 16 + 4 * p.t);
  store_chunk(p.tile, chunk, p.lane, words);
}

// q2_k: scales and mins of two sub-blocks as they stand, d and dmin.
template <class Raw, class Tiles>
LATHE_DEVICE void retile_two_bits(const TileLane& p, int subs) {
  retile_as_it_is<Raw>(p, 16, 0);
  retile_as_it_is<Raw>(p, 48, 1);
  u8* scales = p.tile + tile_code_bytes(Tiles::code_bits, subs);
  store_u64(scales + p.lane * 8, raw_u32<Raw>(p, 0, 0, 4 * p.t), raw_u32<Raw>(p, 1, 0, 4 * p.t));
  const u32 first = raw_u32<Raw>(p, 0, 0, 80), second = raw_u32<Raw>(p, 1, 0, 80);
  if (p.t == 0) store_u64(scales + kTileDeltaAt + p.g * 8, first, second);
}

// q3_k: third bits last; of each lane's eight scales the low nibbles, then the high pairs, then d.
template <class Raw, class Tiles>
LATHE_DEVICE void retile_three_bits(const TileLane& p, int subs) {
  retile_as_it_is<Raw>(p, 32, 0);
  retile_as_it_is<Raw>(p, 64, 1);
  retile_as_it_is<Raw>(p, 0, 2);
  u8* scales = p.tile + tile_code_bytes(Tiles::code_bits, subs);
  u32 low = 0, high = 0;
  LATHE_UNROLL(2)
  for (int r = 0; r < 2; ++r) {
    // Of runs 4t ... 4t + 3: low nibbles of four bytes, high pairs of four.
    const u32 nibbles = raw_u32<Raw>(p, r, 0, 96 + p.t % 2 * 4) >> (p.t / 2 * 4) & 0x0f0f0f0fu;
    const u32 pairs = raw_u32<Raw>(p, r, 0, 104) >> (2 * p.t) & 0x03030303u;
    low |= nibbles << (4 * r);
    // Run b to bits 8 (b % 2) + 2 (b / 2).
    high |= ((pairs & 0x0303u) | (pairs >> 14 & 0x0c0cu)) << (4 * r);
  }
  store_u32(scales + p.lane * 4, low);
  *reinterpret_cast<u16*>(scales + kTileQ3HighAt + p.lane * 2) = static_cast<u16>(high);
  const u32 delta = raw_u16(p, 0, 0, 108) | raw_u16(p, 1, 0, 108) << 16;
  if (p.t == 0) store_u32(scales + kTileQ3DeltaAt + p.g * 4, delta);
}

// q8_0.
template <class Raw, class Tiles>
LATHE_DEVICE void retile_bytes(const TileLane& p, int subs) {
  LATHE_UNROLL(8)
  for (int s = 0; s < subs; ++s) {
    u32 words[4];
    LATHE_UNROLL(4)
    for (int v = 0; v < 4; ++v)
      words[v] = raw_u32<Raw>(p, v % 2, s, s * Raw::bytes + 2 + v / 2 * 16 + 4 * p.t);
    store_chunk(p.tile, s, p.lane, words);
  }
  retile_halves<Raw>(p, p.tile + tile_code_bytes(Tiles::code_bits, subs), subs, 0);
}

// q6_k: low nibbles and pairs of high bits of a half block of 128 values make 12 words.
template <class Raw, class Tiles>
LATHE_DEVICE void retile_six_bits(const TileLane& p, int subs) {
  LATHE_UNROLL(2)
  for (int half = 0; half < 2; ++half) {
    u32 low[2][4], high[4], words[12];
    LATHE_UNROLL(4)
    for (int v = 0; v < 4; ++v) {
      const int at = v / 2 * 16 + 4 * p.t;
      low[0][v] = raw_u32<Raw>(p, v % 2, 0, 64 * half + at);
      low[1][v] = raw_u32<Raw>(p, v % 2, 0, 64 * half + 32 + at);
      high[v] = raw_u32<Raw>(p, v % 2, 0, 128 + 32 * half + at);
    }
    LATHE_UNROLL(4)
    for (int s = 0; s < 4; ++s) {
      u32 codes[4];
      LATHE_UNROLL(4)
      for (int v = 0; v < 4; ++v)
        codes[v] = (low[s % 2][v] >> (s / 2 * 4) & 0x0f0f0f0fu) | (high[v] >> (2 * s) & 0x03030303u)
                                                                      << 4;
      LATHE_UNROLL(3)
      for (int j = 0; j < 3; ++j)
        words[3 * s + j] = codes[j] | (codes[3] << (2 + 2 * j) & 0xc0c0c0c0u);
    }
    LATHE_UNROLL(3)
    for (int c = 0; c < 3; ++c) store_chunk(p.tile, 3 * half + c, p.lane, words + 4 * c);
  }
  u8* scales = p.tile + tile_code_bytes(Tiles::code_bits, subs);
  const int at = 192 + 4 * p.t;  // the four scales of sub-blocks 2t and 2t + 1
  store_u64(scales + p.lane * 8, raw_u32<Raw>(p, 0, 0, at), raw_u32<Raw>(p, 1, 0, at));
  const u32 delta = raw_u16(p, 0, 0, 208) | raw_u16(p, 1, 0, 208) << 16;
  if (p.t == 0) store_u32(scales + kTileDeltaAt + p.g * 4, delta);
}

#define LATHE_RETILE_OP(name, body, Raw, Tiles)                                                    \
  LATHE_OP name(const u8* blocks, u8* tiles, int k, int n, int subs, int warps) {                  \
    const int tile = retile_tile(k, n, subs, warps);                                               \
    if (tile >= 0) body<Raw, Tiles>(tile_lane<Raw, Tiles>(blocks, tiles, tile, k, n, subs), subs); \
  }

LATHE_RETILE_OP(retile_q4_0, retile_small, Q4_0, Q4_0Tiles)
LATHE_RETILE_OP(retile_q4_1, retile_small, Q4_1, Q4_1Tiles)
LATHE_RETILE_OP(retile_q5_0, retile_small, Q5_0, Q5_0Tiles)
LATHE_RETILE_OP(retile_q5_1, retile_small, Q5_1, Q5_1Tiles)
LATHE_RETILE_OP(retile_q8_0, retile_bytes, Q8_0, Q8_0Tiles)
LATHE_RETILE_OP(retile_q4_k, retile_small, Q4_K, Q4_KTiles)
LATHE_RETILE_OP(retile_q5_k, retile_small, Q5_K, Q5_KTiles)
LATHE_RETILE_OP(retile_q6_k, retile_six_bits, Q6_K, Q6_KTiles)
LATHE_RETILE_OP(retile_q2_k, retile_two_bits, Q2_K, Q2_KTiles)
LATHE_RETILE_OP(retile_q3_k, retile_three_bits, Q3_K, Q3_KTiles)
LATHE_RETILE_OP(retile_iq4_nl, retile_small, IQ4_NL, IQ4_NLTiles)
LATHE_RETILE_OP(retile_iq4_xs, retile_iq4_xs_tile, IQ4_XS, IQ4_XSTiles)
LATHE_RETILE_OP(retile_mxfp4, retile_mxfp4_tile, MXFP4, MXFP4Tiles)

// Two values from column `at` of a row; columns from k on are zero.
LATHE_DEVICE u32 half_pair(const u8* row, int at, int k) {
  const u8* p = row + static_cast<i64>(at) * 2;
  if (k % 2 == 0) return at < k ? load_u32(p) : 0;
  return (at < k ? load_u16(p) : 0) | (at + 1 < k ? load_u16(p + 2) : 0) << 16;
}

// f16 and bf16: chunk 2s + h has the four values of half h of sub-block s that a lane has of each
// of its two rows.
LATHE_OP retile_half(const u8* blocks, u8* tiles, int k, int n, int subs, int warps) {
  const int tile = retile_tile(k, n, subs, warps);
  if (tile < 0) return;
  const int across = tile_subs_total(k) / subs, lane = lane_index();
  const int first = tile / across * kTileRows + lane / 4;
  const int column = tile % across * subs * kTileSub + 4 * (lane % 4);
  u8* out = tiles + static_cast<i64>(tile) * tile_code_bytes(HalfTiles::code_bits, subs);
  LATHE_UNROLL(4)
  for (int c = 0; c < 2 * subs; ++c) {
    u32 words[4];
    LATHE_UNROLL(4)
    for (int w = 0; w < 4; ++w) {
      const int row = first + 8 * (w / 2);
      words[w] = n % kTileRows == 0 || row < n ? half_pair(blocks + static_cast<i64>(row) * k * 2,
                                                           column + 16 * c + 2 * (w % 2), k)
                                               : 0;
    }
    store_chunk(out, c, lane, words);
  }
}

}  // namespace lathe::dev
