// Owns y[token] = W x[token] for the tokens of a chunk: up to three matrices of tiles, read as
// decoding reads them, times f16 operands, summed in f32 by the matrix units.
//
// With many tokens a block has 128 of them and eight row tiles. With few it has all tokens and a
// piece of the work (ops/matmul_meet.h).
#pragma once

#include "ops/matmul_many.h"
#include "ops/matmul_meet.h"
#include "ops/matmul_rows.h"

namespace lathe::dev {

template <class Way>
LATHE_DEVICE void matmul_block(const ManyBlock& b) {
  MatmulSums<Way> sum;
  multiply_many<Way>(b, sum);
  store_sums<Way>(b, sum, reinterpret_cast<f32*>(shared_memory()), [] { block_barrier(); });
}
template <class Way, class AnyWay>
LATHE_DEVICE void matmul_block(const MatmulMatrices& m, const FewBlock& b,
                               const MatmulMeeting& meeting, FewRing& ring,
                               FewCopies<AnyWay>& copies) {
  MatmulSums<Way> sum;
  multiply_few<Way>(m, b, ring, copies, sum);
  if (few_part(b.call) > 0) return;  // others have the sums
  if (meeting.meets && b.last - b.first < meeting.row_groups)
    return leave_sums<Way>(b, meeting, sum);
  store_sums<Way>(b, sum, few_room(ring), [&] { meet_warps(ring); });
}

// How a block's work is shared out, by the tiles it reads.
template <bool kGrouped>
struct ManyWays {
  template <class Tile>
  using Way = ManyWay<Tile, kGrouped>;
};
template <int kTokens, int kTiles, int kChains>
struct FewWays {
  template <class Tile>
  using Way = FewWay<Tile, kTokens, kTiles, kChains>;
};

template <class Ways, class... Block>
LATHE_DEVICE void matmul_of(const MatmulMatrices& m, int format, Block&... block) {
  const u32 formats = 1u << m.format0 | 1u << m.format1 | 1u << m.format2;
#define LATHE_MATMUL_CASE(number, Tile)                  \
  if ((formats >> number & 1u) != 0 && format == number) \
    return matmul_block<typename Ways::template Way<Tile>>(block...);
  LATHE_MATMUL_FORMATS(LATHE_MATMUL_CASE)
#undef LATHE_MATMUL_CASE
}

// As many tokens as the grid has room for, at most.
template <bool kGrouped>
LATHE_DEVICE void matmul_many(const MatmulMatrices& m, const MatmulCall& call,
                              const MatmulShared& shape) {
  if (block_x() * kMatmulTokens >= call.tokens) return;
  ManyBlock block = {{call, {}, block_y(), block_x() * kMatmulTokens}, shape};
  const int format = find_matrix(m, call, kMatmulRowTiles, block.row_block, block.matrix);
  matmul_of<ManyWays<kGrouped>>(m, format, block);
}

// At most kTokens. A kernel that begins early has tiles on their way before it waits for what made
// the operands, and lets the next one begin when its last products are made.
template <int kTokens, int kTiles, int kChains>
LATHE_DEVICE void matmul_few(const MatmulMatrices& m, const MatmulCall& call, MatmulMeeting meeting,
                             const FewShared& shape, bool early) {
  using Ways = FewWays<kTokens, kTiles, kChains>;
  const int groups = few_groups(call);
  meeting.row_groups = groups;
  meeting.row_tiles = few_row_tiles(call.warps);
  meeting.groups = all_row_blocks(m, call.gated, meeting.row_tiles) * groups;
  meeting.blocks = min_int(meeting.blocks, meeting.groups);
  if (block_x() >= meeting.blocks) {
    if (early) wait_for_predecessor();
    return;
  }
  const int begin = groups_before(block_x(), meeting.blocks, meeting.groups);
  const int end = groups_before(block_x() + 1, meeting.blocks, meeting.groups);
  int at = begin;
  FewRing ring = {shape, 0, 0, 0};
  open_ring(ring, call.warps.all);
  if (uniform(warp_index()) == call.warps.all) {
    if (early) wait_for_predecessor();
    if (elected()) copy_operands<kTokens>(call, ring, at, end);
    return;
  }
  using AnyWay = typename Ways::template Way<OperandQ8_0>;
  FewCopies<AnyWay> copies = {ring, at, end, 0, 0, {}};
  LATHE_UNROLL(1)
  for (int i = 0; i < shape.stages; ++i) copy_tiles<AnyWay>(m, call, copies);
  if (early) wait_for_predecessor();
  LATHE_UNROLL(1)
  do {
    const int first = at % groups, last = min_int(groups, first + end - at);
    const bool lets_go = early && at + last - first == end;
    FewBlock block = {{call, {}, at / groups, 0}, first, last, lets_go};
    const int format = find_matrix(m, call, meeting.row_tiles, block.row_block, block.matrix);
    matmul_of<Ways>(m, format, m, block, meeting, ring, copies);
    at += last - first;
  } while (!shape.whole && at < end);
  finish_meetings<AnyWay>(m, call, meeting, begin, end);
}

// What four warps do together has no instructions elsewhere, so it has ops of its own.
#define LATHE_MATMUL_PARAMETERS                                                                  \
  const u8 *w0, const u8 *w1, const u8 *w2, const i32 *chunk, const u8 *x, const f32 *bias0,     \
      const f32 *bias1, const f32 *bias2, const f32 *residual, void *y, int k, int subs, int n0, \
      int n1, int n2, int format0, int format1, int format2, int gated, int activation, int means
#define LATHE_MATMUL_CALL(warps)                                               \
  const MatmulMatrices m = {                                                   \
      w0, w1, w2, bias0, bias1, bias2, n0, n1, n2, format0, format1, format2}; \
  const MatmulCall call = {x,                                                  \
                           residual,                                           \
                           y,                                                  \
                           chunk[0],                                           \
                           operand_width(k),                                   \
                           n0 + n1 + n2,                                       \
                           operand_width(n0),                                  \
                           subs,                                               \
                           tile_subs_total(k) / subs,                          \
                           gated,                                              \
                           activation,                                         \
                           means,                                              \
                           warps};
#define LATHE_MATMUL_OP(name, kGrouped)                                          \
  LATHE_OP name(LATHE_MATMUL_PARAMETERS, int pair_bytes, int tail_bytes) {       \
    LATHE_MATMUL_CALL({})                                                        \
    matmul_many<kGrouped>(m, call, matmul_shared(pair_bytes, tail_bytes, subs)); \
  }
LATHE_MATMUL_OP(matmul, false)
LATHE_MATMUL_OP(matmul_grouped, true)

// With few tokens: `blocks` share the work, each with `warps` that multiply, of which `parts` share
// row tiles. Where parts > 1 and a warp has one row tile, it has two chains of products.
#define LATHE_FEW_OP(name, kTokens, kTiles, kChains)                                              \
  LATHE_OP name(LATHE_MATMUL_PARAMETERS, int slot_bytes, f32* partial, i32* counters, int blocks, \
                int warps, int parts, int whole, int meets, int stages, int early) {              \
    const FewWarps team = {warps, parts, kTiles, gated};                                          \
    LATHE_MATMUL_CALL(team)                                                                       \
    matmul_few<kTokens, kTiles, kChains>(                                                         \
        m, call, {partial, reinterpret_cast<u32*>(counters), blocks, meets, 0, 0, 0},             \
        few_shared(kTokens, team, slot_bytes, subs, stages, whole, means), early != 0);           \
  }
LATHE_FEW_OP(matmul_of_8, 8, 1, 1)
LATHE_FEW_OP(matmul_of_16, 16, 1, 1)
LATHE_FEW_OP(matmul_of_32, 32, 1, 1)
LATHE_FEW_OP(matmul_of_8_split, 8, 1, 2)
LATHE_FEW_OP(matmul_of_16_split, 16, 1, 2)
LATHE_FEW_OP(matmul_of_32_split, 32, 1, 2)
LATHE_FEW_OP(matmul_of_8_paired, 8, 2, 1)
LATHE_FEW_OP(matmul_of_16_paired, 16, 2, 1)
LATHE_FEW_OP(matmul_of_32_paired, 32, 2, 1)
#undef LATHE_MATMUL_CALL
#undef LATHE_MATMUL_PARAMETERS

}  // namespace lathe::dev
