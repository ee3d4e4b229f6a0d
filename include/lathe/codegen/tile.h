// Owns the tiled weight layout on the host: how large a matrix is in tiles, and the exact way from
// the blocks of a model file to tiles and back.
//
// Tiles hold the bits of the blocks in another order, which suits a warp's reads: nothing is
// rounded, and no bit is lost. docs/weight-layout.md states the order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lathe/codegen/format.h"
#include "lathe/codegen/result.h"

namespace lathe {

// A matrix of n rows of k values, cut in tiles of 16 rows by 32 * subs values.
struct TileShape {
  Format format = Format::q4_k;
  int n = 0;
  int k = 0;
  int subs = 0;           // sub-blocks of 32 values per tile: 8, 6, 4 or 2
  int tiles_per_row = 0;  // tiles side by side along k
  int row_tiles = 0;      // tiles on top of each other along n
  int tile_bytes = 0;     // a multiple of 16

  int tiles() const { return row_tiles * tiles_per_row; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(tiles()) * tile_bytes; }
};

// Or why there are no such tiles: the format has none (f32), or the shape is not one of blocks.
Result<TileShape> tile_shape(Format format, int n, int k);

// Writes the tiles of row tiles [first, last). `blocks` is the whole matrix as the file stores it,
// `tiles` the whole of it in tiles; padding becomes zero bits.
void blocks_to_tiles(const TileShape& shape, const std::byte* blocks, std::byte* tiles, int first,
                     int last);
// All of it.
void blocks_to_tiles(const TileShape& shape, const std::byte* blocks, std::byte* tiles);

// The blocks of one row, bit for bit as the file had them.
void tiles_to_blocks(const TileShape& shape, const std::byte* tiles, int row, std::byte* blocks);

// One row as k f32 values, exactly as the format defines them.
void unpack_tiles(const TileShape& shape, const std::byte* tiles, int row, float* values);

}  // namespace lathe
