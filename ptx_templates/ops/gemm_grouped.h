// Owns gemm where four warps multiply together (sm_90a): one warp of a block copies stages, eight
// multiply. Each four of them have 64 of a tile's 128 rows.
#pragma once

#include "ops/gemm_tile.h"

namespace lathe::dev {

// Where in the ring of stages a warp is; the parity is that of the phase to wait for.
struct GemmRing {
  GemmTile shape;
  int slot;
  u32 parity;
};
LATHE_DEVICE u8* gemm_stage(const GemmRing& r) {
  return shared_memory() + r.slot * r.shape.stage_bytes;
}
// A phase of the first ends when the stage is there, of the second when nobody reads it any more.
LATHE_DEVICE u64* gemm_full(const GemmRing& r) {
  return reinterpret_cast<u64*>(shared_memory() + r.shape.barriers) + r.slot;
}
LATHE_DEVICE u64* gemm_empty(const GemmRing& r) {
  return gemm_full(r) + r.shape.stages;
}
LATHE_DEVICE void advance(GemmRing& r) {
  if (++r.slot < r.shape.stages) return;
  r.slot = 0;
  r.parity ^= 1;
}

// All stages of the block's tiles. One lane calls.
template <class Form>
LATHE_DEVICE void copy_gemm_stages(const GemmCall& c, GemmRing ring) {
  constexpr int kBlock = int{Form::planes} * kGemmPlaneBytes;
  const int row_blocks = gemm_row_blocks(c.m), column_blocks = ceil_div(c.n, ring.shape.columns);
  const int stages = gemm_depth_blocks(c.k), parts = ring.shape.columns / kGemmRows;
  const i64 line = static_cast<i64>(stages) * kBlock;
  LATHE_UNROLL(1)
  for (int tile = block_x(); tile < row_blocks * column_blocks; tile += c.blocks) {
    const GemmPlace place = gemm_place(tile, row_blocks, column_blocks);
    const u8* x = c.x + place.row_block * line;
    const u8* w = c.w + place.column_block * parts * line;
    // Of what is past the last row block the last comes again: nobody asks for those columns.
    const int last = gemm_row_blocks(c.n) - 1 - place.column_block * parts;
    LATHE_UNROLL(1)
    for (int stage = 0; stage < stages; ++stage) {
      copy_barrier_wait(gemm_empty(ring), ring.parity ^ 1);
      u8* to = gemm_stage(ring);
      announce_copies(gemm_full(ring), static_cast<u32>(ring.shape.stage_bytes));
      bulk_copy_part(to, x, kBlock, gemm_full(ring));
      LATHE_UNROLL(2)
      for (int i = 0; i < parts; ++i)
        bulk_copy_part(to + (1 + i) * kBlock, w + min_int(i, last) * line, kBlock, gemm_full(ring));
      x += kBlock;
      w += kBlock;
      advance(ring);
    }
  }
}

// The products of a tile in one plane: all of them into one sum. Those of a stage are waited for
// when the next one's are under way.
template <class Form>
LATHE_DEVICE void multiply_gemm_tile(GemmRing& ring, int stages, int group, f32 (&sum)[32][4]) {
  u64* before = nullptr;
  LATHE_UNROLL(1)
  for (int stage = 0; stage < stages; ++stage) {
    copy_barrier_wait(gemm_full(ring), ring.parity);
    const u8* x = gemm_stage(ring) + group * (kGemmPlaneBytes / 2);
    const u8* w = gemm_stage(ring) + ring.shape.x_bytes;
    group_begin();
    LATHE_UNROLL(4)
    for (int step = 0; step < kGemmDepth / 16; ++step) {
      if constexpr (Form::brain)
        group_multiply_256_bf16(sum, x + 32 * step, w + 32 * step, stage + step > 0);
      else
        group_multiply_256_f16(sum, x + 32 * step, w + 32 * step, stage + step > 0);
    }
    group_end();
    group_wait<1>();
    if (before && lane_index() == 0) hand_over_arrive(before);
    before = gemm_empty(ring);
    advance(ring);
  }
  group_wait<0>();
  if (lane_index() == 0) hand_over_arrive(before);
  LATHE_UNROLL(32)
  for (int j = 0; j < 32; ++j) {
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) group_sum(sum[j][i]);
  }
}

// The same where the sums of the matrix units are those of a stage only, the smallest products
// first.
template <class Form>
LATHE_DEVICE void multiply_gemm_tile_by_stage(GemmRing& ring, int stages, int group,
                                              f32 (&total)[16][4]) {
  f32 sum[16][4];
  LATHE_UNROLL(1)
  for (int stage = 0; stage < stages; ++stage) {
    copy_barrier_wait(gemm_full(ring), ring.parity);
    const u8* x = gemm_stage(ring) + group * (kGemmPlaneBytes / 2);
    const u8* w = gemm_stage(ring) + ring.shape.x_bytes;
    group_begin();
    if constexpr (Form::eight) {
      LATHE_UNROLL(4)
      for (int step = 0; step < kGemmDepth / 16; ++step)
        group_multiply_128_e4m3(sum, x + 32 * step, w + 32 * step, step > 0);
    } else {
      LATHE_UNROLL(12)
      for (int i = 0; i < 3 * kGemmDepth / 16; ++i) {
        const int step = i % 4;
        group_multiply_128_f16(sum, x + (i < 4 ? int{kGemmPlaneBytes} : 0) + 32 * step,
                               w + (i / 4 == 1 ? int{kGemmPlaneBytes} : 0) + 32 * step, i > 0);
      }
    }
    group_end();
    group_wait<0>();
    if (lane_index() == 0) hand_over_arrive(gemm_empty(ring));
    advance(ring);
    LATHE_UNROLL(16)
    for (int j = 0; j < 16; ++j) {
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        group_sum(sum[j][i]);
        total[j][i] = total[j][i] + sum[j][i];
      }
    }
  }
}

template <class Form>
LATHE_DEVICE void gemm_grouped(const GemmCall& c) {
  GemmRing ring = {gemm_tile(Form::planes, Form::by_stage, true), 0, 0};
  if (thread_index() == 0) {
    LATHE_UNROLL(4)
    for (int i = 0; i < ring.shape.stages; ++i) {
      u64* full = reinterpret_cast<u64*>(shared_memory() + ring.shape.barriers) + i;
      copy_barrier_init(full);
      hand_over_init(full + ring.shape.stages, kGemmWarps);
    }
    copy_barriers_ready();
  }
  block_barrier();
  const int warp = uniform(warp_index());
  if (warp == kGemmWarps) {
    if (elected()) copy_gemm_stages<Form>(c, ring);
    return;
  }
  const int row_blocks = gemm_row_blocks(c.m), column_blocks = ceil_div(c.n, ring.shape.columns);
  const int stages = gemm_depth_blocks(c.k);
  LATHE_UNROLL(1)
  for (int tile = block_x(); tile < row_blocks * column_blocks; tile += c.blocks) {
    const GemmPlace place = gemm_place(tile, row_blocks, column_blocks);
    const int row = place.row_block * kGemmRows + warp * 16 + lane_index() / 4;
    const int column = place.column_block * ring.shape.columns + lane_index() % 4 * 2;
    if constexpr (!Form::by_stage) {
      f32 sum[32][4];
      multiply_gemm_tile<Form>(ring, stages, warp / 4, sum);
      store_gemm<Form>(c, sum, row, column);
    } else {
      f32 total[16][4] = {};
      multiply_gemm_tile_by_stage<Form>(ring, stages, warp / 4, total);
      store_gemm<Form>(c, total, row, column);
    }
  }
}

}  // namespace lathe::dev
