// Owns where a lane of ops/attend.h finds its rows of a tile, row `row` of each pass, in a cache
// that lies in pages. Of one that does not, all of this is nothing.
#pragma once

#include "ops/kv_pages.h"

namespace lathe::dev {

// `whole`: each tile is in one page. Positions from `least` to `last` are looked at.
template <bool kPaged, int kPasses>
struct TilePages {
  const i32* pages;
  int least, last, whole;
  int entries;      // of the tile that comes next
  int at[kPasses];  // rows of the cache, of the tile that is being loaded
};
template <int kPasses>
struct TilePages<false, kPasses> {};

// The next tile's entries are asked for a tile before its rows, so that no row waits for them.
template <int kPasses>
LATHE_DEVICE void look_up_tile(TilePages<true, kPasses>& p, int tile) {
  if (p.whole)
    p.entries = p.pages[min_int(tile, p.last) / kPagePositions];
  else
    p.entries = page_entries(p.pages, tile, p.least, p.last);
}
template <int kPasses>
LATHE_DEVICE void look_up_tile(TilePages<false, kPasses>&, int) {}

template <int kPasses>
LATHE_DEVICE void place_tile(TilePages<true, kPasses>& p, int row, int tile, int rows) {
  LATHE_UNROLL(8)
  for (int u = 0; u < kPasses; ++u) {
    const int position = min_int(tile + u * rows + row, p.last);
    p.at[u] =
        p.whole ? row_of_page(p.entries, position) : row_of_entries(p.entries, tile, position);
  }
}
template <int kPasses>
LATHE_DEVICE void place_tile(TilePages<false, kPasses>&, int, int, int) {}

// The row of the cache that a lane takes in a pass, for this position.
template <int kPasses>
LATHE_DEVICE int row_of_pass(const TilePages<true, kPasses>& p, int pass, int) {
  return p.at[pass];
}
template <int kPasses>
LATHE_DEVICE int row_of_pass(const TilePages<false, kPasses>&, int, int position) {
  return position;
}

}  // namespace lathe::dev
