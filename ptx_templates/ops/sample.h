// Owns the second half of sampling: the 64 greatest logits of all shares, which of them the rules
// keep, and the draw among those. docs/sampling.md says what the rules mean.
//
// Every sum is taken in the candidates' order and every operation is correctly rounded, so the
// oracle in codegen/kernels/sample.cpp comes to the same token.
#pragma once

#include "isa/isa.h"
#include "ops/candidates.h"
#include "ops/launch_shapes.h"
#include "ops/math.h"
#include "ops/random.h"
#include "ops/sampling.h"

namespace lathe::dev {

// A number for each of a warp's 64 candidates.
struct Numbers {
  f32 first, second;
};

// The sums of the numbers up to each candidate's, its own included.
LATHE_DEVICE Numbers running_sums(Numbers n) {
  Numbers sums = {0, 0};
  f32 sum = 0;
  LATHE_UNROLL(4)
  for (int lane = 0; lane < kWarp; ++lane) {
    sum = sum + shuffle(n.first, lane);
    if (lane == lane_index()) sums.first = sum;
  }
  LATHE_UNROLL(4)
  for (int lane = 0; lane < kWarp; ++lane) {
    sum = sum + shuffle(n.second, lane);
    if (lane == lane_index()) sums.second = sum;
  }
  return sums;
}

// The first place of 64 whose flag is set; 64 without one.
LATHE_DEVICE int first_place(bool first, bool second) {
  u32 place = static_cast<u32>(first ? lane_index() : second ? lane_index() + kWarp : kTopK);
  LATHE_UNROLL(5)
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const u32 other = shuffle_xor(place, mask);
    place = other < place ? other : place;
  }
  return static_cast<int>(place);
}

LATHE_DEVICE f32 number_at(Numbers n, int place) {
  const f32 first = shuffle(n.first, place & (kWarp - 1));
  const f32 second = shuffle(n.second, place & (kWarp - 1));
  return place < kWarp ? first : second;
}
LATHE_DEVICE u64 candidate_at(Candidates c, int place) {
  const u64 first = shuffle(c.first, place & (kWarp - 1));
  const u64 second = shuffle(c.second, place & (kWarp - 1));
  return place < kWarp ? first : second;
}

// The weight at this temperature of a candidate whose logit is `below` less than the greatest.
LATHE_DEVICE f32 relative_weight(f32 below, f32 temperature) {
  return exponential(divide(below, temperature));
}

// How many candidates from the greatest on the rules keep; at least one. `below` is what the
// logits lack to the greatest; `usable` are the first so many of them. Looks at the probabilities
// at temperature 1, so that a high temperature does not widen the choice.
LATHE_DEVICE int kept_places(Numbers below, int usable, const SamplingState* state) {
  const int lane = lane_index();
  const Numbers weights = {lane < usable ? exponential(below.first) : 0.0f,
                           lane + kWarp < usable ? exponential(below.second) : 0.0f};
  const int unlikely = first_place(weights.first < state->min_p, weights.second < state->min_p);
  int enough = kTopK;
  if (state->top_p < 1.0f) {
    const Numbers sums = running_sums(weights);
    const f32 wanted = number_at(sums, kTopK - 1) * state->top_p;
    enough = first_place(sums.first >= wanted, sums.second >= wanted) + 1;
  }
  return min_int(usable, min_int(unlikely, enough));
}

// The index drawn from a warp's list, in every lane; -1 from an empty one.
LATHE_DEVICE i32 drawn(Candidates list, int position, const SamplingState* state) {
  const int lane = lane_index();
  const u64 best = shuffle(list.first, 0);
  const f32 greatest = candidate_value(best);
  if (best == 0) return -1;
  // Without finite logits there are no probabilities.
  if ((as_u32(greatest) & 0x7fffffffu) == 0x7f800000u) return candidate_index(best);

  const Numbers below = {candidate_value(list.first) - greatest,
                         candidate_value(list.second) - greatest};
  const int usable = min_int(state->top_k, first_place(list.first == 0, list.second == 0));
  const int kept = kept_places(below, usable, state);

  const f32 temperature = state->temperature;
  const Numbers sums =
      running_sums({lane < kept ? relative_weight(below.first, temperature) : 0.0f,
                    lane + kWarp < kept ? relative_weight(below.second, temperature) : 0.0f});
  const f32 reached =
      number_at(sums, kTopK - 1) * uniform_at(state->seed_low, state->seed_high, position);
  const int place = first_place(reached < sums.first, reached < sums.second);
  return candidate_index(candidate_at(list, min_int(place, kept - 1)));
}

// The list of a split; an empty one past the last.
LATHE_DEVICE Candidates list_of(const u64* lists, int split, int splits) {
  const Candidates list = load_rising(lists + min_int(split, splits - 1) * kTopK);
  return split < splits ? list : Candidates{0, 0};
}

// Run by one block of `threads` threads, a multiple of 32, on what `splits` blocks of top_k_share
// have left, visible to plain loads. `shared` is 16-byte aligned, sample_shared_bytes() long and
// free to be written; it is in use until the block's next barrier after the call.
LATHE_DEVICE void sample_shares(const f32* partial, const i32* position, const SamplingState* state,
                                i32* sampled, int splits, int threads, u8* shared) {
  const u64* lists = reinterpret_cast<const u64*>(partial);
  const int warps = threads / kWarp;
  if (state->temperature == 0.0f) {
    if (warp_index() > 0) return;
    u64 best = 0;
    LATHE_UNROLL(4)
    for (int step = 0; step < ceil_div(splits, kWarp); ++step) {
      const int s = step * kWarp + lane_index();
      best = greater(best, s < splits ? lists[s * kTopK] : 0);
    }
    best = warp_greatest(best);
    if (lane_index() == 0) *sampled = best == 0 ? -1 : candidate_index(best);
    return;
  }
  Candidates list = {0, 0};
  Candidates next = list_of(lists, warp_index(), splits);
  LATHE_UNROLL(1)
  for (int step = 0; step < ceil_div(splits, warps); ++step) {
    const Candidates other = next;
    next = list_of(lists, (step + 1) * warps + warp_index(), splits);  // while this one is merged
    list = merged(list, other);
  }
  list = block_merged(list, reinterpret_cast<u64*>(shared), warps);
  if (warp_index() > 0) return;
  const i32 index = drawn(list, *position, state);
  if (lane_index() == 0) *sampled = index;
}

// Of one token, or where `chunk` is given of so many as it says, a block for each, as top_k.
LATHE_OP sample(const i32* chunk, const f32* partial, const i32* rows, const i32* sampling,
                i32* sampled, int splits, int warps) {
  const int row = chunk ? block_x() : 0;
  if (chunk && row >= *chunk) return;
  sample_shares(partial + static_cast<i64>(row) * splits * (2 * kTopK), rows + 2 * row,
                reinterpret_cast<const SamplingState*>(sampling) + row, sampled + row, splits,
                warps * kWarp, shared_memory());
}

}  // namespace lathe::dev
