// Owns the way from the codes of a tile (docs/weight-layout.md) to f16 operands A of the matrix
// units: for each pair of sub-blocks the words of a lane become numbers, eight times the weights.
//
// A word's codes become f16 exactly, by the mantissa of 1024 and more; then scale and offset are
// applied in f16 arithmetic, so that a weight has three roundings to 11 bits. Weights beyond 8000
// would be infinite.
//
// Where operands come with their means (ops/matmul_shapes.h), offsets are left to these: 1024 and
// the code becomes code times scale by one instruction, for 1024 scales are exact. To be finite
// they are of the weights themselves, and these of 4 bits below 950, of 5 below 1900.
#pragma once

#include "ops/formats.h"
#include "ops/launch_shapes.h"
#include "ops/tile_operands.h"

namespace lathe::dev {

enum class TileScales : int {
  blocks,   // one f16 per row and sub-block, and with an offset another
  super,    // q4_k, q5_k
  sixteen,  // q6_k: one per 16 values
};

template <class Tiles, TileScales kScales, int kZero, bool kAffine>
struct TileOperand {
  using Shape = Tiles;
  static constexpr TileScales scales = kScales;
  enum : int { zero = kZero, affine = kAffine, bits = Tiles::code_bits };
};
using OperandQ4_0 = TileOperand<Q4_0Tiles, TileScales::blocks, 8, false>;
using OperandQ4_1 = TileOperand<Q4_1Tiles, TileScales::blocks, 0, true>;
using OperandQ5_0 = TileOperand<Q5_0Tiles, TileScales::blocks, 16, false>;
using OperandQ5_1 = TileOperand<Q5_1Tiles, TileScales::blocks, 0, true>;
using OperandQ8_0 = TileOperand<Q8_0Tiles, TileScales::blocks, 128, false>;
using OperandQ4_K = TileOperand<Q4_KTiles, TileScales::super, 0, true>;
using OperandQ5_K = TileOperand<Q5_KTiles, TileScales::super, 0, true>;
using OperandQ6_K = TileOperand<Q6_KTiles, TileScales::sixteen, 32, false>;

// Where the codes of a pair of sub-blocks begin, matmul_pair_bytes() of them. Those of q6_k share a
// chunk with the pair beside.
LATHE_DEVICE int pair_at(int bits, int pair) {
  return bits == 6 ? 3 * pair / 2 * kTileChunk : pair * matmul_pair_bytes(bits);
}

// Pairs of f16. An integer below 1024 and the bits of 1024 are their sum.
enum : u32 {
  kHalf1024 = 0x64006400u,
  kHalf64 = 0x54005400u,
  kHalf2 = 0x40004000u,
  kRaised64 = 0xc8003000u,    // 1 / 8, -64 / 8
  kRaised1024 = 0xd8003000u,  // 1 / 8, -1024 / 8
  kHalf8 = 0x48004800u,
  kHalfMinus9216 = 0xf080f080u,  // -8 (1024 + 128)
};

// The factors of a lane's rows g and g + 8, word 2 r + p of row r and sub-block 2 t + p: scale and
// offset as a pair, or for q6_k the scales of both halves. Only their last product is rounded.
template <class Tile>
LATHE_DEVICE void lane_scales(const u8* tail, int subs, u32 (&out)[4]) {
  const int lane = lane_index(), g = lane / 4;
  const u8* p = tail + (Tile::bits == 5 ? 64 * subs : 0);
  if constexpr (Tile::scales == TileScales::super) {
    const SixBits bits = six_bits(load_u32(p + lane * 4), load_u16(p + kTileMinsAt + lane * 2));
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const u32 both =
          byte_permute(bits.scales, bits.mins, 0x4400u + 0x1111u * static_cast<u32>(i));
      // Eight times the scale, and minus eight times the min.
      const u32 eight =
          half2_fma(masked_or(both, 0x00ff00ffu, kHalf1024), 0xc8004800u, 0x7000f000u);
      out[i] = half2_multiply(eight, load_u32(p + kTileHalvesAt + g * 8 + i / 2 * 4));
    }
  } else if constexpr (Tile::scales == TileScales::sixteen) {
    LATHE_UNROLL(2)
    for (int r = 0; r < 2; ++r) {
      const u32 d = lower_half2(load_u16(p + kTileDeltaAt + g * 4 + 2 * r));
      const u32 runs = load_u32(p + lane * 8 + 4 * r) ^ 0x80808080u;
      LATHE_UNROLL(2)
      for (int c = 0; c < 2; ++c) {
        const u32 both = byte_permute(runs, kHalf1024, c == 0 ? 0x5150u : 0x5352u);
        out[2 * r + c] = half2_multiply(half2_fma(both, kHalf8, kHalfMinus9216), d);
      }
    }
  } else {
    // Lanes beyond the tile's sub-blocks take others' and are not asked for them.
    const u8* at = p + (g * (subs / 2) + min_int(lane % 4, subs / 2 - 1)) * 8;
    LATHE_UNROLL(2)
    for (int r = 0; r < 2; ++r) {
      const u32 d = load_u32(at + 4 * r);
      const u32 m = Tile::affine ? load_u32(at + 32 * subs + 4 * r) : 0;
      out[2 * r] = half2_multiply(byte_permute(d, m, 0x5410u), kHalf8);
      out[2 * r + 1] = half2_multiply(byte_permute(d, m, 0x7632u), kHalf8);
    }
  }
}

