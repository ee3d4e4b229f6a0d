// Owns the greatest of n values and its index: ties go to the lower index, NaN never wins, nor does
// what is not in the set `allowed`, where one is given. The index is -1 when no value can win.
#pragma once

#include "isa/isa.h"
#include "ops/token_set.h"

namespace lathe::dev {

struct Best {
  f32 value;
  i32 index;
};

LATHE_DEVICE Best no_best() {
  return {as_f32(0xff800000u), 0x7fffffff};
}

// NaN compares false with everything, so it is never taken.
LATHE_DEVICE Best better(Best a, Best b) {
  const bool take = b.value > a.value || (b.value == a.value && b.index < a.index);
  return take ? b : a;
}

LATHE_DEVICE Best warp_best(Best best) {
  LATHE_UNROLL(5)
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const Best other = {shuffle_xor(best.value, mask),
                        static_cast<i32>(shuffle_xor(static_cast<u32>(best.index), mask))};
    best = better(best, other);
  }
  return best;
}

// The block's best, in all threads. `shared` holds one pair per warp; a barrier must come before it
// is used again.
LATHE_DEVICE Best block_best(Best best, u8* shared, int warps) {
  best = warp_best(best);
  if (warps == 1) return best;
  f32* values = reinterpret_cast<f32*>(shared);
  i32* indices = reinterpret_cast<i32*>(shared) + warps;
  if (lane_index() == 0) {
    values[warp_index()] = best.value;
    indices[warp_index()] = best.index;
  }
  block_barrier();
  best = {values[0], indices[0]};
  LATHE_UNROLL(8)
  for (int w = 1; w < warps; ++w) best = better(best, {values[w], indices[w]});
  return best;
}

// partial[split]: value, then the index's bits.
LATHE_OP argmax(const f32* x, const i32* allowed, f32* partial, int n, int splits, int warps) {
  const int threads = warps * kWarp;
  const int part = ceil_div(n, splits);
  const int first = block_x() * part;
  Best best = no_best();
  LATHE_UNROLL(4)
  for (int step = 0; step < ceil_div(part, threads); ++step) {
    const int i = step * threads + thread_index();
    if (i >= part || first + i >= n) break;
    if (is_allowed(allowed, first + i)) best = better(best, {x[first + i], first + i});
  }
  best = block_best(best, shared_memory(), warps);
  if (thread_index() == 0) {
    partial[2 * block_x()] = best.value;
    partial[2 * block_x() + 1] = as_f32(static_cast<u32>(best.index));
  }
}

LATHE_OP argmax_merge(const f32* partial, i32* token, int splits) {
  Best best = no_best();
  LATHE_UNROLL(4)
  for (int step = 0; step < ceil_div(splits, kWarp); ++step) {
    const int i = step * kWarp + thread_index();
    if (i >= splits) break;
    best = better(best, {partial[2 * i], static_cast<i32>(as_u32(partial[2 * i + 1]))});
  }
  best = warp_best(best);
  if (thread_index() == 0) *token = best.index == 0x7fffffff ? -1 : best.index;
}

}  // namespace lathe::dev
