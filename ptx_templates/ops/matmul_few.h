// Owns the products of a block of matmul with few tokens: all of them, and some row tiles, whose
// tile columns warps may share. A warp that has two row tiles reads operands once for both.
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
LATHE_DEVICE void open_ring(const FewRing& ring, int warps) {
  if (thread_index() == 0) {
    u64* barriers = few_full(ring);
    const int stages = ring.shape.stages;
    LATHE_UNROLL(8)
    for (int i = 0; i < stages; ++i) {
      hand_over_init(barriers + i, static_cast<u32>(warps + 1));
      hand_over_init(barriers + stages + i, static_cast<u32>(warps));
    }
    hand_over_init(few_meeting(ring), static_cast<u32>(warps));
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

// kChains: a warp's sums of a row tile, each of which waits for its own last product alone.
template <class Format, int kTokens, int kTiles, int kChains>
struct FewWay {
  using Tile = Format;
  enum : int {
    few = kTokens,
    split = 1,  // as of ManyWay
    tiles = kTiles,
    gate_pairs = kTiles > 1,
    chains = kChains,
    tokens = kTokens,
    fragments = kTokens / 8,
  };
  LATHE_DEVICE int row_tiles(const MatmulCall& call) { return few_row_tiles(call.warps); }
  // The warp's row tiles of the block.
  LATHE_DEVICE int row_tile(const MatmulCall& call, int r) {
    const int warps = few_row_warps(call.warps);
    return warp_index() % warps + r * warps;
  }
};
// The warp's column of a group.
LATHE_DEVICE int few_part(const MatmulCall& call) {
  return call.warps.parts == 1 ? 0 : warp_index() / few_row_warps(call.warps);
}
LATHE_DEVICE int few_groups(const MatmulCall& call) {
  return ceil_div(call.columns, call.warps.parts);
}
// Whether the warp has a column of this group of a row block.
LATHE_DEVICE bool few_has_column(const MatmulCall& call, int group) {
  return call.columns % call.warps.parts == 0 ||
         group * call.warps.parts + few_part(call) < call.columns;
}
// The slot of the warp's tile of row tile r.
template <class Way>
LATHE_DEVICE u8* few_slot(const FewRing& ring, int r) {
  return few_stage(ring) + ring.shape.tiles +
         (warp_index() * Way::tiles + r) * ring.shape.slot_bytes;
}
// Where in its slot a tile from this address lies (ops/weight_stream.h).
LATHE_DEVICE int few_offset(const FewRing& ring, const u8* tile, int bytes) {
  if (bytes % kCopyLine == 0) return 0;
  return min_int(static_cast<int>(reinterpret_cast<u64>(tile) % kCopyLine),
                 ring.shape.slot_bytes - bytes);
}

// Which tiles a warp copies next. Groups are counted over all row blocks.
template <class Way>
struct FewCopies {
  FewRing ring;
  int at, end;  // groups
  int left;     // of the row block of `at`; 0: it is to be looked up
  int bytes;    // of a tile
  const u8* from[Way::tiles];
};

// The warp's tiles of a row block's first group.
template <class Way>
LATHE_DEVICE void few_rows(const MatmulCall& call, const MatmulMatrix& matrix, int row_block,
                           int bytes, const u8* (&rows)[Way::tiles]) {
  LATHE_UNROLL(2)
  for (int r = 0; r < Way::tiles; ++r)
    rows[r] = matmul_tile_row(matrix, row_block, Way::row_tiles(call), Way::row_tile(call, r),
                              call.columns, bytes) +
              few_part(call) * bytes;
}

// Starts the copies of the warp's tiles of group c.at, if there is one. All lanes call.
template <class Way>
LATHE_DEVICE void copy_tiles(const MatmulMatrices& m, const MatmulCall& call, FewCopies<Way>& c) {
  if (c.at >= c.end) return;
  const int groups = few_groups(call);
  if (c.left == 0) {
    int row_block = c.at / groups;
    const int group = c.at % groups;
    MatmulMatrix matrix;
    const int format = find_matrix(m, call, Way::row_tiles(call), row_block, matrix);
    c.bytes = operand_tile_bytes(format, call.subs);
    c.left = groups - group;
    few_rows<Way>(call, matrix, row_block, c.bytes, c.from);
    LATHE_UNROLL(2)
    for (int r = 0; r < Way::tiles; ++r) c.from[r] += group * call.warps.parts * c.bytes;
  }
  const bool there = few_has_column(call, groups - c.left);
  if (elected()) {
    u64* full = few_full(c.ring);
    announce_copies(full, there ? static_cast<u32>(Way::tiles * c.bytes) : 0u);
    LATHE_UNROLL(2)
    for (int r = 0; r < Way::tiles; ++r) {
      if (there)
        bulk_copy_part(few_slot<Way>(c.ring, r) + few_offset(c.ring, c.from[r], c.bytes), c.from[r],
                       static_cast<u32>(c.bytes), full);
    }
  }
  LATHE_UNROLL(2)
  for (int r = 0; r < Way::tiles; ++r) c.from[r] += call.warps.parts * c.bytes;
  ++c.at;
  --c.left;
  advance(c.ring);
}

// The operands of groups [begin, end), by a warp that does nothing else. One lane calls.
template <int kTokens>
LATHE_DEVICE void copy_operands(const MatmulCall& call, FewRing ring, int begin, int end) {
  const int bytes = few_operand_bytes(kTokens, call.subs), parts = call.warps.parts;
  const int mean_bytes = call.means ? few_mean_bytes(kTokens, call.subs) : 0;
  const u8* means = call.x + operand_mean_place(0, 0, call.width, kTokens) * 2;
  const int groups = few_groups(call);
  LATHE_UNROLL(1)
  for (int at = begin; at < end; ++at) {
    const int column = at % groups * parts, columns = min_int(parts, call.columns - column);
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

// What a warp multiplies in a stage.
template <class Way>
struct FewColumn {
  const u8 *x, *means;
  const u8* tile[Way::tiles];
  u32 rows[2];  // where in eight tokens' operands those of the lane are, of each half of a pair
};
// Two chains where warps share k and have one row tile: of the first 16 values of all sub-blocks,
// and of the others.
template <class Way>
struct FewSums {
  f32 of[Way::tiles][Way::chains][Way::fragments][4];
};

// The products of tiles' offsets and their operands' means.
template <class Way>
LATHE_DEVICE void multiply_offsets(const u32 (&scales)[Way::tiles][4], int subs, const u8* means,
                                   FewSums<Way>& sum) {
  const int lane = lane_index();
  const bool there = lane % 4 < subs / 2;
  u32 a[Way::tiles][4];
  LATHE_UNROLL(2)
  for (int r = 0; r < Way::tiles; ++r) offset_operand(scales[r], there, a[r]);
  const u64* of = reinterpret_cast<const u64*>(means) +
                  lane % 4 * (operand_means_of_64(Way::tokens) / 4) + lane / 4;
  LATHE_UNROLL(4)
  for (int j = 0; j < Way::fragments; ++j) {
    const u64 four = there ? of[8 * j] : 0;
    LATHE_UNROLL(2)
    for (int r = 0; r < Way::tiles; ++r)
      mma_f16_k16(sum.of[r][0][j], a[r][0], a[r][1], a[r][2], a[r][3], static_cast<u32>(four),
                  static_cast<u32>(four >> 32));
  }
}

// The products of a stage's column.
template <class Way>
LATHE_DEVICE void multiply_column(const MatmulCall& call, const FewColumn<Way>& c,
                                  FewSums<Way>& sum) {
  using Tile = typename Way::Tile;
  const int subs = call.subs;
  const int tail = matmul_tail_at(Tile::bits, subs);
  const bool raised = Tile::affine != 0 && call.means != 0;
  u32 scales[Way::tiles][4];
  LATHE_UNROLL(2)
  for (int r = 0; r < Way::tiles; ++r) lane_scales<Tile>(c.tile[r] + tail, subs, scales[r]);
  if (raised) {
    multiply_offsets<Way>(scales, subs, c.means, sum);
    LATHE_UNROLL(2)
    for (int r = 0; r < Way::tiles; ++r) raise_scales<Tile>(scales[r]);
  }
  LATHE_UNROLL(4)
  for (int pair = 0; pair < subs / 2; ++pair) {
    PairWords words[Way::tiles];
    LATHE_UNROLL(2)
    for (int r = 0; r < Way::tiles; ++r)
      load_pair<Tile>(c.tile[r] + pair_at(Tile::bits, pair), c.tile[r] + tail, subs, pair,
                      words[r]);
    const u8* columns = c.x + pair * Way::tokens * 128;
    LATHE_UNROLL(2)
    for (int p = 0; p < 2; ++p) {
      u32 a[Way::tiles][2][4];
      LATHE_UNROLL(2)
      for (int r = 0; r < Way::tiles; ++r) {
        const u32 factors[2] = {shuffle_of_four(scales[r][p], pair),
                                shuffle_of_four(scales[r][2 + p], pair)};
        tile_operand<Tile>(words[r], p, factors, a[r], raised);
      }
      LATHE_UNROLL(4)
      for (int j = 0; j < Way::fragments; ++j) {
        u32 v[4];
        load_columns(v, columns + c.rows[p] + j * 1024);
        LATHE_UNROLL(2)
        for (int h = 0; h < 2; ++h) {
          LATHE_UNROLL(2)
          for (int r = 0; r < Way::tiles; ++r)
            mma_f16_k16(sum.of[r][h % Way::chains][j], a[r][h][0], a[r][h][1], a[r][h][2],
                        a[r][h][3], v[2 * h], v[2 * h + 1]);
        }
      }
    }
  }
}

// The sums of the warps that share row tiles, in the order of their columns, to the first of them.
template <class Way>
LATHE_DEVICE void join_parts(const MatmulCall& call, FewRing& ring, MatmulSums<Way>& sum) {
  constexpr int kSums = Way::tiles * Way::fragments * 4 * kWarp;  // of a warp
  const int row_warps = few_row_warps(call.warps);
  f32* sums = few_room(ring) + lane_index();
  meet_warps(ring);  // nobody reads what was there any more
  if (few_part(call) > 0) {
    f32* own = sums + (warp_index() - row_warps) * kSums;
    LATHE_UNROLL(2)
    for (int r = 0; r < Way::tiles; ++r) {
      LATHE_UNROLL(4)
      for (int j = 0; j < Way::fragments; ++j) {
        LATHE_UNROLL(4)
        for (int i = 0; i < 4; ++i) own[((r * Way::fragments + j) * 4 + i) * kWarp] = sum[r][j][i];
      }
    }
  }
  meet_warps(ring);
  if (few_part(call) > 0) return;
  LATHE_UNROLL(4)
  for (int part = 1; part < call.warps.parts; ++part) {
    const f32* other = sums + (warp_index() + (part - 1) * row_warps) * kSums;
    LATHE_UNROLL(2)
    for (int r = 0; r < Way::tiles; ++r) {
      LATHE_UNROLL(4)
      for (int j = 0; j < Way::fragments; ++j) {
        LATHE_UNROLL(4)
        for (int i = 0; i < 4; ++i)
          sum[r][j][i] = sum[r][j][i] + other[((r * Way::fragments + j) * 4 + i) * kWarp];
      }
    }
  }
}

// The sums of the block's groups. Copies go on by AnyWay, whatever a block's format.
template <class Way, class AnyWay>
LATHE_DEVICE void multiply_few(const MatmulMatrices& m, const FewBlock& b, FewRing& ring,
                               FewCopies<AnyWay>& copies, MatmulSums<Way>& sum) {
  const int bytes = matmul_tile_bytes<Way>(b), part = few_part(b.call);
  const u8* rows[Way::tiles];
  few_rows<Way>(b.call, b.matrix, b.row_block, bytes, rows);
  FewSums<Way> own = {};
  FewColumn<Way> column;
  const int lane = lane_index();
  LATHE_UNROLL(2)
  for (int p = 0; p < 2; ++p)  // pinned, or each of them plus j * 1024 is kept
    column.rows[p] =
        pinned(static_cast<u32>(lane % 8 * 128 + ((4 * p + lane / 8) ^ lane % 8) * 16));
  LATHE_UNROLL(1)
  for (int group = b.first; group < b.last; ++group) {
    copy_barrier_wait(few_full(ring), ring.parity);
    if (few_has_column(b.call, group)) {
      column.x = few_stage(ring) + part * few_operand_bytes(Way::tokens, b.call.subs);
      column.means =
          few_stage(ring) + ring.shape.means + part * few_mean_bytes(Way::tokens, b.call.subs);
      LATHE_UNROLL(2)
      for (int r = 0; r < Way::tiles; ++r)
        column.tile[r] = few_slot<Way>(ring, r) +
                         few_offset(ring, rows[r] + group * b.call.warps.parts * bytes, bytes);
      multiply_column<Way>(b.call, column, own);
    }
    warp_barrier();
    if (elected()) hand_over_arrive(few_empty(ring));
    advance(ring);
    copy_tiles<AnyWay>(m, b.call, copies);
  }
  if (b.lets_go) allow_dependents();
  LATHE_UNROLL(2)
  for (int r = 0; r < Way::tiles; ++r) {
    LATHE_UNROLL(4)
    for (int j = 0; j < Way::fragments; ++j) {
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        sum[r][j][i] = own.of[r][0][j][i];
        if constexpr (int{Way::chains} > 1) sum[r][j][i] += own.of[r][1][j][i];
      }
    }
  }
  if (b.call.warps.parts > 1) join_parts<Way>(b.call, ring, sum);
}

}  // namespace lathe::dev
