// Owns the frame of a persistent kernel: one launch in which all blocks walk the steps of a plan,
// token after token.
//
// A step is a record of pointers and the number of a phase; phases, compiled with their shapes, are
// the cases of one switch. Records are brought into shared memory a step ahead.
#pragma once

#include "ops/matvec.h"

namespace lathe::dev {

enum : int { kMatvecStep, kRecordWords = 24, kRecordSlots = 4 };

struct StepRecord {
  i32 step;
  i32 reserved;
  MatvecOperands operands;
  MatvecShape shape;
  u64 spare[5];
};
static_assert(sizeof(StepRecord) == kRecordWords * 8, "the words of a record");

// What all threads of a block know of the token, in shared memory.
struct TokenState {
  i32 token, position;
  u64 ranks[kPhaseWarps];
};

// State in device memory that outlives a launch.
struct PersistentControl {
  i32 token, position, sampled, reserved;
  u32 fault;
  u32 epoch;  // tokens decoded so far: its parity is the exchange's tag
};

// Records are two steps ahead: one word a thread on its way from memory, put where all can read it
// when the step before begins, so that nobody waits for the load. A phase has a barrier or two;
// four slots keep a late reader's record whole.
LATHE_DEVICE u64 record_word(const StepRecord* steps, int index) {
  const int i = thread_index();
  return i < kRecordWords ? reinterpret_cast<const u64*>(steps + index)[i] : 0;
}
LATHE_DEVICE void place_record(StepRecord* records, int slot, u64 word) {
  const int i = thread_index();
  if (i < kRecordWords) reinterpret_cast<u64*>(records + slot)[i] = word;
}

LATHE_DEVICE u64 warp_best(u64 rank) {
  LATHE_UNROLL(5)
  for (int mask = 16; mask > 0; mask /= 2) {
    const u64 other = static_cast<u64>(shuffle_xor(static_cast<u32>(rank >> 32), mask)) << 32 |
                      shuffle_xor(static_cast<u32>(rank), mask);
    rank = other > rank ? other : rank;
  }
  return rank;
}

// The phase that ends a token: the blocks' best logits meet, and every block knows the winner.
LATHE_DEVICE i32 choose(Phase& phase, TokenState& state, u64* candidates) {
  const Exchange& e = phase.exchange;
  u64 best = warp_best(phase.best);
  if (lane_index() == 0) state.ranks[warp_index()] = best;
  block_barrier();
  if (warp_index() == 0) {
    best = warp_best(lane_index() < phase.warps ? state.ranks[lane_index()] : 0);
    if (lane_index() == 0) store_relaxed(candidates + phase.block, (best & ~1ull) | e.tag);
  }
  u64 rank = 0;
  for (int i = thread_index(); i < phase.blocks; i += phase.warps * kWarp) {
    u64 seen = load_relaxed(candidates + i);
    for (int polls = 0; ((seen ^ e.tag) & 1u) && !give_up(e, polls); ++polls)
      seen = load_relaxed(candidates + i);
    rank = seen > rank ? seen : rank;
  }
  rank = warp_best(rank & ~1ull);
  block_barrier();
  if (lane_index() == 0) state.ranks[warp_index()] = rank;
  block_barrier();
  for (int i = 0; i < phase.warps; ++i) rank = state.ranks[i] > rank ? state.ranks[i] : rank;
  phase.best = 0;
  return ranked_id(rank);
}

}  // namespace lathe::dev
