// Owns where the positions of a sequence are in a KV cache that lies in pages of 16 positions: a
// table of the sequence has the number of the page for each 16 of them, and page p is rows 16 p and
// on of the cache.
//
// A warp reads an entry for all its rows of a page, or the entries of a tile at once, a lane each.
//
// attention, kv_append, append_tokens, attend_tokens and attend_rows are there twice, by kPaged:
// NAME, whose `pages` is null, and NAME_paged.
#pragma once

#include "isa/isa.h"
#include "ops/launch_shapes.h"

namespace lathe::dev {

LATHE_DEVICE int row_of_page(int page, int position) {
  return page * kPagePositions + (position & (kPagePositions - 1));
}

// The row of one position.
LATHE_DEVICE int paged_row(const i32* pages, int position) {
  return row_of_page(pages[position / kPagePositions], position);
}

// The entries of the positions from `first` on, 16 to a lane; in place of those before `least` and
// after `last`, which nobody looks at, entries of these.
LATHE_DEVICE int page_entries(const i32* pages, int first, int least, int last) {
  const int at = max_int(first / kPagePositions + lane_index(), least / kPagePositions);
  return pages[min_int(at, last / kPagePositions)];
}

// The row of a position of theirs. All lanes call.
LATHE_DEVICE int row_of_entries(int entries, int first, int position) {
  const int lane = position / kPagePositions - first / kPagePositions;
  return row_of_page(static_cast<int>(shuffle(static_cast<u32>(entries), lane)), position);
}

}  // namespace lathe::dev
