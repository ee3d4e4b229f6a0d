// Owns the products of a block of matmul with few tokens: all of them, and eight row tiles, one for
// each warp, or two, each shared by four warps. A stage is a tile column, or four: the operands of
// its values, which all warps share, and a tile of each warp's own, a few stages ahead by
// asynchronous copies.
//
// With few tokens what bounds the kernel beside the memory is the instructions of a weight, so a
// stage is as long as can be: its addresses are constants. Where there are few rows, it is how long
// blocks take to meet (ops/matmul_meet.h), so warps of one block meet instead.
#pragma once

#include "ops/matmul_block.h"

namespace lathe::dev {

struct FewBlock : MatmulBlock {
  FewShared shape;
  int first, last;  // groups of tile columns [first, last)
  bool early;       // the operands are not there before wait_for_predecessor()
  int ahead;        // stages whose tiles are started before that
  bool lets_go;     // these are the block's last groups, after which dependents may begin
};

template <class Format, int kTokens, int kParts>
struct FewWay {
  using Tile = Format;
  enum : int {
    split = 1,  // as of ManyWay
    tiles = 1,
    threads = kMatmulThreads,
    row_tiles = kMatmulRowTiles / kParts,
    parts = kParts,  // columns of a group: warps that share a row tile, but for their last sums
    tokens = kTokens,
    fragments = kTokens / 8,
    pairs_at_once = threads / (8 * kTokens),  // of sub-blocks, whose operands all threads copy
  };
};
// The warp's row tile of the block, and its column of a group.
template <class Way>
LATHE_DEVICE int few_row_tile() {
  return warp_index() % Way::row_tiles;
}
template <class Way>
LATHE_DEVICE int few_part() {
  return warp_index() / Way::row_tiles;
}
template <class Way>
LATHE_DEVICE int few_groups(const MatmulCall& call) {
  return ceil_div(call.columns, int{Way::parts});
}
// Whether the warp has a column of this group.
template <class Way>
LATHE_DEVICE bool few_has_column(const MatmulCall& call, int group) {
  return call.columns % Way::parts == 0 || group * Way::parts + few_part<Way>() < call.columns;
}

// Where a thread's copies of the next stage come from.
struct FewSource {
  const u8* x;
  const u8* tile;
};
template <class Way>
LATHE_DEVICE FewSource few_source(const FewBlock& b) {
  const int unit = thread_index() % (8 * Way::tokens), pair = thread_index() / (8 * Way::tokens);
  const int bytes = matmul_tile_bytes<Way>(b);
  const u8* x =
      b.call.x + static_cast<i64>(unit / 8) * b.call.width * 2 + pair * 128 + unit % 8 * 16;
  const u8* tiles = matmul_tile_row<Way>(b, few_row_tile<Way>()) + few_part<Way>() * bytes;
  return {x + b.first * Way::parts * b.call.subs * 64,
          tiles + lane_index() * 16 + b.first * Way::parts * bytes};
}

// Starts the copies of a stage's operands, if there is one, into `slot`: after those of the stage
// before.
template <class Way>
LATHE_DEVICE void start_operands(const FewBlock& b, int group, int slot, FewSource& source) {
  if (group < b.last) {
    u8* to = shared_memory() + slot * b.shape.stage_bytes;
    const int unit = thread_index() % (8 * Way::tokens), pair = thread_index() / (8 * Way::tokens);
    const int row = unit / 8, pairs = Way::parts * b.call.subs / 2;
    const int left = b.call.columns * (b.call.subs / 2) - group * pairs;
    const bool whole = b.call.columns % Way::parts == 0 && pairs % Way::pairs_at_once == 0;
    u8* x = to + (pair * Way::tokens + row) * 128 + (unit % 8 ^ (row & 7)) * 16;
    LATHE_UNROLL(4)
    for (int i = 0; i < ceil_div(pairs, int{Way::pairs_at_once}); ++i) {
      if (whole || i * Way::pairs_at_once + pair < min_int(pairs, left))
        copy_async(x + i * 128 * Way::tokens * Way::pairs_at_once,
                   source.x + i * 128 * Way::pairs_at_once);
    }
    source.x += pairs * 128;
  }
}

// The same of its tiles.
template <class Way>
LATHE_DEVICE void start_tiles(const FewBlock& b, int group, int slot, FewSource& source) {
  if (group < b.last) {
    const int bytes = matmul_tile_bytes<Way>(b);
    if (few_has_column<Way>(b.call, group)) {
      u8* stage = shared_memory() + slot * b.shape.stage_bytes;
      u8* tile = stage + b.shape.tiles + warp_index() * b.shape.tile_bytes + lane_index() * 16;
      LATHE_UNROLL(9)
      for (int i = 0; i < ceil_div(bytes, 16 * kWarp); ++i) {
        if ((i + 1) * 16 * kWarp <= bytes || i * 16 * kWarp + lane_index() * 16 < bytes)
          copy_async(tile + i * 16 * kWarp, source.tile + i * 16 * kWarp);
      }
    }
    source.tile += Way::parts * bytes;
  }
}

// A stage's copies, which land in the order of the stages.
template <class Way>
LATHE_DEVICE void start_group(const FewBlock& b, int group, int slot, FewSource& source) {
  start_operands<Way>(b, group, slot, source);
  start_tiles<Way>(b, group, slot, source);
  copy_async_group();
}

// Those of the first stages.
template <class Way>
LATHE_DEVICE void start_first_groups(const FewBlock& b, FewSource& source) {
  LATHE_UNROLL(4)
  for (int i = 0; i < b.ahead; ++i) start_tiles<Way>(b, b.first + i, i, source);
  if (b.early) wait_for_predecessor();
  LATHE_UNROLL(4)
  for (int i = 0; i < b.shape.stages - 1; ++i) {
    start_operands<Way>(b, b.first + i, i, source);
    if (i >= b.ahead) start_tiles<Way>(b, b.first + i, i, source);
    copy_async_group();
  }
}

// Waits until all copies have landed but those of the last stages, one fewer than there are slots.
LATHE_DEVICE void wait_for_group(int stages) {
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

// The sums of the warps that share a row tile, in the order of their columns, to the first of them.
template <class Way>
LATHE_DEVICE void join_parts(MatmulSums<Way>& sum) {
  constexpr int kSums = Way::fragments * 4 * kWarp;  // of a warp
  f32* sums = reinterpret_cast<f32*>(shared_memory()) + lane_index();
  block_barrier();  // nobody reads a stage any more
  if (few_part<Way>() > 0) {
    f32* own = sums + (warp_index() - Way::row_tiles) * kSums;
    LATHE_UNROLL(4)
    for (int j = 0; j < Way::fragments; ++j) {
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i) own[(4 * j + i) * kWarp] = sum[0][j][i];
    }
  }
  block_barrier();
  if (few_part<Way>() > 0) return;
  LATHE_UNROLL(4)
  for (int part = 1; part < Way::parts; ++part) {
    const f32* other = sums + (warp_index() + (part - 1) * Way::row_tiles) * kSums;
    LATHE_UNROLL(4)
    for (int j = 0; j < Way::fragments; ++j) {
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i) sum[0][j][i] = sum[0][j][i] + other[(4 * j + i) * kWarp];
    }
  }
}

