// Owns what the blocks of matmul have in common, be their tokens many or few: what they are given,
// the row tiles they take, their sums.
#pragma once

#include "ops/matmul_shapes.h"
#include "ops/tile_halves.h"

namespace lathe::dev {

// The matrices of a kernel; the numbers are constants.
struct MatmulMatrices {
  const u8 *w0, *w1, *w2;
  const f32 *bias0, *bias1, *bias2;
  int n0, n1, n2;
  int format0, format1, format2;
};

// What a matmul kernel is given beside the matrices; numbers are constants.
struct MatmulCall {
  const u8* x;          // f16 operands
  const f32* residual;  // rows of y
  void* y;              // f32 rows of `stride`, or f16 operands of `out_width` when gated
  int tokens;           // of this chunk
  int width, stride, out_width;
  int subs, columns;  // of a tile, and tiles of a row
  int gated, activation;
  int means;       // whether operands come with their means
  FewWarps warps;  // of few tokens
};

// One matrix, or with `up` a gate and its up matrix, of each of which a block has half its row
// tiles.
struct MatmulMatrix {
  const u8* weights;
  const u8* up;
  const f32* bias;
  int n;
  int first;   // row of y
  f32 factor;  // from a sum of products to a value
};

struct MatmulBlock {
  MatmulCall call;
  MatmulMatrix matrix;
  int row_block;  // of the matrix
  int token;      // the block's first
};

template <class Way>
using MatmulSums = f32[Way::tiles][Way::fragments][4];

LATHE_DEVICE int all_row_blocks(const MatmulMatrices& m, int gated, int tiles) {
  return matmul_row_blocks(m.n0, gated, tiles) +
         (gated ? 0 : matmul_row_blocks(m.n1, 0, tiles) + matmul_row_blocks(m.n2, 0, tiles));
}

// The formats whose tiles become operands, by number.
#define LATHE_MATMUL_FORMATS(CASE) \
  CASE(kTileQ4_0, OperandQ4_0)     \
  CASE(kTileQ4_1, OperandQ4_1)     \
  CASE(kTileQ5_0, OperandQ5_0)     \
  CASE(kTileQ5_1, OperandQ5_1)     \
  CASE(kTileQ8_0, OperandQ8_0)     \
  CASE(kTileQ4_K, OperandQ4_K)     \
  CASE(kTileQ5_K, OperandQ5_K)     \
  CASE(kTileQ6_K, OperandQ6_K)
LATHE_DEVICE int operand_tile_bytes(int format, int subs) {
#define LATHE_TILE_BYTES(number, Tile) \
  if (format == number) return tile_bytes(Tile::bits, Tile::Shape::scale_bytes, subs);
  LATHE_MATMUL_FORMATS(LATHE_TILE_BYTES)
#undef LATHE_TILE_BYTES
  return 0;
}
// Operands are values over 16; operand A is eight times weights, or weights.
LATHE_DEVICE f32 sum_factor(int format, int means) {
#define LATHE_SUM_FACTOR(number, Tile) \
  if (format == number) return Tile::affine != 0 && means != 0 ? 16.0f : 2.0f;
  LATHE_MATMUL_FORMATS(LATHE_SUM_FACTOR)
#undef LATHE_SUM_FACTOR
  return 0;
}

// The matrix that has row block `row_block` of all, which becomes the matrix's own number; the
// result is its format. `tiles`: row tiles of a block.
LATHE_DEVICE int find_matrix(const MatmulMatrices& m, const MatmulCall& call, int tiles,
                             int& row_block, MatmulMatrix& matrix) {
  const int blocks0 = matmul_row_blocks(m.n0, call.gated, tiles);
  const int blocks1 = matmul_row_blocks(m.n1, call.gated, tiles);
  const f32 factor0 = sum_factor(m.format0, call.means);
  matrix = {m.w0, call.gated ? m.w1 : nullptr, m.bias0, m.n0, 0, factor0};
  if (call.gated || row_block < blocks0) return m.format0;
  row_block -= blocks0;
  matrix = {m.w1, nullptr, m.bias1, m.n1, m.n0, sum_factor(m.format1, call.means)};
  if (row_block < blocks1) return m.format1;
  row_block -= blocks1;
  matrix = {m.w2, nullptr, m.bias2, m.n2, m.n0 + m.n1, sum_factor(m.format2, call.means)};
  return m.format2;
}

// Row tile `local` of the `tiles` of a row block: of which matrix, and which of it. Past the last
// the last again.
LATHE_DEVICE const u8* matmul_tile_row(const MatmulMatrix& matrix, int row_block, int tiles,
                                       int local, int columns, int bytes) {
  const u8* weights = matrix.weights;
  int index = row_block * tiles + local;
  if (matrix.up) {
    const int half = tiles / 2;
    if (local >= half) weights = matrix.up;
    index = row_block * half + local % half;
  }
  index = min_int(index, tile_row_tiles(matrix.n) - 1);
  return weights + static_cast<i64>(index) * columns * bytes;
}

template <class Way>
LATHE_DEVICE int matmul_tile_bytes(const MatmulBlock& b) {
  return tile_bytes(Way::Tile::bits, Way::Tile::Shape::scale_bytes, b.call.subs);
}

// Whether the warp has tokens that there are.
template <class Way>
LATHE_DEVICE bool matmul_works(const MatmulBlock& b) {
  return b.token + warp_index() % Way::split * Way::tokens < b.call.tokens;
}
template <class Way>
LATHE_DEVICE void clear_sums(MatmulSums<Way>& sum) {
  LATHE_UNROLL(4)
  for (int r = 0; r < Way::tiles; ++r) {
    LATHE_UNROLL(16)
    for (int j = 0; j < Way::fragments; ++j)
      sum[r][j][0] = sum[r][j][1] = sum[r][j][2] = sum[r][j][3] = 0;
  }
}

}  // namespace lathe::dev
