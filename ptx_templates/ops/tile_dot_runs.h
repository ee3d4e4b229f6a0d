// Owns the products of tiles whose scales are those of 16 values: q6_k, q2_k, q3_k. The halves of a
// sub-block have sums of their own, and the matrix instruction half as deep keeps them apart.
#pragma once

#include "ops/tile_operands.h"

namespace lathe::dev {

// A lane's words of half of a q6_k tile's codes: registers are few.
LATHE_DEVICE void load_q6_k(const u8* tile, int half, u32 (&words)[12]) {
  LATHE_UNROLL(3)
  for (int i = 0; i < 3; ++i) {
    const u32x4 w = tile_chunk(tile, 3 * half + i);
    words[4 * i] = w.x;
    words[4 * i + 1] = w.y;
    words[4 * i + 2] = w.z;
    words[4 * i + 3] = w.w;
  }
}
// The products of sub-block s of the half, on sums by sub-block parity and half of a sub-block.
LATHE_DEVICE void multiply_q6_k(const u32 (&words)[12], int half, int s, const Activation& x,
                                i32 (&c)[2][2][4]) {
  const u32 w0 = words[3 * s], w1 = words[3 * s + 1], w2 = words[3 * s + 2];
  // The fourth word's codes four times too large.
  const u32 a3 = (w0 & 0xc0c0c0c0u) | (w1 >> 2 & 0x30303030u) | (w2 >> 4 & 0x0c0c0c0cu);
  const int p = s & 1, i = 2 * half + s / 2;
  mma_u8_k16(c[p][0], w0 & 0x3f3f3f3fu, w1 & 0x3f3f3f3fu, x.b[i][p][0]);
  mma_u8_k16(c[p][1], w2 & 0x3f3f3f3fu, a3, x.b[i][p][1]);
}
LATHE_DEVICE void add_q6_k(const u8* tile, const i32 (&c)[2][2][4], const Activation& x, f32& row0,
                           f32& row1) {
  const int lane = lane_index(), g = lane / 4;
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
  enum : int { own_dot = 2 };  // in steps that pair_dot() takes apart
  LATHE_DEVICE void dot(const u8* tile, int, const Activation& x, f32& row0, f32& row1) {
    i32 c[2][2][4] = {};
    LATHE_UNROLL(2)
    for (int half = 0; half < 2; ++half) {
      u32 words[12];
      load_q6_k(tile, half, words);
      LATHE_UNROLL(4)
      for (int s = 0; s < 4; ++s) multiply_q6_k(words, half, s, x, c);
    }
    add_q6_k(tile, c, x, row0, row1);
  }
};

// Sums of the codes of q2_k or q3_k times activations, per sub-block parity and half: thirds[] are
// the words of the third bits. Two-bit codes stay where they are in their byte: those of sub-block
// s are 4^(s % 4) times too large.
template <bool kThirds>
LATHE_DEVICE void pair_sums(const u8* tile, const u32 (&thirds)[4], const Activation& x,
                            i32 (&c)[2][2][4]) {
  LATHE_UNROLL(2)
  for (int half = 0; half < 2; ++half) {
    const u32x4 w = tile_chunk(tile, half);
    const u32 words[4] = {w.x, w.y, w.z, w.w};
    LATHE_UNROLL(4)
    for (int j = 0; j < 4; ++j) {
      u32 a[4];
      LATHE_UNROLL(4)
      for (int v = 0; v < 4; ++v) {
        if (kThirds) {
          const int bit = 4 * half + j;
          const u32 third = bit < 2 ? thirds[v] << (2 - bit) : thirds[v] >> (bit - 2);
          a[v] = (words[v] >> (2 * j) & 0x03030303u) | (third & 0x04040404u);
        } else {
          a[v] = words[v] & 0x03030303u << (2 * j);
        }
      }
      const int p = j & 1, i = 2 * half + j / 2;
      mma_u8_k16(c[p][0], a[0], a[1], x.b[i][p][0]);
      mma_u8_k16(c[p][1], a[2], a[3], x.b[i][p][1]);
    }
  }
}

struct TileQ2_K {
  using Shape = Q2_KTiles;
  enum : int { own_dot = 1 };
  LATHE_DEVICE void dot(const u8* tile, int, const Activation& x, f32& row0, f32& row1) {
    i32 c[2][2][4] = {};
    const u32 none[4] = {};
    pair_sums<false>(tile, none, x, c);
    const int lane = lane_index();
    const u8* scales = tile + 1024;
    const u32 s0 = load_u32(scales + lane * 8), s1 = load_u32(scales + lane * 8 + 4);
    const u32 d0 = load_u32(scales + 256 + lane / 4 * 8),
              d1 = load_u32(scales + 260 + lane / 4 * 8);
    const f32 even = x.scale[0] * (lane & 1 ? 1.0f / 16 : 1.0f);
    const f32 odd = x.scale[1] * (lane & 1 ? 1.0f / 64 : 1.0f / 4);
    f32 sum[2] = {0, 0}, min[2] = {0, 0};
    LATHE_UNROLL(2)
    for (int r = 0; r < 2; ++r) {
      const u32 packed = r ? s1 : s0;
      f32 s[4], m[4];
      bytes_to_f32(packed & 0x0f0f0f0fu, 0.0f, s);
      bytes_to_f32(packed >> 4 & 0x0f0f0f0fu, 0.0f, m);
      LATHE_UNROLL(4)
      for (int j = 0; j < 4; ++j) {
        const int p = j / 2, h = j % 2;
        const i32 raw = joined(c[p][h][2 * r], c[p][h][2 * r + 1]);
        sum[r] = fma(static_cast<f32>(raw) * s[j], p ? odd : even, sum[r]);
        min[r] = fma(static_cast<f32>(x.sum[p][h]) * m[j], x.scale[p], min[r]);
      }
    }
    row0 = fma(f16_to_f32(d0), sum[0], row0);
    row0 = fma(-f16_to_f32(d0 >> 16), min[0], row0);
    row1 = fma(f16_to_f32(d1), sum[1], row1);
    row1 = fma(-f16_to_f32(d1 >> 16), min[1], row1);
  }
};

struct TileQ3_K {
  using Shape = Q3_KTiles;
  enum : int { own_dot = 1 };
  LATHE_DEVICE void dot(const u8* tile, int, const Activation& x, f32& row0, f32& row1) {
    i32 c[2][2][4] = {};
    const u32x4 w = tile_chunk(tile, 2);
    const u32 thirds[4] = {w.x, w.y, w.z, w.w};
    pair_sums<true>(tile, thirds, x, c);
    const int lane = lane_index();
    const u8* scales = tile + 1536;
    const u32 low = load_u32(scales + lane * 4), high = load_u16(scales + kTileQ3HighAt + lane * 2);
    const u32 d = load_u32(scales + kTileQ3DeltaAt + lane / 4 * 4);
    const u32 pairs = high | high << 14;
    f32 sum[2] = {0, 0};
    LATHE_UNROLL(2)
    for (int r = 0; r < 2; ++r) {
      const u32 packed = (low >> (4 * r) & 0x0f0f0f0fu) | (pairs >> (4 * r) & 0x03030303u) << 4;
      f32 s[4];
      bytes_to_f32(packed, 32.0f, s);
      LATHE_UNROLL(4)
      for (int j = 0; j < 4; ++j) {
        const int p = j / 2, h = j % 2;
        const i32 raw = joined(c[p][h][2 * r], c[p][h][2 * r + 1]);
        sum[r] = fma(static_cast<f32>(raw - 4 * x.sum[p][h]) * s[j], x.scale[p], sum[r]);
      }
    }
    row0 = fma(f16_to_f32(d), sum[0], row0);
    row1 = fma(f16_to_f32(d >> 16), sum[1], row1);
  }
};

}  // namespace lathe::dev