// The sums of the block's groups. Shared memory is free to be written.
template <class Way>
LATHE_DEVICE void multiply_few(const FewBlock& b, MatmulSums<Way>& sum) {
  using Tile = typename Way::Tile;
  const int stages = b.shape.stages;
  FewSource source = few_source<Way>(b);
  clear_sums<Way>(sum);
  start_first_groups<Way>(b, source);
  int slot = 0;
  LATHE_UNROLL(1)
  for (int group = b.first; group < b.last; ++group) {
    wait_for_group(stages);
    block_barrier();  // the stage is there, and all are done with the one before
    start_group<Way>(b, group + stages - 1, slot == 0 ? stages - 1 : slot - 1, source);
    const u8* stage = shared_memory() + slot * b.shape.stage_bytes;
    if (few_has_column<Way>(b.call, group)) {
      const u8* x = stage + few_part<Way>() * (b.call.subs / 2) * Way::tokens * 128;
      const u8* tile = stage + b.shape.tiles + warp_index() * b.shape.tile_bytes;
      u32 scales[4];
      lane_scales<Tile>(tile + matmul_tail_at(Tile::bits, b.call.subs), b.call.subs, scales);
      LATHE_UNROLL(4)
      for (int pair = 0; pair < b.call.subs / 2; ++pair)
        multiply_pair<Way>(b, x, tile, pair, scales, sum);
    }
    if (++slot == stages) slot = 0;
  }
  if (b.lets_go) allow_dependents();
  if constexpr (int{Way::parts} > 1) join_parts<Way>(sum);
}

}  // namespace lathe::dev
