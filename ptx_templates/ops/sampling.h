// Owns the device's view of the sampling rules and of the tokens that the repeat penalty looks at.
// The host writes it as lathe::SamplingState; codegen/kernels/sample.cpp holds the two to one
// layout.
#pragma once

#include "isa/isa.h"
#include "ops/launch_shapes.h"

namespace lathe::dev {

struct SamplingState {
  u32 seed_low, seed_high;
  f32 temperature;  // 0: the greatest logit
  i32 top_k;
  f32 top_p;
  f32 min_p;
  f32 repeat_penalty;
  i32 repeat_last;
  i32 recent[kRecentTokens];  // of the positions before this one: position p at p % kRecentTokens
};

// How many tokens are recent when `position` is being decoded.
LATHE_DEVICE int recent_count(const SamplingState* state, int position) {
  return min_int(state->repeat_last, position + 1);
}

// The i-th latest token, 0 being the one that is decoded now and stands in the ring only later.
LATHE_DEVICE i32 recent_token(const SamplingState* state, i32 token, int position, int i) {
  return i == 0 ? token : state->recent[(position - i) & (kRecentTokens - 1)];
}

LATHE_DEVICE bool is_recent(const SamplingState* state, i32 token, int position, i32 id) {
  const int count = recent_count(state, position);
  LATHE_UNROLL(4)
  for (int i = 0; i < kRecentTokens; ++i) {
    if (i >= count) break;
    if (recent_token(state, token, position, i) == id) return true;
  }
  return false;
}

// Division pushes a positive logit down but would push a negative one up.
LATHE_DEVICE f32 penalized(f32 logit, f32 penalty) {
  return logit > 0.0f ? divide(logit, penalty) : logit * penalty;
}

}  // namespace lathe::dev
