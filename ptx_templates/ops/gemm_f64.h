// Owns y = relu(x w^T + bias) of rows of f64, as they lie, by the matrix units: a block makes 128
// rows by 64 columns at a time, each warp 32 by 32 of them. Numbers come through registers, since
// rows of an odd length do not start on 16 bytes.
#pragma once

#include "isa/isa.h"
#include "ops/gemm_shapes.h"

namespace lathe::dev {

struct GemmF64Call {
  const f64 *x, *w, *bias;
  f64* y;
  int m, n, k;
};

// What a thread loads of a stage: one value of each 16th row, x's first.
enum : int {
  kGemmF64Lines = int{kGemmThreads} / kGemmF64Depth,
  kGemmF64XLoads = kGemmRows / kGemmF64Lines,
  kGemmF64Loads = kGemmF64XLoads + kGemmF64Columns / kGemmF64Lines,
};

LATHE_DEVICE void load_gemm_f64(const GemmF64Call& c, int row, int column, int first,
                                f64 (&v)[kGemmF64Loads]) {
  const int at = first + thread_index() % kGemmF64Depth, line = thread_index() / kGemmF64Depth;
  LATHE_UNROLL(12)
  for (int i = 0; i < kGemmF64Loads; ++i) {
    const bool of_x = i < kGemmF64XLoads;
    const int own =
        line + (of_x ? row + i * kGemmF64Lines : column + (i - kGemmF64XLoads) * kGemmF64Lines);
    const f64* from = of_x ? c.x : c.w;
    const bool there = own < (of_x ? c.m : c.n) && at < c.k;
    v[i] = there ? from[static_cast<i64>(own) * c.k + at] : 0.0;
  }
}
LATHE_DEVICE void store_gemm_f64(f64* stage, const f64 (&v)[kGemmF64Loads]) {
  f64* to = stage + thread_index() / kGemmF64Depth * kGemmF64Pitch + thread_index() % kGemmF64Depth;
  LATHE_UNROLL(12)
  for (int i = 0; i < kGemmF64Loads; ++i) to[i * kGemmF64Lines * kGemmF64Pitch] = v[i];
}

using GemmF64Sums = f64[4][4][2];

LATHE_DEVICE void multiply_gemm_f64(const f64* stage, GemmF64Sums& sum) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  const f64* x = stage + (warp_index() % 4 * 32 + g) * kGemmF64Pitch + t;
  const f64* w = stage + (kGemmRows + warp_index() / 4 * 32 + g) * kGemmF64Pitch + t;
  LATHE_UNROLL(4)
  for (int step = 0; step < kGemmF64Depth / 4; ++step) {
    f64 b[4];
    LATHE_UNROLL(4)
    for (int j = 0; j < 4; ++j) b[j] = w[8 * j * kGemmF64Pitch + 4 * step];
    LATHE_UNROLL(4)
    for (int r = 0; r < 4; ++r) {
      const f64 a = x[8 * r * kGemmF64Pitch + 4 * step];
      LATHE_UNROLL(4)
      for (int j = 0; j < 4; ++j) mma_f64_k4(sum[r][j], a, b[j]);
    }
  }
}

LATHE_DEVICE f64 finished_gemm_f64(const GemmF64Call& c, f64 v, int column, int relu) {
  if (c.bias) v = v + c.bias[column];
  if (relu) v = v < 0 ? 0.0 : v;
  return v;
}

LATHE_OP gemm_f64(const u8* x, const u8* w, const u8* bias, u8* y, int m, int n, int k, int blocks,
                  int relu) {
  const GemmF64Call c = {reinterpret_cast<const f64*>(x),
                         reinterpret_cast<const f64*>(w),
                         reinterpret_cast<const f64*>(bias),
                         reinterpret_cast<f64*>(y),
                         m,
                         n,
                         k};
  f64* shared = reinterpret_cast<f64*>(shared_memory());
  const int row_blocks = gemm_row_blocks(m), column_blocks = ceil_div(n, kGemmF64Columns);
  const int stages = ceil_div(k, kGemmF64Depth);
  LATHE_UNROLL(1)
  for (int tile = block_x(); tile < row_blocks * column_blocks; tile += blocks) {
    const GemmPlace place = gemm_place(tile, row_blocks, column_blocks);
    const int row = place.row_block * kGemmRows, column = place.column_block * kGemmF64Columns;
    GemmF64Sums sum = {};
    f64 next[kGemmF64Loads];
    load_gemm_f64(c, row, column, 0, next);
    LATHE_UNROLL(1)
    for (int stage = 0; stage < stages; ++stage) {
      f64* here = shared + stage % 2 * kGemmF64Stage;
      store_gemm_f64(here, next);
      block_barrier();  // the stage is there, and all are done with the one before
      if (stage + 1 < stages) load_gemm_f64(c, row, column, (stage + 1) * kGemmF64Depth, next);
      multiply_gemm_f64(here, sum);
    }
    block_barrier();  // before shared memory is filled again
    const int own_row = row + warp_index() % 4 * 32 + lane_index() / 4;
    const int own_column = column + warp_index() / 4 * 32 + lane_index() % 4 * 2;
    LATHE_UNROLL(4)
    for (int r = 0; r < 4; ++r) {
      if (own_row + 8 * r >= m) break;
      LATHE_UNROLL(4)
      for (int j = 0; j < 4; ++j) {
        LATHE_UNROLL(2)
        for (int d = 0; d < 2; ++d) {
          const int at = own_column + 8 * j + d;
          if (at < n)
            c.y[static_cast<i64>(own_row + 8 * r) * n + at] =
                finished_gemm_f64(c, sum[r][j][d], at, relu);
        }
      }
    }
  }
}

}  // namespace lathe::dev
