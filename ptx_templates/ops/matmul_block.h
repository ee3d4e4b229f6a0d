// Owns what the blocks of matmul have in common, be their tokens many or few: what they are given,
// the row tiles they take, their sums.
#pragma once

#include "ops/launch_shapes.h"
#include "ops/tile_halves.h"

namespace lathe::dev {

// What a matmul kernel is given beside the matrix; numbers are constants.
struct MatmulCall {
  const u8* x;          // f16 operands, `width` per token
  const f32* residual;  // rows of y
  void* y;              // f32 rows of `stride`, or f16 operands of `out_width` when gated
  int tokens;           // of this chunk
  int width, stride, out_width;
  int subs, columns;  // of a tile, and tiles of a row
  int gated, activation;
};

// One matrix, or with `up` a gate and its up matrix, of which a block takes four row tiles each.
struct MatmulMatrix {
  const u8* weights;
  const u8* up;
  const f32* bias;
  int n;
  int first;  // row of y
};

struct MatmulBlock {
  MatmulCall call;
  MatmulMatrix matrix;
  int row_block;  // of the matrix
  int token;      // the block's first
};

template <class Way>
using MatmulSums = f32[Way::tiles][Way::fragments][4];

template <class Way>
LATHE_DEVICE int matmul_tile_bytes(const MatmulBlock& b) {
  return tile_bytes(Way::Tile::bits, Way::Tile::Shape::scale_bytes, b.call.subs);
}
// Row tile `local` of the block: of which matrix, and which of it. Past the last the last again.
template <class Way>
LATHE_DEVICE const u8* matmul_tile_row(const MatmulBlock& b, int local) {
  const u8* weights = b.matrix.weights;
  int index = b.row_block * Way::row_tiles + local;
  if (b.matrix.up) {
    constexpr int kHalf = Way::row_tiles / 2;
    if (local >= kHalf) weights = b.matrix.up;
    index = b.row_block * kHalf + local % kHalf;
  }
  index = min_int(index, tile_row_tiles(b.matrix.n) - 1);
  return weights + static_cast<i64>(index) * b.call.columns * matmul_tile_bytes<Way>(b);
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