// Where offsets are left to means. Operand A of them, 16 times each: for both means of sub-block 2
// t that of row g, then of row g + 8, and the same for sub-block 2 t + 1. `there`: the tile has
// these.
LATHE_DEVICE void offset_operand(const u32 (&scales)[4], bool there, u32 (&a)[4]) {
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i)
    a[i] = there ? half2_multiply(upper_half2(scales[i % 2 * 2 + i / 2]), kHalf2) : 0;
}
// And what takes the places of offsets: minus what codes have been raised by, times the scale.
template <class Tile>
LATHE_DEVICE void raise_scales(u32 (&scales)[4]) {
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i)
    scales[i] = half2_multiply(lower_half2(scales[i]),
                               Tile::bits == 4 && i % 2 == 1 ? kRaised64 : kRaised1024);
}

// What a lane reads of a pair: its words of both sub-blocks as they lie, and the fifth bits.
struct PairWords {
  u32 word[8];
  u32 fifth;
};
template <class Tile>
LATHE_DEVICE void load_pair(const u8* codes, const u8* tail, int subs, int pair, PairWords& out) {
  const u8* at = codes + lane_index() * 16;
  if constexpr (Tile::bits == 6) {
    LATHE_UNROLL(3)
    for (int j = 0; j < 3; ++j) {
      const int first = 2 * j + 2 * (pair & 1);
      const u64 two = *reinterpret_cast<const u64*>(at + first / 4 * kTileChunk + first % 4 * 4);
      out.word[2 * j] = static_cast<u32>(two);
      out.word[2 * j + 1] = static_cast<u32>(two >> 32);
    }
  } else {
    LATHE_UNROLL(2)
    for (int p = 0; p < (Tile::bits == 8 ? 2 : 1); ++p) {
      const u32x4 w = *reinterpret_cast<const u32x4*>(at + p * kTileChunk);
      out.word[4 * p] = w.x;
      out.word[4 * p + 1] = w.y;
      out.word[4 * p + 2] = w.z;
      out.word[4 * p + 3] = w.w;
    }
  }
  if constexpr (Tile::bits == 5) out.fifth = load_u32(tail + lane_index() * 2 * subs + 4 * pair);
}

// The four codes of word v of sub-block p, without signs.
template <class Tile>
LATHE_DEVICE u32 codes_of(const PairWords& in, int p, int v) {
  if constexpr (Tile::bits == 8) {
    return in.word[4 * p + v] ^ 0x80808080u;
  } else if constexpr (Tile::bits == 6) {
    const u32* w = in.word + 3 * p;
    if (v < 3) return w[v] & 0x3f3f3f3fu;
    return (w[0] >> 2 & 0x30303030u) | (w[1] >> 4 & 0x0c0c0c0cu) | (w[2] >> 6 & 0x03030303u);
  } else {
    static_assert(Tile::bits == 5, "codes of four bits are taken out of their words in pairs");
    return (in.word[v] >> (4 * p) & 0x0f0f0f0fu) |
           ((p == 0 ? in.fifth << (4 - v) : in.fifth >> v) & 0x10101010u);
  }
}

// The first and third code of word v of sub-block p as a pair, raised by 1024, or by 64;
// `odd`: the second and fourth.
template <class Tile>
LATHE_DEVICE u32 raised_pair(const PairWords& in, int p, int v, bool odd) {
  if constexpr (Tile::bits == 4) {
    const u32 word = odd ? in.word[v] >> 8 : in.word[v];
    return p == 0 ? masked_or(word, 0x000f000fu, kHalf1024) : masked_or(word, 0x00f000f0u, kHalf64);
  } else {
    return byte_permute(codes_of<Tile>(in, p, v), kHalf1024, odd ? 0x5351u : 0x5250u);
  }
}

// The same exactly and less the format's zero.
template <class Tile>
LATHE_DEVICE u32 code_pair(const PairWords& in, int p, int v, bool odd) {
  constexpr u32 kZero = 0x00010001u * static_cast<u32>(Tile::zero);
  const u32 raised = raised_pair<Tile>(in, p, v, odd);
  return half2_add(raised,
                   Tile::bits == 4 && p == 1 ? 0xd400d400u + 16 * kZero : 0xe400e400u + kZero);
}
template <class Tile>
LATHE_DEVICE u32 scaled(u32 codes, u32 scale, u32 offset) {
  if constexpr (Tile::affine != 0) return half2_fma(codes, scale, offset);
  return half2_multiply(codes, scale);
}

// Operand A of sub-block p for both halves of 16 values. `scales`: of rows g and g + 8 for this
// sub-block, as lane_scales() has them, or where `raised` raise_scales().
template <class Tile>
LATHE_DEVICE void tile_operand(const PairWords& in, int p, const u32 (&scales)[2], u32 (&a)[2][4],
                               bool raised = false) {
  LATHE_UNROLL(2)
  for (int r = 0; r < 2; ++r) {
    const u32 lower = lower_half2(scales[r]), upper = upper_half2(scales[r]);
    LATHE_UNROLL(2)
    for (int h = 0; h < 2; ++h) {
      const u32 scale = Tile::scales == TileScales::sixteen && h == 1 ? upper : lower;
      LATHE_UNROLL(2)
      for (int c = 0; c < 2; ++c) {
        const int v = r + 2 * h;
        const u32 codes =
            raised ? raised_pair<Tile>(in, p, v, c == 1) : code_pair<Tile>(in, p, v, c == 1);
        a[h][2 * c + r] = scaled<Tile>(codes, scale, upper);
      }
    }
  }
}

}  // namespace lathe::dev
