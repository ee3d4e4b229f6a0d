// Owns the way of tiled weights into shared memory: each warp keeps a ring of tiles filled ahead of
// its own use, across the borders of matrices, phases and tokens.
//
// A phase's matrices share one numbering of row tiles, dealt to the blocks in contiguous runs. The
// tiles of a block's run of one matrix are dealt to its warps in turn. A warp refills the slot it
// has just read, so no slot needs a second barrier.
#pragma once

#include "isa/isa.h"
#include "ops/launch_shapes.h"
#include "ops/step_records.h"

namespace lathe::dev {

// The part of lane 0's state that changes from matrix to matrix, in shared memory: registers are
// for the products.
struct StreamSteps {
  const StreamEntry* entries;
  i32 entry_count, entry;  // the next one
  i32 passes;              // tokens still to be streamed, this one included
  u32 tile_bytes;
};

struct WeightStream {
  u8* slots;  // of this warp
  u64* barriers;
  StreamSteps* steps;
  int slot;
  u32 parity;
  // Lane 0's: where the next copy comes from.
  const u8* at;
  i32 left;  // the warp's tiles of this matrix, the next one included
  int owed;  // slots that were read when there was nothing to refill them with
};

// Goes on to the next matrix of which this warp reads something; `left` stays 0 at the end.
LATHE_DEVICE void open_entry(WeightStream& s, int warp, int warps) {
  StreamSteps& steps = *s.steps;
  for (;;) {
    if (steps.entry == steps.entry_count) {
      steps.entry = 0;
      if (--steps.passes <= 0) return;
    }
    const StreamEntry e = steps.entries[steps.entry++];
    const int left = (static_cast<int>(e.count) - warp + warps - 1) / warps;
    if (left <= 0) continue;
    steps.tile_bytes = e.tile_bytes;
    s.left = left;
    s.at = e.tiles + static_cast<u32>(warp) * e.tile_bytes;
    return;
  }
}

// Lane 0: starts the copy of the warp's next tile into `slot`. At the end of a matrix the slot is
// owed: catch_up() goes on to the next one, in one place of the code and not after every tile.
LATHE_DEVICE void refill(WeightStream& s, int slot, int slot_bytes, int warps) {
  if (s.left == 0) {
    ++s.owed;
    return;
  }
  const u32 bytes = s.steps->tile_bytes;
  bulk_copy(s.slots + slot * slot_bytes, s.at, bytes, s.barriers + slot);
  s.at += static_cast<u32>(warps) * bytes;
  --s.left;
}

LATHE_DEVICE void catch_up(WeightStream& s, int slots, int slot_bytes, int warps) {
  if (lane_index() != 0 || s.owed == 0) return;
  LATHE_UNROLL(1)
  while (s.owed > 0) {
    if (s.left == 0) open_entry(s, warp_index(), warps);
    if (s.left == 0) return;  // the stream's end
    const int slot = s.slot - s.owed;
    --s.owed;
    refill(s, slot < 0 ? slot + slots : slot, slot_bytes, warps);
  }
}

// Starts the stream of this thread's warp. All threads call. `shared` is 128-byte aligned and holds
// the rings of all warps, their barriers, then their StreamSteps: stream_bytes() in all.
LATHE_DEVICE void open_stream(WeightStream& s, u8* shared, const StreamEntry* entries,
                              int entry_count, int passes, int slots, int slot_bytes, int warps) {
  const int warp = warp_index();
  u8* barriers = shared + warps * slots * slot_bytes;
  s.slots = shared + warp * slots * slot_bytes;
  s.barriers = reinterpret_cast<u64*>(barriers) + warp * slots;
  s.steps = reinterpret_cast<StreamSteps*>(barriers + warps * slots * 8) + warp;
  s.slot = 0;
  s.parity = 0;
  s.left = 0;
  s.owed = slots;
  if (lane_index() == 0) {
    s.steps->entries = entries;
    s.steps->entry_count = entry_count;
    s.steps->entry = 0;
    s.steps->passes = passes;
    for (int i = 0; i < slots; ++i) copy_barrier_init(s.barriers + i);
    copy_barriers_ready();
  }
  warp_barrier();
  catch_up(s, slots, slot_bytes, warps);
}

// The warp's next tile, once it is there.
LATHE_DEVICE const u8* next_tile(WeightStream& s, int slot_bytes) {
  copy_barrier_wait(s.barriers + s.slot, s.parity);
  return s.slots + s.slot * slot_bytes;
}
// All lanes have read it: its slot is filled again.
LATHE_DEVICE void release_tile(WeightStream& s, int slots, int slot_bytes, int warps) {
  warp_barrier();
  if (lane_index() == 0) refill(s, s.slot, slot_bytes, warps);
  if (++s.slot == slots) {
    s.slot = 0;
    s.parity ^= 1u;
  }
}

// Waits for the copies that are under way though their tiles are not wanted, before the block gives
// its shared memory back.
LATHE_DEVICE void close_stream(WeightStream& s, int slots) {
  if (lane_index() == 0) {
    for (int i = s.owed; i < slots; ++i) {
      copy_barrier_wait(s.barriers + s.slot, s.parity);
      if (++s.slot == slots) {
        s.slot = 0;
        s.parity ^= 1u;
      }
    }
  }
}

}  // namespace lathe::dev
