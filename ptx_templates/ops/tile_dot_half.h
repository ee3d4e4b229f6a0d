// Owns the products of tiles of f16 and bf16: the activations' limbs are integers of eight bits,
// which both formats hold exactly, and the matrix instructions of these formats sum in f32.
#pragma once

#include "ops/tile_operands.h"

namespace lathe::dev {

// How a value's bits are made of a float that the format holds, and the matrix instruction.
struct F16Matrix {
  LATHE_DEVICE u32 pair(f32 low, f32 high) {
    return f32_to_f16(low) | static_cast<u32>(f32_to_f16(high)) << 16;
  }
  LATHE_DEVICE void multiply(f32 (&c)[4], u32x4 a, u32 b0, u32 b1) {
    mma_f16_k16(c, a.x, a.z, a.y, a.w, b0, b1);
  }
};
struct BF16Matrix {
  LATHE_DEVICE u32 pair(f32 low, f32 high) {
    return byte_permute(as_u32(low), as_u32(high), 0x7632u);
  }
  LATHE_DEVICE void multiply(f32 (&c)[4], u32x4 a, u32 b0, u32 b1) {
    mma_bf16_k16(c, a.x, a.z, a.y, a.w, b0, b1);
  }
};

// A lane's values 4t ... 4t + 3 of a half of a sub-block are columns 2t, 2t + 1, 2t + 8 and 2t + 9
// of A and the same rows of B.
template <class Matrix>
LATHE_DEVICE void dot_half(const u8* tile, int subs, const Activation& x, f32& row0, f32& row1) {
  u32 limbs[2][2][2];  // sub-block parity, half, pair: those that are not zero
  LATHE_UNROLL(2)
  for (int p = 0; p < 2; ++p) {
    LATHE_UNROLL(2)
    for (int h = 0; h < 2; ++h) {
      const u32 four = x.b[0][p][h] | x.b[1][p][h] | x.b[2][p][h] | x.b[3][p][h];
      f32 v[4];
      bytes_to_f32(four ^ 0x80808080u, 128.0f, v);
      limbs[p][h][0] = Matrix::pair(v[0], v[1]);
      limbs[p][h][1] = Matrix::pair(v[2], v[3]);
    }
  }
  f32 c[2][4] = {};
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    if (2 * i >= subs) break;
    const bool mine = lane_index() / 8 == i;
    LATHE_UNROLL(2)
    for (int p = 0; p < 2; ++p) {
      LATHE_UNROLL(2)
      for (int h = 0; h < 2; ++h)
        Matrix::multiply(c[p], tile_chunk(tile, 4 * i + 2 * p + h), mine ? limbs[p][h][0] : 0u,
                         mine ? limbs[p][h][1] : 0u);
    }
  }
  row0 = fma(fma(c[0][0], 256.0f, c[0][1]), x.scale[0], row0);
  row0 = fma(fma(c[1][0], 256.0f, c[1][1]), x.scale[1], row0);
  row1 = fma(fma(c[0][2], 256.0f, c[0][3]), x.scale[0], row1);
  row1 = fma(fma(c[1][2], 256.0f, c[1][3]), x.scale[1], row1);
}

struct TileF16 {
  using Shape = HalfTiles;
  enum : int { own_dot = 1 };
  LATHE_DEVICE void dot(const u8* tile, int subs, const Activation& x, f32& row0, f32& row1) {
    dot_half<F16Matrix>(tile, subs, x, row0, row1);
  }
};
struct TileBF16 {
  using Shape = HalfTiles;
  enum : int { own_dot = 1 };
  LATHE_DEVICE void dot(const u8* tile, int subs, const Activation& x, f32& row0, f32& row1) {
    dot_half<BF16Matrix>(tile, subs, x, row0, row1);
  }
};

}  // namespace lathe::dev
