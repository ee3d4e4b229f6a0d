// Owns the hand-over of vectors from the blocks that compute them to those that read them.
//
// Between launches it is plain memory. Within one persistent launch every float carries a tag in
// its lowest mantissa bit: the parity of the token it belongs to. A reader loads what it needs and
// loads again whatever still has the other parity, so the data is its own flag: no barrier, no
// fence, no counter. Each vector is written once per token, and nobody writes token i + 1's before
// all have read token i's, because the choice of token i + 1 waits for every block. The bit is
// given up in either mode, so that both compute the same.
#pragma once

#include "isa/isa.h"

namespace lathe::dev {

struct Exchange {
  int polled;  // a constant: 0 between launches
  u32 tag;     // 0 or 1
  u32* fault;  // set when a wait was given up; the result is then no result
};

// Waits are bounded in tries, not in time: a process that shares the GPU stops the clock of tries.
enum : int { kMaxPolls = 1 << 22, kPollsPerFaultCheck = 1 << 10 };

// True when the wait is to be given up: this one took too long, or another was given up.
LATHE_DEVICE bool give_up(const Exchange& e, int polls) {
  poll_pause();
  if (polls % kPollsPerFaultCheck != kPollsPerFaultCheck - 1) return false;
  if (polls >= kMaxPolls) store_relaxed(e.fault, 1u);
  return load_relaxed(e.fault) != 0;
}

// Bit 0 is set when one of the four is not there yet.
LATHE_DEVICE u32 not_arrived(u32x4 v, u32 tag) {
  return ((v.x ^ tag) | (v.y ^ tag) | (v.z ^ tag) | (v.w ^ tag)) & 1u;
}
LATHE_DEVICE f32x4 without_tags(u32x4 v) {
  return {as_f32(v.x & ~1u), as_f32(v.y & ~1u), as_f32(v.z & ~1u), as_f32(v.w & ~1u)};
}

// The first look at four values; receive() makes sure of them. In two steps, so that a thread can
// have many looks on their way.
LATHE_DEVICE u32x4 look(const Exchange& e, const f32* p) {
  const u32x4* at = reinterpret_cast<const u32x4*>(p);
  return e.polled ? load_relaxed(at) : *at;
}
// Looks at the four values again and again until they are there, or the wait is given up.
LATHE_DEVICE void await(const Exchange& e, const f32* p, u32x4& seen) {
  LATHE_UNROLL(1)
  for (int polls = 0; not_arrived(seen, e.tag) && !give_up(e, polls); ++polls)
    seen = load_relaxed(reinterpret_cast<const u32x4*>(p));
}
LATHE_DEVICE f32x4 receive(const Exchange& e, const f32* p, u32x4 seen) {
  if (e.polled) await(e, p, seen);
  return without_tags(seen);
}
// The same for one value.
LATHE_DEVICE u32 look_one(const Exchange& e, const f32* p) {
  const u32* at = reinterpret_cast<const u32*>(p);
  return e.polled ? load_relaxed(at) : *at;
}
LATHE_DEVICE f32 receive_one(const Exchange& e, const f32* p, u32 seen) {
  if (e.polled) {
    LATHE_UNROLL(1)
    for (int polls = 0; ((seen ^ e.tag) & 1u) && !give_up(e, polls); ++polls)
      seen = load_relaxed(reinterpret_cast<const u32*>(p));
  }
  return as_f32(seen & ~1u);
}
LATHE_DEVICE f32 receive(const Exchange& e, const f32* p) {
  return receive_one(e, p, look_one(e, p));
}
LATHE_DEVICE void send(const Exchange& e, f32* p, f32 value) {
  u32* at = reinterpret_cast<u32*>(p);
  const u32 v = (as_u32(value) & ~1u) | e.tag;
  if (e.polled)
    store_relaxed(at, v);
  else
    *at = v;
}

}  // namespace lathe::dev
