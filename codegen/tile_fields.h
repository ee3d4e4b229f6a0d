// Owns the order of bits in a tile, as a list that both directions of the conversion walk.
#pragma once

#include <cstdint>
#include <vector>

#include "lathe/codegen/tile.h"

namespace lathe {

// The constants of a format's tiles; all zero where it has none. See ops/tile_shapes.h.
struct TileLayout {
  int most_subs = 0;
  int code_bits = 0;
  int scale_bytes = 0;
};
TileLayout tile_layout(Format format);

// A few bits of one byte of a row's blocks, and where they lie in the tile.
struct TileField {
  std::int32_t row;         // of the tile, 0 ... 15
  std::int32_t column;      // the first value it belongs to, from the tile's first
  std::int32_t block_byte;  // from where the tile's part of the row begins
  std::int32_t tile_byte;
  std::uint8_t block_shift;
  std::uint8_t tile_shift;
  std::uint8_t bits;  // 1 ... 8
};

// Every field of a tile of this format with so many sub-blocks.
std::vector<TileField> tile_fields(Format format, int subs);

}  // namespace lathe
