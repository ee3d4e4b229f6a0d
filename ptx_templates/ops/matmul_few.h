// Owns the products of a block of matmul with few tokens: all of them, and eight row tiles, one for
// each warp. A stage is a tile column: the operands of its values, which all warps share, and a
// tile of each warp's own, a few stages ahead by asynchronous copies.
//
// With few tokens what bounds the kernel beside the memory is the instructions of a weight, so a
// stage is as long as can be: its addresses are constants.
#pragma once

#include "ops/matmul_block.h"

namespace lathe::dev {

struct FewBlock : MatmulBlock {
  FewShared shape;
  int first, last;  // tile columns [first, last)
};

template <class Format, int kTokens>
struct FewWay {
  using Tile = Format;
  enum : int {
    grouped = 0,  // as of ManyWay
    split = 1,
    tiles = 1,
    threads = kMatmulThreads,
    tokens = kTokens,
    fragments = kTokens / 8,
    pairs_at_once = threads / (8 * kTokens),  // of sub-blocks, whose operands all threads copy
  };
};

// Where a thread's copies of the next stage come from.
struct FewSource {
  const u8* x;
  const u8* tile;
};
template <class Way>
LATHE_DEVICE FewSource few_source(const FewBlock& b) {
  const int unit = thread_index() % (8 * Way::tokens), pair = thread_index() / (8 * Way::tokens);
  const u8* x =
      b.call.x + static_cast<i64>(unit / 8) * b.call.width * 2 + pair * 128 + unit % 8 * 16;
  const u8* tiles = matmul_tile_row<Way>(b, warp_index()) + lane_index() * 16;
  return {x + b.first * b.call.subs * 64, tiles + b.first * matmul_tile_bytes<Way>(b)};
}

// Starts the copies of a stage, if there is one, into `slot`: after that of the stage before.
template <class Way>
LATHE_DEVICE void start_column(const FewBlock& b, int column, int slot, FewSource& source) {
  if (column < b.last) {
    u8* to = shared_memory() + slot * b.shape.stage_bytes;
    const int unit = thread_index() % (8 * Way::tokens), pair = thread_index() / (8 * Way::tokens);
    const int row = unit / 8, pairs = b.call.subs / 2, bytes = matmul_tile_bytes<Way>(b);
    u8* x = to + (pair * Way::tokens + row) * 128 + (unit % 8 ^ (row & 7)) * 16;
    LATHE_UNROLL(4)
    for (int i = 0; i < ceil_div(pairs, int{Way::pairs_at_once}); ++i) {
      if (pairs % Way::pairs_at_once == 0 || i * Way::pairs_at_once + pair < pairs)
        copy_async(x + i * 128 * Way::tokens * Way::pairs_at_once,
                   source.x + i * 128 * Way::pairs_at_once);
    }
    source.x += pairs * 128;
    u8* tile = to + b.shape.tiles + warp_index() * b.shape.tile_bytes + lane_index() * 16;
    LATHE_UNROLL(9)
    for (int i = 0; i < ceil_div(bytes, 16 * kWarp); ++i) {
      if ((i + 1) * 16 * kWarp <= bytes || i * 16 * kWarp + lane_index() * 16 < bytes)
        copy_async(tile + i * 16 * kWarp, source.tile + i * 16 * kWarp);
    }
    source.tile += bytes;
  }
  copy_async_group();
}

// Waits until all copies have landed but those of the last stages, one fewer than there are slots.
LATHE_DEVICE void wait_for_column(int stages) {
  if (stages == 2) return copy_async_wait<0>();
  if (stages == 3) return copy_async_wait<1>();
  return copy_async_wait<2>();
}

// The products of one pair of sub-blocks.
template <class Way>
LATHE_DEVICE void multiply_pair(const FewBlock& b, const u8* x, const u8* tile, int pair,
                                const u32 (&scales)[4], MatmulSums<Way>& sum) {
  using Tile = typename Way::Tile;
  PairWords words;
  load_pair<Tile>(tile + pair_at(Tile::bits, pair), tile + matmul_tail_at(Tile::bits, b.call.subs),
                  b.call.subs, pair, words);
  const int lane = lane_index(), owner = (lane & ~3) | pair;
  const u8* columns = x + pair * Way::tokens * 128;
  LATHE_UNROLL(2)
  for (int p = 0; p < 2; ++p) {
    const u32 factors[2] = {shuffle(scales[p], owner), shuffle(scales[2 + p], owner)};
    u32 a[2][4];
    tile_operand<Tile>(words, p, factors, a);
    const u8* column = columns + lane % 8 * 128 + ((4 * p + lane / 8) ^ lane % 8) * 16;
    LATHE_UNROLL(4)
    for (int j = 0; j < Way::fragments; ++j) {
      u32 v[4];
      load_columns(v, column + j * 1024);
      mma_f16_k16(sum[0][j], a[0][0], a[0][1], a[0][2], a[0][3], v[0], v[1]);
      mma_f16_k16(sum[0][j], a[1][0], a[1][1], a[1][2], a[1][3], v[2], v[3]);
    }
  }
}

// The sums of the block's tile columns. Shared memory is free to be written.
template <class Way>
LATHE_DEVICE void multiply_few(const FewBlock& b, MatmulSums<Way>& sum) {
  using Tile = typename Way::Tile;
  const int stages = b.shape.stages;
  FewSource source = few_source<Way>(b);
  clear_sums<Way>(sum);
  LATHE_UNROLL(4)
  for (int i = 0; i < stages - 1; ++i) start_column<Way>(b, b.first + i, i, source);
  int slot = 0;
  LATHE_UNROLL(1)
  for (int column = b.first; column < b.last; ++column) {
    wait_for_column(stages);
    block_barrier();  // the stage is there, and all are done with the one before
    start_column<Way>(b, column + stages - 1, slot == 0 ? stages - 1 : slot - 1, source);
    const u8* x = shared_memory() + slot * b.shape.stage_bytes;
    const u8* tile = x + b.shape.tiles + warp_index() * b.shape.tile_bytes;
    u32 scales[4];
    lane_scales<Tile>(tile + matmul_tail_at(Tile::bits, b.call.subs), b.call.subs, scales);
    LATHE_UNROLL(4)
    for (int pair = 0; pair < b.call.subs / 2; ++pair)
      multiply_pair<Way>(b, x, tile, pair, scales, sum);
    if (++slot == stages) slot = 0;
  }
}

}  // namespace lathe::dev
