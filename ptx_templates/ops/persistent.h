// Owns the frame of a persistent kernel: one launch in which all blocks walk the steps of a plan,
// token after token.
//
// A step is a record of pointers and shapes. Records are copied into shared memory ahead of their
// use; so is the list of what this block streams. The blocks meet only through the vectors they
// hand over (ops/exchange.h) and through the choice of the next token.
#pragma once

#include "ops/attend.h"
#include "ops/matvec.h"

namespace lathe::dev {

// What all threads of a block know of the token, in shared memory.
struct TokenState {
  i32 token, position;
  u64 ranks[kPhaseWarps];
};

struct PersistentOperands {
  const StepRecord* steps;     // those of block 0, then those of block 1 ...
  const StreamEntry* entries;  // entry_count for each block
  TokenControl* control;
  PersistentState* state;
  u64* candidates;  // one for each block
  i32* history;     // the token sampled at each position, in the host's memory
  i32* recent;      // the last kRecentTokens tokens, by position
  const StopTokens* stops;
};

struct PersistentShape {
  int steps, entries, blocks, warps, slots, slot_bytes, columns, attend_bytes;
};

static_assert(sizeof(TokenState) <= kTokenStateBytes, "the place of TokenState");

// Where records come to lie in shared memory. They are copied and not loaded: behind the weights
// that are on their way a load takes as long as a phase, and whoever has its result in a register
// waits for it.
//
// Every second step at least has a block barrier. So when a thread begins step n, all have left
// step n - 4, and the slot of that one may be filled.
struct RecordRing {
  const StepRecord* steps;  // of this block, in device memory
  StepRecord* slots;
  u64* barriers;
  int count;    // steps of a token
  int ahead;    // the step to be copied next
  bool copies;  // this warp does
};
enum : int { kRecordsAhead = kRecordSlots - 4 };

// Starts the copy for step `number` of the launch. All threads call.
LATHE_DEVICE void copy_record(RecordRing& r, int number) {
  const int slot = number % kRecordSlots;
  if (r.copies && elected())
    bulk_copy(r.slots + slot, r.steps + r.ahead, kRecordWords * 8, r.barriers + slot);
  if (++r.ahead == r.count) r.ahead = 0;
}
LATHE_DEVICE const StepRecord& await_record(const RecordRing& r, int number) {
  const int slot = number % kRecordSlots;
  copy_barrier_wait(r.barriers + slot, static_cast<u32>(number / kRecordSlots) & 1u);
  return r.slots[slot];
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
    if (lane_index() == 0) {
      // With what the block wrote for later tokens, its part of the KV cache: the other blocks read
      // that by plain loads.
      device_fence();
      store_relaxed(candidates + phase.block, (best & ~1ull) | e.tag);
    }
  }
  u64 rank = 0;
  LATHE_UNROLL(1)
  for (int i = thread_index(); i < phase.blocks; i += phase.warps * kWarp) {
    u64 seen = load_relaxed(candidates + i);
    LATHE_UNROLL(1)
    for (int polls = 0; ((static_cast<u32>(seen) ^ e.tag) & 1u) && !give_up(e, polls); ++polls)
      seen = load_relaxed(candidates + i);
    rank = seen > rank ? seen : rank;
  }
  device_fence();
  rank = warp_best(rank & ~1ull);
  block_barrier();
  if (lane_index() == 0) state.ranks[warp_index()] = rank;
  block_barrier();
  for (int i = 0; i < phase.warps; ++i) rank = state.ranks[i] > rank ? state.ranks[i] : rank;
  phase.best = 0;
  return ranked_id(rank);
}

LATHE_DEVICE bool is_stop(const StopTokens& stops, i32 id) {
  LATHE_UNROLL(1)
  for (int i = 0; i < stops.count; ++i)
    if (stops.ids[i] == id) return true;
  return false;
}

