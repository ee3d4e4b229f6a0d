// Owns how blocks of matmul share the work where tokens are few, and the meeting of those that have
// parts of one row block.
//
// All groups of tile columns of all row blocks stand in one line, which is cut into as many equal
// pieces as there are blocks: every multiprocessor has the same weights to read, whatever the
// shape. Of a row block that two or more blocks have parts of, each leaves its sums in scratch
// memory, and the last one to come adds them up in the order of the groups.
#pragma once

#include "ops/matmul_few.h"

namespace lathe::dev {

struct MatmulMeeting {
  f32* partial;   // few_partial_floats() for each block
  u32* counters;  // arrivals, of each row block, modulo kArrivals
  int blocks;
  int groups;     // of all row blocks
  int row_block;  // of all
};

// A block leaves the sums of a row block's first groups in the second of its two places, others in
// the first: at most one of each.
template <class Way>
LATHE_DEVICE f32* partial_of(const MatmulMeeting& m, int block, bool begins) {
  return m.partial +
         (static_cast<i64>(block) * 2 + (begins ? 1 : 0)) * (Way::fragments * 4 * Way::threads) +
         thread_index();
}

// Adds up the sums of all blocks that have a part of the row block, if this is the last of them to
// come: in the others the result is false, and in warps whose sums another one has.
template <class Way>
LATHE_DEVICE bool meet(const FewBlock& b, const MatmulMeeting& m, FewRing& ring,
                       MatmulSums<Way>& sum) {
  const int groups = few_groups<Way>(b.call);
  const int first = block_of_group(m.row_block * groups, m.blocks, m.groups);
  const int last = block_of_group((m.row_block + 1) * groups - 1, m.blocks, m.groups);
  const bool has_sums = few_part<Way>() == 0;
  if (first == last) return has_sums;
  f32* own = partial_of<Way>(m, block_x(), b.first == 0);
  LATHE_UNROLL(4)
  for (int j = 0; j < Way::fragments; ++j) {
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i)
      if (has_sums) own[(4 * j + i) * Way::threads] = sum[0][j][i];
  }
  u32* is_last = reinterpret_cast<u32*>(few_meeting(ring) + 1);
  meet_warps(ring);
  if (thread_index() == 0) {
    const u32 arrival = static_cast<u32>(b.first == 0 ? kArrivals - (last - first) : 1);
    const u32 before = atomic_add(m.counters + m.row_block, arrival);
    *is_last = (before + arrival) % kArrivals == 0;
  }
  meet_warps(ring);
  if (!*is_last || !has_sums) return false;
  clear_sums<Way>(sum);
  // Several blocks' at a time are on their way.
  enum : int { at_once = Way::fragments > 2 ? 2 : 4 };
  LATHE_UNROLL(1)
  for (int block = first; block <= last; block += at_once) {
    u32 part[at_once][Way::fragments][4];
    LATHE_UNROLL(4)
    for (int n = 0; n < at_once; ++n) {
      const int other = min_int(block + n, last);
      const u32* from = reinterpret_cast<const u32*>(partial_of<Way>(m, other, other == first));
      LATHE_UNROLL(4)
      for (int j = 0; j < Way::fragments; ++j) {
        LATHE_UNROLL(4)
        for (int i = 0; i < 4; ++i) part[n][j][i] = load_relaxed(from + (4 * j + i) * Way::threads);
      }
    }
    LATHE_UNROLL(4)
    for (int n = 0; n < at_once; ++n) {
      LATHE_UNROLL(4)
      for (int j = 0; j < Way::fragments; ++j) {
        LATHE_UNROLL(4)
        for (int i = 0; i < 4; ++i)
          sum[0][j][i] = block + n <= last ? sum[0][j][i] + as_f32(part[n][j][i]) : sum[0][j][i];
      }
    }
  }
  return true;
}

}  // namespace lathe::dev
