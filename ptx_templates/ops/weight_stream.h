// Owns the way of tiled weights into shared memory: each warp keeps a ring of tiles filled ahead of
// its own use, across the borders of matrices, phases and tokens.
//
// A phase's matrices share one numbering of row tiles, dealt to the blocks in contiguous runs; what
// of a block's run is a warp's, own_tiles() says. A warp refills the slot it has just read, so no
// slot needs a second barrier. All of this is the same in all lanes.
//
// A tile lies in its slot as it lies in memory, at the same distance from a line's beginning
// (slot_bytes()): a copy that has to shift bytes within lines is slower by up to a tenth.
#pragma once

#include "isa/isa.h"
#include "ops/launch_shapes.h"
#include "ops/step_records.h"

namespace lathe::dev {

// What a warp streams of one matrix.
struct StreamLot {
  const u8* at;          // the next tile
  u32 tile_bytes, jump;  // jump: from the last tile of a row tile to the first of the next
  i32 columns, groups;   // the warp's tiles of a row tile; see own_tiles()
  i32 rows;              // row tiles from the one of `at` on; none when it is not positive
};

// What changes from matrix to matrix; in shared memory, for registers are for the products.
struct alignas(16) StreamSteps {
  StreamLot next;  // the lot that waits for this one's end
  const StreamEntry* entries;
  i32 entry_count, entry;  // the one after `next`
  i32 passes;              // tokens still to be streamed, that of `entry` included
};
static_assert(sizeof(StreamSteps) == kStreamStepsBytes, "the place of the steps");

struct WeightStream {
  u8* slots;  // of this warp
  u64* barriers;
  u32* offsets;  // from the beginning of each slot to its tile
  StreamSteps* steps;
  int warp, slot;
  u32 parity;
  int left;  // tiles of this row tile
  int owed;  // slots that were read when there was nothing to refill them with
  StreamLot lot;
};

// Fills steps->next with the next matrix of which this warp has tiles. One lane calls.
LATHE_DEVICE void open_lot(const WeightStream& s, int warps) {
  StreamSteps& steps = *s.steps;
  LATHE_UNROLL(1)
  while (steps.passes > 0) {
    if (steps.entry == steps.entry_count) {
      steps.entry = 0;
      --steps.passes;
      continue;
    }
    const StreamEntry e = steps.entries[steps.entry++];
    const OwnTiles own = own_tiles(s.warp, warps, e.columns, e.inverse);
    if (own.count == 0 || own.group >= e.rows) continue;
    const u32 bytes = e.tile_units * 16u;
    const int first = own.group * e.columns + own.column, last = (own.count - 1) * warps;
    StreamLot lot;
    lot.at = e.tiles + static_cast<u32>(first) * bytes;
    lot.tile_bytes = bytes;
    lot.jump = static_cast<u32>(own.groups * e.columns - last) * bytes;
    lot.columns = own.count;
    lot.groups = own.groups;
    lot.rows = e.rows - own.group;
    steps.next = lot;
    return;
  }
}

// Starts the copy of a tile into `slot`; one lane calls.
LATHE_DEVICE void copy_tile(const WeightStream& s, int slot, int slot_bytes, const u8* tile) {
  const u32 room = static_cast<u32>(slot_bytes) - s.lot.tile_bytes;
  const u32 line = static_cast<u32>(reinterpret_cast<u64>(tile)) % kCopyLine;
  const u32 offset = line < room ? line : room;
  s.offsets[slot] = offset;
  bulk_copy(s.slots + slot * slot_bytes + offset, tile, s.lot.tile_bytes, s.barriers + slot);
}
// From one tile of the lot to the next.
LATHE_DEVICE void next_of_lot(WeightStream& s, int warps) {
  if (--s.left == 0) {
    s.lot.at += s.lot.jump;
    s.lot.rows -= s.lot.groups;
    s.left = s.lot.columns;
  } else {
    s.lot.at += static_cast<u32>(warps) * s.lot.tile_bytes;
  }
}

// Starts the copy of the warp's next tile into `slot`, or owes it.
LATHE_DEVICE void refill(WeightStream& s, int slot, int slot_bytes, int warps) {
  if (s.lot.rows <= 0) {
    warp_barrier();  // all see the same, also right after another refill
    s.lot = s.steps->next;
    s.left = s.lot.columns;
    warp_barrier();
    if (s.lot.rows <= 0) {
      ++s.owed;
      return;
    }
    if (elected()) s.steps->next.rows = 0;
  }
  if (elected()) copy_tile(s, slot, slot_bytes, s.lot.at);
  next_of_lot(s, warps);
}

// Sees that a lot is waiting and that no slot is owed. Called where a warp has time: a matrix's end
// then costs no more than a look at what waits.
LATHE_DEVICE void look_ahead(WeightStream& s, int slots, int slot_bytes, int warps) {
  LATHE_UNROLL(1)
  for (;;) {
    if (elected() && s.steps->next.rows <= 0) open_lot(s, warps);
    warp_barrier();
    if (s.owed == 0) return;
    const int slot = s.slot - s.owed, before = s.owed--;
    refill(s, slot < 0 ? slot + slots : slot, slot_bytes, warps);
    if (s.owed == before) return;  // the stream's end
  }
}

// Starts the stream of this thread's warp. All threads call. `shared` is 128-byte aligned and holds
// the rings of all warps, their steps, then their barriers: stream_bytes() in all.
LATHE_DEVICE void open_stream(WeightStream& s, u8* shared, const StreamEntry* entries,
                              int entry_count, int passes, int slots, int slot_bytes, int warps) {
  s.warp = uniform(warp_index());
  u8* steps = shared + warps * slots * slot_bytes;
  s.slots = shared + s.warp * slots * slot_bytes;
  s.steps = reinterpret_cast<StreamSteps*>(steps) + s.warp;
  u64* barriers = reinterpret_cast<u64*>(steps + warps * kStreamStepsBytes);
  s.barriers = barriers + s.warp * slots;
  s.offsets = reinterpret_cast<u32*>(barriers + warps * slots) + s.warp * slots;
  s.slot = 0;
  s.parity = 0;
  s.left = 0;
  s.owed = slots;
  s.lot = {};
  if (elected()) {
    *s.steps = {{}, entries, entry_count, 0, passes};
    LATHE_UNROLL(1)
    for (int i = 0; i < slots; ++i) copy_barrier_init(s.barriers + i);
    copy_barriers_ready();
  }
  warp_barrier();
  look_ahead(s, slots, slot_bytes, warps);
}

// The warp's next tile, or the one after it, once it is there.
LATHE_DEVICE const u8* next_tile(const WeightStream& s, int slots, int slot_bytes, bool after) {
  const bool wraps = after && s.slot + 1 == slots;
  const int slot = wraps ? 0 : s.slot + after;
  const u32 offset = s.offsets[slot];
  copy_barrier_wait(s.barriers + slot, s.parity ^ static_cast<u32>(wraps));
  return s.slots + slot * slot_bytes + offset;
}
LATHE_DEVICE void next_slot(WeightStream& s, int slots) {
  if (++s.slot == slots) {
    s.slot = 0;
    s.parity ^= 1u;
  }
}
// All lanes have read the next tile: its slot is filled again.
LATHE_DEVICE void release_one(WeightStream& s, int slots, int slot_bytes, int warps) {
  warp_barrier();
  refill(s, s.slot, slot_bytes, warps);
  next_slot(s, slots);
}
// The same of two. What one lane does for a copy is a chain of 150 clocks; two chains overlap.
LATHE_DEVICE void release_two(WeightStream& s, int slots, int slot_bytes, int warps) {
  if (s.lot.rows > (s.left >= 2 ? 0 : s.lot.groups)) {  // the lot has two more
    warp_barrier();
    const int first = s.slot;
    next_slot(s, slots);
    const int second = s.slot;
    next_slot(s, slots);
    const u8* tile = s.lot.at;
    next_of_lot(s, warps);
    if (elected()) {
      copy_tile(s, first, slot_bytes, tile);
      copy_tile(s, second, slot_bytes, s.lot.at);
    }
    next_of_lot(s, warps);
  } else {
    release_one(s, slots, slot_bytes, warps);
    release_one(s, slots, slot_bytes, warps);
  }
}

// Waits for the copies that are under way though their tiles are not wanted, before the block gives
// its shared memory back.
LATHE_DEVICE void close_stream(WeightStream& s, int slots) {
  LATHE_UNROLL(1)
  for (int i = s.owed; i < slots; ++i) {
    copy_barrier_wait(s.barriers + s.slot, s.parity);
    if (++s.slot == slots) {
      s.slot = 0;
      s.parity ^= 1u;
    }
  }
}

}  // namespace lathe::dev
