// Owns what the phases of decoding share: the kernel they are part of, its scratch memory, the
// order of logits, the norm's factor.
#pragma once

#include "ops/exchange.h"
#include "ops/math.h"
#include "ops/weight_stream.h"

namespace lathe::dev {

enum : int { kSilu = 0, kGeluTanh = 1 };
enum : u32 { kJoins = 1u << 31 };  // some vector has to be joined to the residual stream first

enum : int { kJoinedSquares = 2 };  // the sums of squares that only join_stream() needs

// What a phase knows of the kernel it is part of.
struct Phase {
  Exchange exchange;
  WeightStream stream;
  u8* scratch;  // kPhaseScratch bytes
  u8* columns;  // column_bytes(): activations of the longest vector's tile columns
  int block, blocks, warps, slots, slot_bytes;
  u32 turn;     // counts the uses of the partial sums
  int squares;  // which sums of squares are the vector's: 0 and 1 by turns
  u64 best;     // kLogitRows: the greatest logit so far of this thread, see logit_rank()
};

// The scratch of a phase, as floats: partial sums, gate values, three lots of sums of squares.
//
// Partial sums are at the bottom and at the top by turns: while some warps still read the last
// ones, the others are leaving the next. No two neighbours need more than there is (place_sums()).
LATHE_DEVICE f32* partial_sums(Phase& phase, int floats) {
  return reinterpret_cast<f32*>(phase.scratch) + (phase.turn & 1u ? kPartialFloats - floats : 0);
}
LATHE_DEVICE f32* gate_values(Phase& phase) {
  return reinterpret_cast<f32*>(phase.scratch) + kPartialFloats;
}
LATHE_DEVICE f32* square_sums(Phase& phase, int which) {
  return gate_values(phase) + kGateFloats + which * kPhaseWarps;
}

// Orders logits: greater is better, then the lower id; NaN is worst. Bit 0 is left for a tag.
LATHE_DEVICE u64 logit_rank(f32 value, int id) {
  u32 key = 0;
  if (value == value) {
    const u32 bits = as_u32(value + 0.0f);  // -0 becomes 0
    key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  }
  return static_cast<u64>(key) << 32 | (~static_cast<u32>(id) & 0x7fffffffu) << 1;
}
// -1 when all were NaN.
LATHE_DEVICE int ranked_id(u64 rank) {
  if (rank >> 32 == 0) return -1;
  return static_cast<int>(~static_cast<u32>(rank >> 1) & 0x7fffffffu);
}

// The warp's sum goes to the place of the warp; inverse_rms() adds them up after a barrier.
LATHE_DEVICE void leave_square_sum(Phase& phase, int which, f32 sum) {
  sum = warp_sum(sum);
  if (lane_index() == 0) square_sums(phase, which)[warp_index()] = sum;
}
LATHE_DEVICE f32 inverse_rms(Phase& phase, int which, f32 inverse_k, f32 epsilon) {
  const f32x4* sums = reinterpret_cast<const f32x4*>(square_sums(phase, which));
  f32 sum = 0;
  LATHE_UNROLL(4)
  for (int i = 0; i < kPhaseWarps / 4; ++i) {
    if (4 * i >= phase.warps) break;
    const f32x4 v = sums[i];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  return reciprocal_root(fma(sum, inverse_k, epsilon));
}

}  // namespace lathe::dev
