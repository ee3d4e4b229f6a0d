// Owns how blocks of matmul share the work where tokens are few, and the meeting of those that have
// parts of one row block.
//
// All groups of tile columns of all row blocks stand in one line, which is cut into as many equal
// pieces as there are blocks: every multiprocessor has the same weights to read, whatever the
// shape. A row block that two or more blocks have parts of is one that a block before has begun,
// or one that the block itself begins: at most two, each with a place in scratch memory. Each warp
// leaves its sums there and goes on. Behind its last products it arrives at both, and the last to
// come at a row tile adds up all of its sums, in the order of the groups.
#pragma once

#include "ops/matmul_few.h"
#include "ops/matmul_rows.h"

namespace lathe::dev {

struct MatmulMeeting {
  f32* partial;   // few_partial_floats() for each block
  u32* counters;  // arrivals of each row block at each of its places, modulo kArrivals
  int blocks;
  int meets;               // whether any row block is shared
  int groups, row_groups;  // of all row blocks, and of one
  int row_tiles;           // of a row block
};

// The blocks that have parts of a row block.
struct FewSharers {
  int first, last;
};
LATHE_DEVICE FewSharers few_sharers(const MatmulMeeting& m, int row_block) {
  const int group = row_block * m.row_groups;
  return {block_of_group(group, m.blocks, m.groups),
          block_of_group(group + m.row_groups - 1, m.blocks, m.groups)};
}

// The sums of a block's row tile: the first of its lanes', of fragment 0.
template <class Way>
LATHE_DEVICE f32* few_partial(const MatmulMeeting& m, int block, bool begun, int tile) {
  constexpr int kSums = Way::fragments * 4 * kWarp;
  const i64 place = static_cast<i64>(block) * 2 + (begun ? 1 : 0);
  return m.partial + (place * m.row_tiles + tile) * kSums;
}

template <class Way>
LATHE_DEVICE void leave_sums(const FewBlock& b, const MatmulMeeting& m,
                             const MatmulSums<Way>& sum) {
  LATHE_UNROLL(2)
  for (int r = 0; r < Way::tiles; ++r) {
    f32* own = few_partial<Way>(m, block_x(), b.first == 0, Way::row_tile(b.call, r));
    LATHE_UNROLL(4)
    for (int j = 0; j < Way::fragments; ++j)
      *reinterpret_cast<f32x4*>(own + (j * kWarp + lane_index()) * 4) = {
          sum[r][j][0], sum[r][j][1], sum[r][j][2], sum[r][j][3]};
  }
}

// The sums of a row tile, of all blocks in the order of their groups.
template <class Way>
LATHE_DEVICE void add_sums(const MatmulMeeting& m, const FewSharers& by, int tile,
                           f32 (&sum)[Way::fragments][4]) {
  // Several blocks' at a time are on their way.
  enum : int { at_once = Way::fragments > 2 ? 2 : 4 };
  LATHE_UNROLL(4)
  for (int j = 0; j < Way::fragments; ++j) sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0;
  LATHE_UNROLL(1)
  for (int block = by.first; block <= by.last; block += at_once) {
    u32x4 part[at_once][Way::fragments];
    LATHE_UNROLL(4)
    for (int n = 0; n < at_once; ++n) {
      const int other = min_int(block + n, by.last);
      const f32* from = few_partial<Way>(m, other, other == by.first, tile) + lane_index() * 4;
      LATHE_UNROLL(4)
      for (int j = 0; j < Way::fragments; ++j)
        part[n][j] = load_relaxed(reinterpret_cast<const u32x4*>(from + j * kWarp * 4));
    }
    LATHE_UNROLL(4)
    for (int n = 0; n < at_once; ++n) {
      if (block + n > by.last) break;
      LATHE_UNROLL(4)
      for (int j = 0; j < Way::fragments; ++j) {
        sum[j][0] = sum[j][0] + as_f32(part[n][j].x);
        sum[j][1] = sum[j][1] + as_f32(part[n][j].y);
        sum[j][2] = sum[j][2] + as_f32(part[n][j].z);
        sum[j][3] = sum[j][3] + as_f32(part[n][j].w);
      }
    }
  }
}

// Writes the rows of the warp's row tiles of a row block.
template <class Way>
LATHE_DEVICE void finish_row_tiles(const MatmulMatrices& matrices, const MatmulCall& call,
                                   const MatmulMeeting& m, int row_block) {
  const FewSharers by = few_sharers(m, row_block);
  MatmulBlock b = {call, {}, row_block, 0};
  if (!matmul_works<Way>(b)) return;
  find_matrix(matrices, call, m.row_tiles, b.row_block, b.matrix);
  MatmulSums<Way> sum;
  if (!call.gated) {
    LATHE_UNROLL(2)
    for (int r = 0; r < Way::tiles; ++r) add_sums<Way>(m, by, Way::row_tile(call, r), sum[r]);
    return store_rows<Way>(b, sum);
  }
  const int half = m.row_tiles / 2, gate = warp_index() % half;
  f32 ups[Way::fragments][4];
  add_sums<Way>(m, by, gate, sum[0]);
  add_sums<Way>(m, by, gate + half, ups);
  store_gated_tile<Way>(b, b.row_block * half + gate, sum[0],
                        [&](int j, int i) { return ups[j][i]; });
}

// After a block's groups [begin, end): lane 0 arrives at the row block that others have begun, if
// there is one, lane 1 at the one that the block has begun itself and not ended.
template <class Way>
LATHE_DEVICE void finish_meetings(const MatmulMatrices& matrices, const MatmulCall& call,
                                  const MatmulMeeting& m, int begin, int end) {
  if (!m.meets || few_part(call) > 0) return;
  const int lane = lane_index(), last = (end - 1) / m.row_groups;
  const int row_block = lane == 0 ? begin / m.row_groups : last;
  const bool begun = end % m.row_groups != 0 && last * m.row_groups >= begin;
  warp_barrier();
  u32 arrivals = 1;
  if (lane == 0 ? begin % m.row_groups != 0 : lane == 1 && begun) {
    const FewSharers by = few_sharers(m, row_block);
    const int places = meeting_places(call.warps);
    const int whole = kArrivals * places / few_row_warps(call.warps);  // of a gate, and of its up
    const u32 arrival = static_cast<u32>(lane == 0 ? 1 : whole - (by.last - by.first));
    arrivals =
        arrival + atomic_add(m.counters + row_block * places + warp_index() % places, arrival);
  }
  warp_barrier();
  LATHE_UNROLL(1)
  for (int i = 0; i < 2; ++i) {
    if (shuffle(arrivals, i) % kArrivals == 0)
      finish_row_tiles<Way>(matrices, call, m, i == 0 ? begin / m.row_groups : last);
  }
}

}  // namespace lathe::dev
