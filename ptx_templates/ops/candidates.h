// Owns candidates, values with their indices as numbers that compare, and the networks by which a
// warp and a block keep the 64 greatest of any number of them.
//
// The loops of the networks stay loops: each runs once or twice per token, and then the time to
// fetch code counts for more than what unrolling saves.
#pragma once

#include "isa/isa.h"
#include "ops/launch_shapes.h"

namespace lathe::dev {

// The greater candidate is the greater value and, of equal values, the lower index; no two are
// equal. NaN is none. 0 stands for none and is less than all.
LATHE_DEVICE u64 candidate(f32 value, i32 index) {
  if (value != value) return 0;
  const u32 bits = value == 0.0f ? 0u : as_u32(value);  // zeros of either sign are equal
  const u32 order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<u64>(order) << 32 | ~static_cast<u32>(index);
}
LATHE_DEVICE f32 candidate_value(u64 c) {
  const u32 order = static_cast<u32>(c >> 32);
  return as_f32(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}
LATHE_DEVICE i32 candidate_index(u64 c) {
  return static_cast<i32>(~static_cast<u32>(c));
}

LATHE_DEVICE u64 greater(u64 a, u64 b) {
  return a > b ? a : b;
}

LATHE_DEVICE u64 shuffle_xor(u64 v, int mask) {
  const u32 low = shuffle_xor(static_cast<u32>(v), mask);
  return static_cast<u64>(shuffle_xor(static_cast<u32>(v >> 32), mask)) << 32 | low;
}
LATHE_DEVICE u64 shuffle(u64 v, int lane) {
  const u32 low = shuffle(static_cast<u32>(v), lane);
  return static_cast<u64>(shuffle(static_cast<u32>(v >> 32), lane)) << 32 | low;
}

// The warp's greatest, in every lane.
LATHE_DEVICE u64 warp_greatest(u64 c) {
  LATHE_UNROLL(5)
  for (int mask = kWarp / 2; mask > 0; mask /= 2) c = greater(c, shuffle_xor(c, mask));
  return c;
}

// The block's greatest, in every thread. `shared` holds one per warp.
LATHE_DEVICE u64 block_greatest(u64 c, u64* shared, int warps) {
  c = warp_greatest(c);
  if (warps == 1) return c;
  if (lane_index() == 0) shared[warp_index()] = c;
  block_barrier();
  c = shared[0];
  LATHE_UNROLL(8)
  for (int w = 1; w < warps; ++w) c = greater(c, shared[w]);
  return c;
}

// 64 candidates of a warp: those at `lane` and at `lane` + 32.
struct Candidates {
  u64 first, second;
};

// This lane's candidate after its comparison with that of the lane `stride` away.
LATHE_DEVICE u64 compared(u64 mine, int stride, bool keep_greater) {
  const u64 other = shuffle_xor(mine, stride);
  return keep_greater == (other > mine) ? other : mine;
}

// Batcher's bitonic sort, least first: runs of 2, 4 ... 64 that rise and fall in turn.
LATHE_DEVICE Candidates sort_rising(Candidates c) {
  LATHE_UNROLL(1)
  for (int run = 2; run <= kWarp; run *= 2) {
    const bool first_rises = (lane_index() & run) == 0;
    const bool second_rises = ((lane_index() + kWarp) & run) == 0;
    LATHE_UNROLL(1)
    for (int stride = run / 2; stride > 0; stride /= 2) {
      const bool upper = (lane_index() & stride) != 0;
      c.first = compared(c.first, stride, upper == first_rises);
      c.second = compared(c.second, stride, upper == second_rises);
    }
  }
  c = c.first < c.second ? c : Candidates{c.second, c.first};
  LATHE_UNROLL(1)
  for (int stride = kWarp / 2; stride > 0; stride /= 2) {
    const bool upper = (lane_index() & stride) != 0;
    c.first = compared(c.first, stride, upper);
    c.second = compared(c.second, stride, upper);
  }
  return c;
}

// The 64 greatest of a list that falls (greatest first) and one that rises; the result falls. At
// each place the greater of the two lists' is one of the 64, and together they fall and rise.
LATHE_DEVICE Candidates merged(Candidates falling, Candidates rising) {
  Candidates c = {greater(falling.first, rising.first), greater(falling.second, rising.second)};
  c = c.first > c.second ? c : Candidates{c.second, c.first};
  LATHE_UNROLL(1)
  for (int stride = kWarp / 2; stride > 0; stride /= 2) {
    const bool lower = (lane_index() & stride) == 0;
    c.first = compared(c.first, stride, lower);
    c.second = compared(c.second, stride, lower);
  }
  return c;
}

LATHE_DEVICE void store_list(Candidates falling, u64* list) {
  list[lane_index()] = falling.first;
  list[lane_index() + kWarp] = falling.second;
}
// A list that falls in memory, the other way round.
LATHE_DEVICE Candidates load_rising(const u64* list) {
  return {list[kTopK - 1 - lane_index()], list[kTopK - 1 - kWarp - lane_index()]};
}

// The 64 greatest of the warps' lists, valid in warp 0. `shared` holds a list for every warp but
// the first.
LATHE_DEVICE Candidates block_merged(Candidates falling, u64* shared, int warps) {
  const int warp = warp_index();
  LATHE_UNROLL(1)
  for (int gap = 1; gap < warps; gap *= 2) {
    const int place = warp & (2 * gap - 1);
    if (place == gap) store_list(falling, shared + (warp - 1) * kTopK);
    block_barrier();
    if (place == 0 && warp + gap < warps)
      falling = merged(falling, load_rising(shared + (warp + gap - 1) * kTopK));
  }
  return falling;
}

}  // namespace lathe::dev
