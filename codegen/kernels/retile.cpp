// Owns the retile row: weights from the blocks of the file to tiles. Device code:
// ptx_templates/ops/retile.h.
#include "codegen/kernels/rows.h"
#include "lathe/codegen/tile.h"

namespace lathe {
namespace {

// Of a key that passed check().
TileShape shape_of(const KernelKey& key) {
  const Result<TileShape> shape = tile_shape(key.format, key.n, key.k);
  return shape ? *shape : TileShape{};
}

Result<void> check(const KernelKey& key) {
  LATHE_TRY(has_tiles(key));
  return in_range("warps", key.warps, 1, 32);
}

Geometry geometry(const KernelKey& key) {
  return {.grid_x = static_cast<unsigned>(ceil_div(shape_of(key).tiles(), key.warps)),
          .threads = static_cast<unsigned>(key.warps * 32)};
}

std::vector<Param> params(const KernelKey& key) {
  return {blocks_in("blocks", key),
          tiles_param("tiles", {key.format, key.n, key.k}, Access::write)};
}

OpCall call(const KernelKey& key) {
  const bool half = key.format == Format::f16 || key.format == Format::bf16;
  OpCall call{"ops/retile.h", fmt::format("retile_{}", half ? "half" : row(key.format).name),
              parameters(2)};
  for (int value : {key.k, key.n, shape_of(key).subs, key.warps})
    call.arguments.push_back(integer(value));
  return call;
}

Cost cost(const KernelKey& key) {
  const std::int64_t written = shape_of(key).bytes();
  return {key.n * row_bytes(key.format, key.k), written, written / 4};  // a word at a time
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const TileShape shape = shape_of(key);
  const auto [first, last] = share(shape.row_tiles, part, parts);
  blocks_to_tiles(shape, static_cast<const std::byte*>(arguments[0]),
                  static_cast<std::byte*>(arguments[1]), static_cast<int>(first),
                  static_cast<int>(last));
}

}  // namespace

const KernelRow kRetileRow = {KernelType::retile,
                              "retile",
                              "weights from the blocks of a model file to tiles",
                              "k n warps",
                              kAnyFormat,
                              check,
                              geometry,
                              params,
                              call,
                              cost,
                              oracle,
                              0,
                              "a permutation of bits",
                              no_template};

}  // namespace lathe
