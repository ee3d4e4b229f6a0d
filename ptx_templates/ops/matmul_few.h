// Owns the products of a block of matmul with few tokens: all of them, and eight row tiles, or two,
// of which four warps each have every fourth tile column.
//
// Copies are a ring of stages ahead, from one row block on to the next: of a stage's operands,
// which all warps share, by a warp of its own, of a tile by the warp that multiplies it, once it
// has read the one in its place. Each warp waits for a stage by itself, so that none is held up by
// another until the ring is empty.
//
// With few tokens what bounds the kernel beside the memory is the instructions of a weight, so a
// stage is as long as can be: its addresses are constants. Where there are few rows, it is how long
// blocks take to meet (ops/matmul_meet.h), so warps of one block meet instead.
#pragma once

#include "ops/matmul_block.h"

namespace lathe::dev {

struct FewBlock : MatmulBlock {
  int first, last;  // groups of tile columns [first, last)
  bool lets_go;     // these are the block's last groups, after which dependents may begin
};

// Where a warp is in the ring; the one that copies has no meetings.
struct FewRing {
  FewShared shape;
  int slot;
  u32 parity, meetings;
};
LATHE_DEVICE u64* few_full(const FewRing& ring) {
  return reinterpret_cast<u64*>(shared_memory() + ring.shape.barriers) + ring.slot;
}
LATHE_DEVICE u64* few_empty(const FewRing& ring) {
  return few_full(ring) + ring.shape.stages;
}
LATHE_DEVICE u8* few_stage(const FewRing& ring) {
  return shared_memory() + ring.slot * ring.shape.stage_bytes;
}
LATHE_DEVICE f32* few_room(const FewRing& ring) {
  return reinterpret_cast<f32*>(shared_memory() + ring.shape.room);
}
LATHE_DEVICE void advance(FewRing& ring) {
  if (++ring.slot == ring.shape.stages) {
    ring.slot = 0;
    ring.parity ^= 1u;
  }
}
// The barrier of those that multiply, behind those of the stages.
LATHE_DEVICE u64* few_meeting(const FewRing& ring) {
  return reinterpret_cast<u64*>(shared_memory() + ring.shape.barriers) + 2 * ring.shape.stages;
}
LATHE_DEVICE void open_ring(const FewRing& ring) {
  if (thread_index() == 0) {
    u64* barriers = few_full(ring);
    const int stages = ring.shape.stages;
    LATHE_UNROLL(8)
    for (int i = 0; i < stages; ++i) {
      hand_over_init(barriers + i, kFewWarps + 1);
      hand_over_init(barriers + stages + i, kFewWarps);
    }
    hand_over_init(few_meeting(ring), kFewWarps);
    copy_barriers_ready();
  }
  block_barrier();
}
// Waits until all of these warps have come.
LATHE_DEVICE void meet_warps(FewRing& ring) {
  u64* barrier = few_meeting(ring);
  warp_barrier();
  if (elected()) hand_over_arrive(barrier);
  copy_barrier_wait(barrier, ring.meetings);
  ring.meetings ^= 1u;
}

template <class Format, int kTokens, int kParts>
struct FewWay {
  using Tile = Format;
  enum : int {
    few = kTokens,
    split = 1,  // as of ManyWay
    tiles = 1,
    threads = int{kFewWarps} * int{kWarp},  // that multiply
    row_tiles = kMatmulRowTiles / kParts,
    parts = kParts,  // columns of a group: warps that share a row tile, but for their last sums
    tokens = kTokens,
    fragments = kTokens / 8,
  };
  // The warp's row tile of the block.
  LATHE_DEVICE int row_tile(int) { return warp_index() % row_tiles; }
};
// The warp's column of a group.
template <class Way>
LATHE_DEVICE int few_part() {
  return warp_index() / Way::row_tiles;
}
template <class Way>
LATHE_DEVICE int few_groups(const MatmulCall& call) {
  return ceil_div(call.columns, int{Way::parts});
}
// Whether the warp has a column of this group of a row block.
template <class Way>
LATHE_DEVICE bool few_has_column(const MatmulCall& call, int group) {
  return call.columns % Way::parts == 0 || group * Way::parts + few_part<Way>() < call.columns;
}
// The slot of the warp's tile.
LATHE_DEVICE u8* few_slot(const FewRing& ring) {
  return few_stage(ring) + ring.shape.tiles + warp_index() * ring.shape.slot_bytes;
}
// Where in its slot a tile from this address lies (ops/weight_stream.h).
LATHE_DEVICE int few_offset(const FewRing& ring, const u8* tile, int bytes) {
  if (bytes % kCopyLine == 0) return 0;
  return min_int(static_cast<int>(reinterpret_cast<u64>(tile) % kCopyLine),
                 ring.shape.slot_bytes - bytes);
}

// Which tile a warp copies next. Groups are counted over all row blocks.
struct FewCopies {
  FewRing ring;
  int at, end;  // groups
  int left;     // of the row block of `at`; 0: it is to be looked up
  int bytes;    // of a tile
  const u8* from;
};

// Starts the copy of the warp's tile of group c.at, if there is one. All lanes call.
template <class Way>
LATHE_DEVICE void copy_tile(const MatmulMatrices& m, const MatmulCall& call, FewCopies& c) {
  if (c.at >= c.end) return;
  const int groups = few_groups<Way>(call), part = few_part<Way>();
  if (c.left == 0) {
    int row_block = c.at / groups;
    const int group = c.at % groups;
    MatmulMatrix matrix;
    const int format = find_matrix(m, call, Way::row_tiles, row_block, matrix);
    c.bytes = operand_tile_bytes(format, call.subs);
    c.left = groups - group;
    c.from = matmul_tile_row(matrix, row_block, Way::row_tiles, Way::row_tile(0), call.columns,
                             c.bytes) +
             (group * Way::parts + part) * c.bytes;
  }
  const bool there = few_has_column<Way>(call, groups - c.left);
  if (elected()) {
    u64* full = few_full(c.ring);
    announce_copies(full, there ? static_cast<u32>(c.bytes) : 0u);
    if (there)
      bulk_copy_part(few_slot(c.ring) + few_offset(c.ring, c.from, c.bytes), c.from,
                     static_cast<u32>(c.bytes), full);
  }
  c.from += Way::parts * c.bytes;
  ++c.at;
  --c.left;
  advance(c.ring);
}

// The operands of groups [begin, end), by a warp that does nothing else. One lane calls.
template <int kTokens, int kParts>
LATHE_DEVICE void copy_operands(const MatmulCall& call, FewRing ring, int begin, int end) {
  const int bytes = few_operand_bytes(kTokens, call.subs);
  const int mean_bytes = call.means ? few_mean_bytes(kTokens, call.subs) : 0;
  const u8* means = call.x + operand_mean_place(0, 0, call.width, kTokens) * 2;
  const int groups = ceil_div(call.columns, kParts);
  LATHE_UNROLL(1)
  for (int at = begin; at < end; ++at) {
    const int column = at % groups * kParts, columns = min_int(kParts, call.columns - column);
    if (at - begin >= ring.shape.stages) copy_barrier_wait(few_empty(ring), ring.parity ^ 1u);
    announce_copies(few_full(ring), static_cast<u32>(columns * (bytes + mean_bytes)));
    bulk_copy_part(few_stage(ring), call.x + column * bytes, static_cast<u32>(columns * bytes),
                   few_full(ring));
    if (call.means)
      bulk_copy_part(few_stage(ring) + ring.shape.means, means + column * mean_bytes,
                     static_cast<u32>(columns * mean_bytes), few_full(ring));
    advance(ring);
  }
}

// Where warps share a row tile, the sums of the first 16 values of all sub-blocks, and those of the
// others: two chains of products, for each product waits for the last one of its own, and such
// blocks often have a multiprocessor to themselves. Elsewhere other warps have the time.
template <class Way>
struct FewSums {
  enum : int { chains = Way::parts > 1 ? 2 : 1 };
  f32 chain[chains][Way::fragments][4];
};

// The products of a tile's offsets and its operands' means.
template <class Way>
LATHE_DEVICE void multiply_offsets(const u32 (&scales)[4], int subs, const u8* means,
                                   FewSums<Way>& sum) {
  const int lane = lane_index();
  const bool there = lane % 4 < subs / 2;
  u32 a[4];
  offset_operand(scales, there, a);
  const u64* of = reinterpret_cast<const u64*>(means) +
                  lane % 4 * (operand_means_of_64(Way::tokens) / 4) + lane / 4;
  LATHE_UNROLL(4)
  for (int j = 0; j < Way::fragments; ++j) {
    const u64 four = there ? of[8 * j] : 0;
    mma_f16_k16(sum.chain[0][j], a[0], a[1], a[2], a[3], static_cast<u32>(four),
                static_cast<u32>(four >> 32));
  }
}

// The products of a stage's column.
template <class Way>
LATHE_DEVICE void multiply_column(const FewBlock& b, const u8* x, const u8* means, const u8* tile,
                                  FewSums<Way>& sum) {
  using Tile = typename Way::Tile;
  const int lane = lane_index(), subs = b.call.subs;
  const bool raised = Tile::affine != 0 && b.call.means != 0;
  const u8* tail = tile + matmul_tail_at(Tile::bits, subs);
  u32 scales[4];
  lane_scales<Tile>(tail, subs, scales);
  if (raised) {
    multiply_offsets<Way>(scales, subs, means, sum);
    raise_scales<Tile>(scales);
  }
  LATHE_UNROLL(4)
  for (int pair = 0; pair < subs / 2; ++pair) {
    PairWords words;
    load_pair<Tile>(tile + pair_at(Tile::bits, pair), tail, subs, pair, words);
    const int owner = (lane & ~3) | pair;
    const u8* columns = x + pair * Way::tokens * 128;
    LATHE_UNROLL(2)
    for (int p = 0; p < 2; ++p) {
      const u32 factors[2] = {shuffle(scales[p], owner), shuffle(scales[2 + p], owner)};
      u32 a[2][4];
      tile_operand<Tile>(words, p, factors, a, raised);
      const u8* column = columns + lane % 8 * 128 + ((4 * p + lane / 8) ^ lane % 8) * 16;
      LATHE_UNROLL(4)
      for (int j = 0; j < Way::fragments; ++j) {
        u32 v[4];
        load_columns(v, column + j * 1024);
        LATHE_UNROLL(2)
        for (int h = 0; h < 2; ++h)
          mma_f16_k16(sum.chain[h % FewSums<Way>::chains][j], a[h][0], a[h][1], a[h][2], a[h][3],
                      v[2 * h], v[2 * h + 1]);
      }
    }
  }
}

// The sums of the warps that share a row tile, in the order of their columns, to the first of them.
template <class Way>
LATHE_DEVICE void join_parts(FewRing& ring, MatmulSums<Way>& sum) {
  constexpr int kSums = Way::fragments * 4 * kWarp;  // of a warp
  f32* sums = few_room(ring) + lane_index();
  meet_warps(ring);  // nobody reads those of the row block before any more
  if (few_part<Way>() > 0) {
    f32* own = sums + (warp_index() - Way::row_tiles) * kSums;
    LATHE_UNROLL(4)
    for (int j = 0; j < Way::fragments; ++j) {
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i) own[(4 * j + i) * kWarp] = sum[0][j][i];
    }
  }
  meet_warps(ring);
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

// The sums of the block's groups.
template <class Way>
LATHE_DEVICE void multiply_few(const MatmulMatrices& m, const FewBlock& b, FewRing& ring,
                               FewCopies& copies, MatmulSums<Way>& sum) {
  const int bytes = matmul_tile_bytes<Way>(b), part = few_part<Way>();
  const u8* from = matmul_tile_row(b.matrix, b.row_block, Way::row_tiles, Way::row_tile(0),
                                   b.call.columns, bytes) +
                   part * bytes;
  FewSums<Way> own = {};
  LATHE_UNROLL(1)
  for (int group = b.first; group < b.last; ++group) {
    copy_barrier_wait(few_full(ring), ring.parity);
    if (few_has_column<Way>(b.call, group)) {
      const u8* x = few_stage(ring) + part * few_operand_bytes(Way::tokens, b.call.subs);
      const u8* means =
          few_stage(ring) + ring.shape.means + part * few_mean_bytes(Way::tokens, b.call.subs);
      const u8* tile = few_slot(ring) + few_offset(ring, from + group * Way::parts * bytes, bytes);
      multiply_column<Way>(b, x, means, tile, own);
    }
    warp_barrier();
    if (elected()) hand_over_arrive(few_empty(ring));
    advance(ring);
    copy_tile<Way>(m, b.call, copies);
  }
  if (b.lets_go) allow_dependents();
  LATHE_UNROLL(4)
  for (int j = 0; j < Way::fragments; ++j) {
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      sum[0][j][i] = own.chain[0][j][i];
      if constexpr (FewSums<Way>::chains > 1) sum[0][j][i] += own.chain[1][j][i];
    }
  }
  if constexpr (int{Way::parts} > 1) join_parts<Way>(ring, sum);
}

}  // namespace lathe::dev
