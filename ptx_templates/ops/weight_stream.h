// Owns the way of tiled weights into shared memory: each warp keeps a ring of tiles filled ahead of
// its own use, across the borders of matrices, phases and tokens.
//
// A phase's matrices share one numbering of row tiles, dealt to the blocks in contiguous runs; what
// of a block's run is a warp's, own_tiles() says. A warp refills the slot it has just read, so no
// slot needs a second barrier. The copies are one lane's business, the same one always.
//
// A tile lies in its slot as it lies in memory, at the same distance from a line's beginning
// (slot_bytes()): a copy that has to shift bytes within lines is slower by up to a tenth. Tiles
// that are whole lines lie at the beginning of theirs.
//
// kTogether is how many tiles a warp multiplies at once, one or two. Two are neighbours of a row
// tile and come by one copy into one slot, the last of an odd number alone. Then the L2 cache is
// also asked ahead of the ring, while the warp waits for something else.
#pragma once

#include "isa/isa.h"
#include "ops/launch_shapes.h"
#include "ops/step_records.h"

namespace lathe::dev {

enum : int {
  kLotsWaiting = 4,  // a power of two
  kCopiesAhead = 5,  // that the L2 cache is asked for beyond those into the ring
};

// What a warp streams of one matrix.
struct alignas(16) StreamLot {
  const u8* at;  // the next tile
  i32 rows;      // row tiles from the one of `at` on; none when it is not positive
  i32 left;      // tiles of this row tile
  // The warp's tiles of a row tile (see own_tiles()); jump: from the last copy of a row tile to the
  // first of the next.
  u32 tile_bytes, jump;
  i32 columns, groups;
};

static_assert(kLotsWaiting >= 3 && (kLotsWaiting & (kLotsWaiting - 1)) == 0,
              "a phase whose lots do not all wait would wait for a tile that nobody asks for");

// Where a warp's stream is. In shared memory, because the products want the registers; only the
// elected lane touches it.
struct alignas(16) StreamSteps {
  StreamLot lot, waiting[kLotsWaiting];  // those after `lot`, a ring
  i32 entry_count, entry;                // the one to be opened next
  i32 passes;                            // tokens still to be streamed, that of `entry` included
  i32 owed;           // slots that were read when there was nothing to refill them with
  u32 opened, taken;  // lots that were put into `waiting`, and taken out of it
  // What the L2 cache is asked for next: the lot; `taken` when that had been, and copies before it.
  StreamLot ahead;
  u32 ahead_taken, ahead_copies;
};
static_assert(sizeof(StreamSteps) == kStreamStepsBytes, "the place of the steps");

struct WeightStream {
  u8* slots;  // of this warp
  u64* barriers;
  u32* offsets;  // from the beginning of each slot to its tile
  StreamSteps* steps;
  const StreamEntry* entries;  // not among the steps: so it is known to be in shared memory
  int warp, slot;
  u32 parity;
  u32 read;  // copies read so far, with two tiles at once
};

// From a warp's first tile of a row tile to its last copy, in tiles.
template <int kTogether>
LATHE_DEVICE int last_copy(int count, int warps) {
  if constexpr (kTogether > 1) return (count - 1) / kTogether * kTogether;
  return (count - 1) * warps;
}

// Opens lots until as many wait as may, or there are no more. One lane calls.
template <int kTogether>
LATHE_DEVICE void open_lots(const WeightStream& s, int warps) {
  StreamSteps& steps = *s.steps;
  const u32 most = steps.taken + kLotsWaiting;
  u32 opened = steps.opened;
  int entry = steps.entry, passes = steps.passes;
  LATHE_UNROLL(1)
  while (opened != most && passes > 0) {
    if (entry == steps.entry_count) {
      entry = 0;
      --passes;
      continue;
    }
    const StreamEntry e = s.entries[entry++];
    const OwnTiles own = own_tiles<kTogether>(s.warp, warps, e.columns, e.inverse);
    if (own.count == 0 || own.group >= e.rows) continue;
    const u32 bytes = e.tile_units * 16u;
    const int first = own.group * e.columns + own.column,
              last = last_copy<kTogether>(own.count, warps);
    StreamLot lot;
    lot.at = e.tiles + static_cast<u32>(first) * bytes;
    lot.tile_bytes = bytes;
    lot.jump = static_cast<u32>(own.groups * e.columns - last) * bytes;
    lot.columns = own.count;
    lot.groups = own.groups;
    lot.rows = e.rows - own.group;
    lot.left = own.count;
    steps.waiting[opened++ % kLotsWaiting] = lot;
  }
  steps.opened = opened;
  steps.entry = entry;
  steps.passes = passes;
}

// The bytes of the lot's next copy, which begin at lot.at; then the lot stands at the one after it.
template <int kTogether>
LATHE_DEVICE u32 bytes_of_copy(const StreamLot& lot) {
  if constexpr (kTogether > 1) return lot.left > 1 ? 2 * lot.tile_bytes : lot.tile_bytes;
  return lot.tile_bytes;
}
template <int kTogether>
LATHE_DEVICE void pass_copy(StreamLot& lot, u32 bytes, int warps) {
  if constexpr (kTogether > 1)
    lot.left -= lot.left > 1 ? 2 : 1;
  else
    lot.left -= 1;
  if (lot.left == 0) {
    lot.at += lot.jump;
    lot.rows -= lot.groups;
    lot.left = lot.columns;
  } else {
    lot.at += kTogether > 1 ? bytes : static_cast<u32>(warps) * bytes;
  }
}

// Starts the copy of the warp's next tile into `slot`, or owes it. One lane calls.
template <int kTogether>
LATHE_DEVICE void refill(const WeightStream& s, int slot, int slot_bytes, int warps) {
  StreamSteps& steps = *s.steps;
  StreamLot lot = steps.lot;
  if (lot.rows <= 0) {
    if (steps.taken == steps.opened) {
      ++steps.owed;
      return;
    }
    lot = steps.waiting[steps.taken++ % kLotsWaiting];
    steps.lot = lot;
  }
  const u32 bytes = bytes_of_copy<kTogether>(lot);
  u32 offset = 0;
  if (lot.tile_bytes % kCopyLine != 0) {
    const u32 line = static_cast<u32>(reinterpret_cast<u64>(lot.at)) % kCopyLine;
    const u32 spare = static_cast<u32>(slot_bytes) - bytes;
    offset = line < spare ? line : spare;
    s.offsets[slot] = offset;
  }
  bulk_copy(s.slots + slot * slot_bytes + offset, lot.at, bytes, s.barriers + slot);
  pass_copy<kTogether>(lot, bytes, warps);
  steps.lot.at = lot.at;
  steps.lot.rows = lot.rows;
  steps.lot.left = lot.left;
}

// Asks the L2 cache for one copy more than it was asked for, up to kCopiesAhead beyond the ring's.
// One lane calls, while there is nothing else to ask the memory for: a warp that multiplies two
// tiles at once is faster than the memory, and has emptied its ring when a phase ends.
template <int kTogether>
LATHE_DEVICE void prefetch_copy(const WeightStream& s, int slots, int warps) {
  StreamSteps& steps = *s.steps;
  const u32 copied = s.read + static_cast<u32>(slots - steps.owed);
  StreamLot lot = steps.ahead;
  u32 copies = steps.ahead_copies, taken = steps.ahead_taken;
  if (static_cast<i32>(copies - copied) <= 0) {
    lot = steps.lot;
    copies = copied;
    taken = steps.taken;
  }
  if (copies - copied >= kCopiesAhead) return;
  if (lot.rows <= 0) {
    if (taken == steps.opened) return;
    lot = steps.waiting[taken++ % kLotsWaiting];
  }
  const u32 bytes = bytes_of_copy<kTogether>(lot);
  bulk_prefetch(lot.at, bytes);
  pass_copy<kTogether>(lot, bytes, warps);
  steps.ahead = lot;
  steps.ahead_copies = copies + 1;
  steps.ahead_taken = taken;
}

// Sees that lots are waiting, all of a phase's at least, and that no slot is owed. Called where a
// warp has time: a matrix's end then costs no more than a look at what waits.
template <int kTogether>
LATHE_DEVICE void look_ahead(const WeightStream& s, int slots, int slot_bytes, int warps) {
  if (elected()) {
    StreamSteps& steps = *s.steps;
    LATHE_UNROLL(1)
    for (;;) {
      open_lots<kTogether>(s, warps);
      const int owed = steps.owed;
      if (owed == 0) break;
      const int slot = s.slot - owed;
      steps.owed = owed - 1;
      refill<kTogether>(s, slot < 0 ? slot + slots : slot, slot_bytes, warps);
      if (steps.owed == owed) break;  // the stream's end
    }
  }
  warp_barrier();
}

// Starts the stream of this thread's warp. All threads call. `shared` is 128-byte aligned and holds
// the rings of all warps, their steps, their barriers, then their offsets: stream_bytes() in all.
template <int kTogether>
LATHE_DEVICE void open_stream(WeightStream& s, u8* shared, const StreamEntry* entries,
                              int entry_count, int passes, int slots, int slot_bytes, int warps) {
  s.warp = uniform(warp_index());
  u8* steps = shared + warps * slots * slot_bytes;
  u64* barriers = reinterpret_cast<u64*>(steps + warps * kStreamStepsBytes);
  s.slots = shared + s.warp * slots * slot_bytes;
  s.steps = reinterpret_cast<StreamSteps*>(steps) + s.warp;
  s.barriers = barriers + s.warp * slots;
  s.offsets = reinterpret_cast<u32*>(barriers + warps * slots) + s.warp * slots;
  s.entries = entries;
  s.slot = 0;
  s.parity = 0;
  s.read = 0;
  if (elected()) {
    *s.steps = {{}, {}, entry_count, 0, passes, slots, 0, 0, {}, 0, 0};
    LATHE_UNROLL(1)
    for (int i = 0; i < slots; ++i) copy_barrier_init(s.barriers + i);
    copy_barriers_ready();
  }
  look_ahead<kTogether>(s, slots, slot_bytes, warps);
}

// The warp's next tile, once it is there. The caller knows its format, and so its size.
LATHE_DEVICE const u8* next_tile(const WeightStream& s, int slot_bytes, int tile_bytes) {
  const u32 offset = tile_bytes % kCopyLine == 0 ? 0 : s.offsets[s.slot];
  copy_barrier_wait(s.barriers + s.slot, s.parity);
  return s.slots + s.slot * slot_bytes + offset;
}
// Of pairs the offset is looked at after the wait, which a ring of a single slot needs.
LATHE_DEVICE const u8* next_pair(const WeightStream& s, int slot_bytes, int tile_bytes) {
  copy_barrier_wait(s.barriers + s.slot, s.parity);
  const u32 offset = tile_bytes % kCopyLine == 0 ? 0 : s.offsets[s.slot];
  return s.slots + s.slot * slot_bytes + offset;
}
// All lanes have read what is in the slot: it is filled again.
template <int kTogether>
LATHE_DEVICE void release_tile(WeightStream& s, int slots, int slot_bytes, int warps) {
  warp_barrier();
  if (elected()) refill<kTogether>(s, s.slot, slot_bytes, warps);
  if constexpr (kTogether > 1) ++s.read;
  if (++s.slot == slots) {
    s.slot = 0;
    s.parity ^= 1u;
  }
}

// Waits for the copies that are under way though their tiles are not wanted, before the block gives
// its shared memory back.
LATHE_DEVICE void close_stream(WeightStream& s, int slots) {
  if (!elected()) return;
  LATHE_UNROLL(1)
  for (int i = s.steps->owed; i < slots; ++i) {
    copy_barrier_wait(s.barriers + s.slot, s.parity);
    if (++s.slot == slots) {
      s.slot = 0;
      s.parity ^= 1u;
    }
  }
}

}  // namespace lathe::dev
