// Owns the first half of sampling: of a share of the logits, the 64 greatest after the repeat
// penalty, or at temperature 0 the greatest alone; where a set is given, of those that it allows.
// The logits themselves stay as they are.
#pragma once

#include "isa/isa.h"
#include "ops/candidates.h"
#include "ops/launch_shapes.h"
#include "ops/sampling.h"
#include "ops/token_set.h"

namespace lathe::dev {

// One block's part of the logits.
struct LogitShare {
  const f32* logits;
  const SamplingState* state;
  const i32* allowed;  // null: all
  i32 token;
  int position;
  int first, count;
  bool penalizes;
  bool exact;  // every logit has a flag of its own
  u8* flags;   // of recent tokens, by place in the share modulo kTopKFlags
};

LATHE_DEVICE u64 candidate_of(const LogitShare& share, int i) {
  if (i >= share.count) return 0;
  const int id = share.first + i;
  if (!is_allowed(share.allowed, id)) return 0;
  f32 logit = share.logits[id];
  if (share.penalizes && share.flags[i & (kTopKFlags - 1)] &&
      (share.exact || is_recent(share.state, share.token, share.position, id)))
    logit = penalized(logit, share.state->repeat_penalty);
  return candidate(logit, id);
}

// So that no logit needs to be compared with each recent token.
LATHE_DEVICE void flag_recent(const LogitShare& share, int flag_bytes, int threads) {
  LATHE_UNROLL(1)
  for (int step = 0; step < ceil_div(flag_bytes / 16, threads); ++step) {
    const int i = step * threads + thread_index();
    if (i < flag_bytes / 16) reinterpret_cast<u32x4*>(share.flags)[i] = {0, 0, 0, 0};
  }
  block_barrier();
  const int recent = recent_count(share.state, share.position);
  LATHE_UNROLL(1)
  for (int step = 0; step < ceil_div(kRecentTokens, threads); ++step) {
    const int i = step * threads + thread_index();
    if (i >= recent) break;
    const i32 id = recent_token(share.state, share.token, share.position, i);
    const u32 place = static_cast<u32>(id) - static_cast<u32>(share.first);
    if (place < static_cast<u32>(share.count)) share.flags[place & (kTopKFlags - 1)] = 1;
  }
  block_barrier();
}

// Block `block` of `blocks`, which have `threads` threads each, a multiple of 32. Its list of 64
// candidates, greatest first, goes to partial[128 * block] on; at temperature 0 only the first is
// written. `shared` is 16-byte aligned, top_k_shared_bytes() long and free to be written; it is in
// use until the block's next barrier after the call.
//
// What the pointers lead to is read by plain loads: within a persistent kernel, call it after a
// barrier of the grid. How the logits are cut into shares does not change the token.
LATHE_DEVICE void top_k_share(const f32* logits, const i32* token, const i32* position,
                              const SamplingState* state, const i32* allowed, f32* partial, int n,
                              int block, int blocks, int threads, u8* shared) {
  const int warps = threads / kWarp, part = ceil_div(n, blocks);
  const int first = block * part, flag_bytes = top_k_flag_bytes(n, blocks);
  u64* lists = reinterpret_cast<u64*>(shared + flag_bytes);
  u64* out = reinterpret_cast<u64*>(partial) + static_cast<i64>(block) * kTopK;
  const LogitShare share = {logits,
                            state,
                            allowed,
                            *token,
                            *position,
                            first,
                            max_int(0, min_int(part, n - first)),
                            state->repeat_last > 0 && state->repeat_penalty != 1.0f,
                            part <= kTopKFlags,
                            shared};
  if (share.penalizes) flag_recent(share, flag_bytes, threads);

  if (state->temperature == 0.0f) {
    u64 best = 0;
    LATHE_UNROLL(4)
    for (int step = 0; step < ceil_div(part, threads); ++step)
      best = greater(best, candidate_of(share, step * threads + thread_index()));
    best = block_greatest(best, lists, warps);
    if (thread_index() == 0) out[0] = best;
    return;
  }
  Candidates list = {0, 0};
  LATHE_UNROLL(1)
  for (int step = 0; step < ceil_div(part, threads * 2); ++step) {
    const int i = (step * warps + warp_index()) * kTopK + lane_index();
    list = merged(list, sort_rising({candidate_of(share, i), candidate_of(share, i + kWarp)}));
  }
  list = block_merged(list, lists, warps);
  if (warp_index() == 0) store_list(list, out);
}

// Of one token, or where `chunk` is given of so many as it says, a row of blocks for each: then
// there is of everything as much, and of `rows` two words, of which the first is the position.
LATHE_OP top_k(const i32* chunk, const f32* logits, const i32* token, const i32* rows,
               const i32* sampling, const i32* allowed, f32* partial, int n, int splits,
               int warps) {
  const int row = chunk ? block_y() : 0;
  if (chunk && row >= *chunk) return;
  top_k_share(logits + static_cast<i64>(row) * n, token + row, rows + 2 * row,
              reinterpret_cast<const SamplingState*>(sampling) + row,
              allowed ? allowed + static_cast<i64>(row) * ceil_div(n, 32) : nullptr,
              partial + static_cast<i64>(row) * splits * (2 * kTopK), n, block_x(), splits,
              warps * kWarp, shared_memory());
}

}  // namespace lathe::dev
