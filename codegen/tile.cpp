// Owns the host's tiles: their number and size, and the conversions by the list of fields.
#include "lathe/codegen/tile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "codegen/tile_fields.h"
#include "ptx_templates/ops/tile_shapes.h"

namespace lathe {
namespace {

// Where a tile's part of a row begins in the row's blocks.
std::int64_t block_offset(const TileShape& shape, int k_tile) {
  return row_bytes(shape.format, static_cast<std::int64_t>(k_tile) * shape.subs * dev::kTileSub);
}

std::int64_t tile_offset(const TileShape& shape, int row_tile, int k_tile) {
  return (static_cast<std::int64_t>(row_tile) * shape.tiles_per_row + k_tile) * shape.tile_bytes;
}

// Values of a row from the tile's first on: fields beyond them are padding.
int columns(const TileShape& shape, int k_tile) {
  return shape.k - k_tile * shape.subs * dev::kTileSub;
}

void move_bits(std::byte from, int from_shift, std::byte& to, int to_shift, int bits) {
  const std::byte mask{static_cast<unsigned char>((1 << bits) - 1)};
  to |= (from >> from_shift & mask) << to_shift;
}

}  // namespace

Result<TileShape> tile_shape(Format format, int n, int k) {
  const TileLayout layout = tile_layout(format);
  const FormatRow& blocks = row(format);
  const auto refuse = [](Code code, std::string why) { return Error{code, std::move(why), {}}; };
  if (layout.most_subs == 0)
    return refuse(Code::unsupported, fmt::format("{} weights have no tiled layout", blocks.name));
  if (n < 1 || k < 1)
    return refuse(Code::invalid_argument,
                  fmt::format("a matrix of n = {} rows of k = {} values has no tiles", n, k));
  if (k % blocks.block != 0)
    return refuse(Code::invalid_argument,
                  fmt::format("k is {}; {} stores values in blocks of {}, and k must be a multiple "
                              "of that",
                              k, blocks.name, blocks.block));
  TileShape shape{.format = format, .n = n, .k = k};
  shape.subs = dev::tile_subs(k, layout.most_subs);
  shape.tiles_per_row = dev::tiles_per_row(k, layout.most_subs);
  shape.row_tiles = dev::tile_row_tiles(n);
  shape.tile_bytes = dev::tile_bytes(layout.code_bits, layout.scale_bytes, shape.subs);
  if (static_cast<std::int64_t>(shape.row_tiles) * shape.tiles_per_row > 1 << 30)
    return refuse(Code::unsupported,
                  fmt::format("n = {} by k = {} is more tiles than a launch can number", n, k));
  return shape;
}

void blocks_to_tiles(const TileShape& shape, const std::byte* blocks, std::byte* tiles, int first,
                     int last) {
  const std::vector<TileField> fields = tile_fields(shape.format, shape.subs);
  const std::int64_t stride = row_bytes(shape.format, shape.k);
  for (int row_tile = first; row_tile < last; ++row_tile) {
    const int row = row_tile * dev::kTileRows;
    const int rows = std::min<int>(dev::kTileRows, shape.n - row);
    for (int k_tile = 0; k_tile < shape.tiles_per_row; ++k_tile) {
      const std::byte* from = blocks + row * stride + block_offset(shape, k_tile);
      std::byte* to = tiles + tile_offset(shape, row_tile, k_tile);
      std::memset(to, 0, static_cast<std::size_t>(shape.tile_bytes));
      for (const TileField& f : fields)
        if (f.row < rows && f.column < columns(shape, k_tile))
          move_bits(from[f.row * stride + f.block_byte], f.block_shift, to[f.tile_byte],
                    f.tile_shift, f.bits);
    }
  }
}

void blocks_to_tiles(const TileShape& shape, const std::byte* blocks, std::byte* tiles) {
  blocks_to_tiles(shape, blocks, tiles, 0, shape.row_tiles);
}

void tiles_to_blocks(const TileShape& shape, const std::byte* tiles, int row, std::byte* blocks) {
  const std::vector<TileField> fields = tile_fields(shape.format, shape.subs);
  std::memset(blocks, 0, static_cast<std::size_t>(row_bytes(shape.format, shape.k)));
  for (int k_tile = 0; k_tile < shape.tiles_per_row; ++k_tile) {
    const std::byte* from = tiles + tile_offset(shape, row / dev::kTileRows, k_tile);
    std::byte* to = blocks + block_offset(shape, k_tile);
    for (const TileField& f : fields)
      if (f.row == row % dev::kTileRows && f.column < columns(shape, k_tile))
        move_bits(from[f.tile_byte], f.tile_shift, to[f.block_byte], f.block_shift, f.bits);
  }
}

void unpack_tiles(const TileShape& shape, const std::byte* tiles, int row, float* values) {
  std::vector<std::byte> blocks(static_cast<std::size_t>(row_bytes(shape.format, shape.k)));
  tiles_to_blocks(shape, tiles, row, blocks.data());
  lathe::row(shape.format).unpack(blocks.data(), shape.k, values);
}

}  // namespace lathe
