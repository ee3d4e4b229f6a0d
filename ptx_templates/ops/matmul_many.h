// Owns the products of a block of matmul with many tokens: 128 of them and eight row tiles. Where
// four warps can multiply together (sm_90a), each of the eight warps has a row tile of its own;
// else two share two of them and have 64 of the tokens each.
//
// Operands and codes come by asynchronous copies, a few stages of 64 values ahead. The words of a
// lane are its part of fragment A as they lie, and the operands' order is the one that goes with
// it, so nothing is exchanged among lanes but the scales.
#pragma once

#include "ops/matmul_block.h"

namespace lathe::dev {

struct ManyBlock : MatmulBlock {
  MatmulShared shape;
};

// How a block's work is shared out.
template <class Format, bool kGrouped>
struct ManyWay {
  using Tile = Format;
  enum : int {
    few = 0,
    grouped = kGrouped,
    split = kGrouped ? 1 : 2,  // warps that share row tiles
    tiles = split,             // of a warp
    gate_pairs = 0,            // whether these are a gate's and its up's
    threads = kMatmulThreads,
    tokens = kMatmulTokens / split,  // of a warp
    fragments = tokens / 8,
    // Products that nobody has waited for read a stage while the next one is begun.
    ahead = kMatmulStages - (kGrouped ? 2 : 1),
    pair_bytes = Tile::bits > 5 ? 1024 : 512,
    copies = kMatmulRowTiles * pair_bytes / 16 / threads,  // of codes, by a thread in a stage
  };
  LATHE_DEVICE int row_tiles(const MatmulCall&) { return kMatmulRowTiles; }
  // The warp's row tiles of the block.
  LATHE_DEVICE int row_tile(const MatmulCall&, int r) { return warp_index() / split * tiles + r; }
};
template <class Way>
LATHE_DEVICE const u8* many_tile_row(const ManyBlock& b, int local) {
  return matmul_tile_row(b.matrix, b.row_block, kMatmulRowTiles, local, b.call.columns,
                         matmul_tile_bytes<Way>(b));
}
// Where a thread's copies come from: operands of the stage to be started, and the row tiles.
template <class Way>
struct MatmulSource {
  const u8* x;
  const u8* row[Way::copies];
};
template <class Way>
LATHE_DEVICE void open_source(const ManyBlock& b, MatmulSource<Way>& source) {
  const i64 token = b.token + thread_index() / 8;
  source.x = b.call.x + token * b.call.width * 2 + thread_index() % 8 * 16;
  LATHE_UNROLL(4)
  for (int i = 0; i < Way::copies; ++i) {
    const int at = (i * Way::threads + thread_index()) * 16;
    source.row[i] = many_tile_row<Way>(b, at / Way::pair_bytes) + at % Way::pair_bytes;
  }
}

template <class Way>
LATHE_DEVICE u8* matmul_tails(const ManyBlock& b, int column) {
  const int slot = column % matmul_tail_slots(b.call.subs / 2);
  return shared_memory() + b.shape.tails + slot * kMatmulRowTiles * b.shape.tail_bytes;
}
template <class Way>
LATHE_DEVICE void start_tails(const ManyBlock& b, int column) {
  const int bytes = matmul_tile_bytes<Way>(b), at = matmul_tail_at(Way::Tile::bits, b.call.subs);
  const int pieces = (bytes - at) / 16;
  u8* to = matmul_tails<Way>(b, column);
  LATHE_UNROLL(2)
  for (int i = 0; i < ceil_div(kMatmulRowTiles * pieces, int{Way::threads}); ++i) {
    const int piece = i * Way::threads + thread_index(), local = piece / pieces;
    if (local >= kMatmulRowTiles) break;
    copy_async(to + local * b.shape.tail_bytes + piece % pieces * 16,
               many_tile_row<Way>(b, local) + column * bytes + at + piece % pieces * 16);
  }
}

// Starts the copies of one stage, if there is one: after that of the stage before.
template <class Way>
LATHE_DEVICE void start_stage(const ManyBlock& b, int stage, MatmulSource<Way>& source) {
  const int pairs = b.call.subs / 2;
  if (stage < b.call.columns * pairs) {
    u8* to = shared_memory() + stage % kMatmulStages * b.shape.stage_bytes;
    const int row = thread_index() / 8, part = thread_index() % 8 ^ (row & 7);
    LATHE_UNROLL(4)
    for (int i = 0; i < kMatmulTokens * 8 / Way::threads; ++i)
      copy_async(to + (32 * i + row) * 128 + part * 16, source.x + i * 64 * b.call.width);
    source.x += 128;
    const int column = stage / pairs, pair = stage % pairs;
    const int at = column * matmul_tile_bytes<Way>(b) + pair_at(Way::Tile::bits, pair);
    LATHE_UNROLL(4)
    for (int i = 0; i < Way::copies; ++i)
      copy_async(to + b.shape.codes + (i * Way::threads + thread_index()) * 16, source.row[i] + at);
    if (pair == 0) start_tails<Way>(b, column);
  }
  copy_async_group();
}

// The warp's part of a stage.
template <class Way>
struct MatmulStage {
  const u8* operands;  // of all tokens
  const u8* codes;     // of the warp's row tiles
  const u8* tails;
  int pair;
};
template <class Way>
LATHE_DEVICE MatmulStage<Way> matmul_stage(const ManyBlock& b, int stage) {
  const int first = warp_index() / Way::split * Way::tiles, pairs = b.call.subs / 2;
  const u8* from = shared_memory() + stage % kMatmulStages * b.shape.stage_bytes;
  return {from, from + b.shape.codes + first * Way::pair_bytes,
          matmul_tails<Way>(b, stage / pairs) + first * b.shape.tail_bytes, stage % pairs};
}

// Operand A of row tile r and sub-block p of the pair.
template <class Way>
LATHE_DEVICE void matmul_operand(const ManyBlock& b, const MatmulStage<Way>& s, int r, int p,
                                 const u32 (&scales)[4], u32 (&a)[2][4]) {
  PairWords words;
  load_pair<typename Way::Tile>(s.codes + r * Way::pair_bytes, s.tails + r * b.shape.tail_bytes,
                                b.call.subs, s.pair, words);
  const u32 factors[2] = {shuffle_of_four(scales[p], s.pair),
                          shuffle_of_four(scales[2 + p], s.pair)};
  tile_operand<typename Way::Tile>(words, p, factors, a);
}

// The products of one stage: 64 values of the warp's row tiles with its tokens.
template <class Way>
LATHE_DEVICE void multiply_stage(const ManyBlock& b, const MatmulStage<Way>& s,
                                 const u32 (&scales)[Way::tiles][4], MatmulSums<Way>& sum) {
  LATHE_UNROLL(2)
  for (int p = 0; p < 2; ++p) {
    if constexpr (Way::grouped != 0) {
      group_wait<1>();  // with what these registers were before
      u32 a[Way::tiles][2][4];
      LATHE_UNROLL(4)
      for (int r = 0; r < Way::tiles; ++r) matmul_operand<Way>(b, s, r, p, scales[r], a[r]);
      group_begin();
      LATHE_UNROLL(2)
      for (int h = 0; h < 2; ++h) {
        LATHE_UNROLL(4)
        for (int r = 0; r < Way::tiles; ++r)
          group_multiply(sum[r], a[r][h][0], a[r][h][1], a[r][h][2], a[r][h][3], s.operands,
                         32 * p + 16 * h);
      }
      group_end();
    } else {
      const int lane = lane_index();
      const u8* column = s.operands + (warp_index() % Way::split * Way::tokens + lane % 8) * 128 +
                         ((4 * p + lane / 8) ^ lane % 8) * 16;
      u32 x[Way::fragments][4];
      LATHE_UNROLL(8)
      for (int j = 0; j < Way::fragments; ++j) load_columns(x[j], column + j * 1024);
      LATHE_UNROLL(4)
      for (int r = 0; r < Way::tiles; ++r) {
        u32 a[2][4];
        matmul_operand<Way>(b, s, r, p, scales[r], a);
        LATHE_UNROLL(8)
        for (int j = 0; j < Way::fragments; ++j) {
          mma_f16_k16(sum[r][j], a[0][0], a[0][1], a[0][2], a[0][3], x[j][0], x[j][1]);
          mma_f16_k16(sum[r][j], a[1][0], a[1][1], a[1][2], a[1][3], x[j][2], x[j][3]);
        }
      }
    }
  }
}

// The sums of four warps' products, once all are there.
template <class Way>
LATHE_DEVICE void settle_sums(MatmulSums<Way>& sum) {
  if constexpr (Way::grouped != 0) {
    group_wait<0>();
    LATHE_UNROLL(4)
    for (int r = 0; r < Way::tiles; ++r) {
      LATHE_UNROLL(16)
      for (int j = 0; j < Way::fragments; ++j) {
        LATHE_UNROLL(4)
        for (int i = 0; i < 4; ++i) group_sum(sum[r][j][i]);
      }
    }
  }
}

// The sums of all stages.
template <class Way>
LATHE_DEVICE void multiply_many(const ManyBlock& b, MatmulSums<Way>& sum) {
  MatmulSource<Way> source;
  open_source<Way>(b, source);
  u32 scales[Way::tiles][4];
  clear_sums<Way>(sum);
  LATHE_UNROLL(4)
  for (int stage = 0; stage < Way::ahead; ++stage) start_stage<Way>(b, stage, source);
  const bool works = matmul_works<Way>(b);
  LATHE_UNROLL(1)
  for (int stage = 0; stage < b.call.columns * (b.call.subs / 2); ++stage) {
    copy_async_wait<Way::ahead - 1>();
    if constexpr (Way::grouped != 0) group_operands_ready();
    block_barrier();  // the stage is there, and all are done with the one before `ahead` of it
    start_stage<Way>(b, stage + Way::ahead, source);
    if (!works) continue;
    const MatmulStage<Way> s = matmul_stage<Way>(b, stage);
    if (s.pair == 0) {
      LATHE_UNROLL(4)
      for (int r = 0; r < Way::tiles; ++r)
        lane_scales<typename Way::Tile>(s.tails + r * b.shape.tail_bytes, b.call.subs, scales[r]);
    }
    multiply_stage<Way>(b, s, scales, sum);
  }
  settle_sums<Way>(sum);
}

}  // namespace lathe::dev
