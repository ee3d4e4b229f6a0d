// Owns gemm where each warp multiplies by itself (mma.sync): a block makes 128 rows by 64 columns,
// each warp 32 by 32 of them.
#pragma once

#include "ops/gemm_tile.h"

namespace lathe::dev {

enum : int { kGemmPlainHalf = 64 * kGemmRowBytes };  // bytes of a tile's columns in a plane

struct GemmPlainPlace {
  GemmTile shape;
  const u8 *x, *w;  // of the first stage
};

// Starts the copies of a stage, if there is one.
template <class Form>
LATHE_DEVICE void start_gemm_stage(const GemmPlainPlace& p, int stage, int stages) {
  if (stage < stages) {
    constexpr int kBlock = int{Form::planes} * kGemmPlaneBytes;
    u8* to = shared_memory() + stage % p.shape.stages * p.shape.stage_bytes;
    const int at = thread_index() * 16;
    const u8* x = p.x + static_cast<i64>(stage) * kBlock;
    const u8* w = p.w + static_cast<i64>(stage) * kBlock;
    LATHE_UNROLL(8)
    for (int i = 0; i < kBlock; i += kGemmThreads * 16) copy_async(to + i + at, x + i + at);
    LATHE_UNROLL(4)
    for (int i = 0; i < int{Form::planes} * kGemmPlainHalf; i += kGemmThreads * 16) {
      const int plane = i / kGemmPlainHalf, within = i % kGemmPlainHalf;
      copy_async(to + kBlock + i + at, w + plane * kGemmPlaneBytes + within + at);
    }
  }
  copy_async_group();
}

// 16 rows of a plane from `row` on, 32 bytes of each from 32 `step` on: the words of operand A,
// or of B for 16 columns, words 0 and 2 those of the first eight.
LATHE_DEVICE void load_gemm_rows(u32 (&a)[4], const u8* plane, int row, int step) {
  const int lane = lane_index(), at = row + lane % 16, piece = 2 * step + lane / 16;
  load_columns(a, plane + at * kGemmRowBytes + (piece ^ at % 8) * 16);
}

template <class Form>
LATHE_DEVICE void multiply_gemm(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (Form::eight)
    mma_e4m3_k32(c, a[0], a[1], a[2], a[3], b0, b1);
  else if constexpr (Form::brain)
    mma_bf16_k16(c, a[0], a[1], a[2], a[3], b0, b1);
  else
    mma_f16_k16(c, a[0], a[1], a[2], a[3], b0, b1);
}

using GemmPlainSums = f32[2][4][4];

// One plane of x times one of w, for a stage.
template <class Form>
LATHE_DEVICE void multiply_gemm_planes(const u8* x, const u8* w, GemmPlainSums& sum) {
  const int row = warp_index() % 4 * 32, column = warp_index() / 4 * 32;
  LATHE_UNROLL(4)
  for (int step = 0; step < kGemmDepth / 16; ++step) {
    u32 b[2][4];
    LATHE_UNROLL(2)
    for (int h = 0; h < 2; ++h) load_gemm_rows(b[h], w, column + 16 * h, step);
    LATHE_UNROLL(2)
    for (int r = 0; r < 2; ++r) {
      u32 a[4];
      load_gemm_rows(a, x, row + 16 * r, step);
      LATHE_UNROLL(4)
      for (int j = 0; j < 4; ++j)
        multiply_gemm<Form>(sum[r][j], a, b[j / 2][j % 2], b[j / 2][2 + j % 2]);
    }
  }
}

template <class Form>
LATHE_DEVICE void gemm_plain_tile(const GemmCall& c, const GemmPlainPlace& p, int row, int column) {
  const int stages = gemm_depth_blocks(c.k), ahead = p.shape.stages - 1;
  GemmPlainSums total = {};
  LATHE_UNROLL(4)
  for (int stage = 0; stage < ahead; ++stage) start_gemm_stage<Form>(p, stage, stages);
  LATHE_UNROLL(1)
  for (int stage = 0; stage < stages; ++stage) {
    copy_async_wait<4 / Form::planes - 2>();
    block_barrier();  // the stage is there, and all are done with the one before `ahead` of it
    start_gemm_stage<Form>(p, stage + ahead, stages);
    const u8* x = shared_memory() + stage % p.shape.stages * p.shape.stage_bytes;
    const u8* w = x + p.shape.x_bytes;
    if constexpr (!Form::by_stage) {
      multiply_gemm_planes<Form>(x, w, total);
    } else {
      // The smallest first.
      GemmPlainSums sum = {};
      if constexpr (Form::planes == 2) {
        multiply_gemm_planes<Form>(x + kGemmPlaneBytes, w, sum);
        multiply_gemm_planes<Form>(x, w + kGemmPlainHalf, sum);
      }
      multiply_gemm_planes<Form>(x, w, sum);
      LATHE_UNROLL(2)
      for (int r = 0; r < 2; ++r) {
        LATHE_UNROLL(4)
        for (int j = 0; j < 4; ++j) {
          LATHE_UNROLL(4)
          for (int i = 0; i < 4; ++i) total[r][j][i] = total[r][j][i] + sum[r][j][i];
        }
      }
    }
  }
  block_barrier();  // before shared memory is filled again
  const int g = lane_index() / 4, t = lane_index() % 4;
  LATHE_UNROLL(2)
  for (int r = 0; r < 2; ++r)
    store_gemm<Form>(c, total[r], row + warp_index() % 4 * 32 + 16 * r + g,
                     column + warp_index() / 4 * 32 + 2 * t);
}

template <class Form>
LATHE_DEVICE void gemm_plain(const GemmCall& c) {
  const GemmTile shape = gemm_tile(Form::planes, Form::by_stage, false);
  const int row_blocks = gemm_row_blocks(c.m), column_blocks = ceil_div(c.n, shape.columns);
  const i64 line = static_cast<i64>(gemm_depth_blocks(c.k)) * int{Form::planes} * kGemmPlaneBytes;
  LATHE_UNROLL(1)
  for (int tile = block_x(); tile < row_blocks * column_blocks; tile += c.blocks) {
    const GemmPlace place = gemm_place(tile, row_blocks, column_blocks);
    const GemmPlainPlace p = {
        shape, c.x + place.row_block * line,
        c.w + place.column_block / 2 * line + place.column_block % 2 * kGemmPlainHalf};
    gemm_plain_tile<Form>(c, p, place.row_block * kGemmRows, place.column_block * shape.columns);
  }
}

}  // namespace lathe::dev