// Decodes `tokens` tokens, each the one that the one before chose, or fewer when one of them is a
// stop token; without `chooses` one token, and what follows it is chosen by others. `Phases` has
// the program's attend() and embed(), and as constants the features of its matrix-vector phases,
// and whether the block meets before attend(), which does so itself (codegen/program.cpp).
template <class Phases>
LATHE_DEVICE void run_persistent(const PersistentOperands& o, const PersistentShape& shape,
                                 int tokens, int chooses) {
  u8* shared = shared_memory();
  const PersistentLayout m =
      persistent_layout(shape.warps, shape.slots, shape.slot_bytes, shape.columns, shape.entries,
                        shape.attend_bytes, Phases::together);
  TokenState& token = *reinterpret_cast<TokenState*>(shared + m.token);
  StreamEntry* entries = reinterpret_cast<StreamEntry*>(shared + m.entries);
  const int threads = shape.warps * kWarp;
  Phase phase;
  phase.block = block_x();
  phase.blocks = shape.blocks;
  phase.warps = shape.warps;
  phase.slots = shape.slots;
  phase.slot_bytes = shape.slot_bytes;
  phase.scratch = shared + m.scratch;
  phase.columns = shared + m.columns;
  phase.turn = 0;
  phase.squares = 0;
  phase.best = 0;

  LATHE_UNROLL(1)
  for (int i = thread_index(); i < shape.entries; i += threads)
    entries[i] = o.entries[phase.block * shape.entries + i];
  if (thread_index() == 0) {
    token.token = o.control->token;
    token.position = o.control->position;
  }
  RecordRing records;
  records.steps = o.steps + phase.block * shape.steps;
  records.slots = reinterpret_cast<StepRecord*>(shared + m.records);
  records.barriers = reinterpret_cast<u64*>(shared + m.record_barriers);
  records.count = shape.steps;
  records.ahead = 0;
  records.copies = uniform(warp_index()) == 0;
  if (thread_index() == 0) {
    LATHE_UNROLL(1)
    for (int i = 0; i < kRecordSlots; ++i) copy_barrier_init(records.barriers + i);
    copy_barriers_ready();
  }
  const u32 epoch = o.state->epoch;
  const int total = tokens * shape.steps;
  block_barrier();
  LATHE_UNROLL(1)
  for (int i = 0; i < min_int(kRecordsAhead, total); ++i) copy_record(records, i);
  open_stream<Phases::together>(phase.stream, shared, entries, shape.entries, tokens, shape.slots,
                                shape.slot_bytes, shape.warps);
  int number = 0, t = 0;
  LATHE_UNROLL(1)
  for (bool goes_on = true; goes_on && t < tokens; ++t) {
    phase.exchange = {1, (epoch + static_cast<u32>(t)) & 1u, &o.state->fault};
    LATHE_UNROLL(1)
    for (int i = 0; i < shape.steps; ++i, ++number) {
      if (number + kRecordsAhead < total) copy_record(records, number + kRecordsAhead);
      const StepRecord& record = await_record(records, number);
      const int step = record.step;
      if (step == kMatvecStep) {
        matvec<Phases::subs, Phases::together, Phases::features, true>(
            phase, record.matvec.shape, record.matvec.operands, Phases::features);
      } else if (step == kAttendStep) {
        if (phase.block >= Phases::attend_blocks(record.variant, token.position)) continue;
        if constexpr (Phases::meets_first) block_barrier();
        Phases::attend(record.variant, phase.exchange.tag, phase.exchange.fault, phase.block,
                       phase.scratch, record.attend, token.position);
        block_barrier();
      } else {
        Phases::embed(record.embed.table, &token.token, phase.block * threads + thread_index(),
                      phase.exchange, record.embed.y);
        block_barrier();
      }
    }
    // Also when others choose: it is here that all blocks have read this token's vectors.
    const i32 sampled = choose(phase, token, o.candidates);
    if (!chooses) continue;  // there is no other token
    if (thread_index() == 0) {
      if (phase.block == 0) {
        store_to_host(o.history + token.position, sampled);
        o.recent[token.position % kRecentTokens] = token.token;
        o.control->sampled = sampled;
      }
      token.token = max_int(sampled, 0);
      ++token.position;
    }
    goes_on = !is_stop(*o.stops, sampled) && load_relaxed(&o.state->fault) == 0;
    block_barrier();
  }
  close_stream(phase.stream, shape.slots);
  LATHE_UNROLL(1)
  for (int i = 0; i < kRecordsAhead && number + i < total; ++i) await_record(records, number + i);
  if (phase.block == 0 && thread_index() == 0) {
    if (chooses) {
      o.control->token = token.token;
      o.control->position = token.position;
    }
    o.state->epoch = epoch + static_cast<u32>(t);
  }
}

}  // namespace lathe::dev
