// Owns a second opinion on the order of bits in a tile: it reads a tile as a warp does, lane by
// lane, straight from docs/weight-layout.md, and shares nothing with the library's conversion.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lathe/codegen/format.h"

namespace lathe::testing {

// The 16 rows of 32 * subs values of one tile, row after row.
std::vector<float> read_tile(Format format, int subs, std::span<const std::byte> tile);

}  // namespace lathe::testing
