// Owns the embed row: y[k] = scale * table[token], for one token or those of a chunk. Device code:
// ptx_templates/ops/embed.h for a table of blocks, ops/embed_tiles.h for one in tiles.
#include "codegen/kernels/rows.h"
#include "lathe/codegen/tile.h"

namespace lathe {
namespace {

bool in_blocks(const KernelKey& key) {
  return row(key.format).block > 1;
}

bool in_tiles(const KernelKey& key) {
  return key.layout == Layout::tiles;
}

Result<void> check(const KernelKey& key) {
  LATHE_TRY(whole_blocks(key));
  LATHE_TRY(in_range("n", key.n, 1, 1 << 30));
  LATHE_TRY(has_tokens(key));
  if (in_tiles(key)) LATHE_TRY(has_tiles(key));
  LATHE_TRY(in_range("warps", key.warps, 1, 32));
  return {};
}

Geometry geometry(const KernelKey& key) {
  const int values_per_thread = !in_blocks(key) ? 1 : in_tiles(key) ? 4 : 32;
  Geometry geometry = per_element(key.k / values_per_thread, key.warps);
  geometry.grid_y = static_cast<unsigned>(key.tokens);
  return geometry;
}

std::vector<Param> params(const KernelKey& key) {
  const Matrix matrix = {key.format, key.n, key.k};
  return {in_tiles(key) ? tiles_param("table", matrix, Access::read) : blocks_in("table", key),
          {"token", Access::read, Element::i32, key.tokens * 4ll, 4, false, false},
          vector_out("y", std::int64_t{key.tokens} * key.k)};
}

OpCall call(const KernelKey& key) {
  OpCall call{in_tiles(key) ? "ops/embed_tiles.h" : "ops/embed.h",
              fmt::format("embed_{}{}", in_tiles(key) ? "tiles_" : "", row(key.format).name),
              parameters(3)};
  call.arguments.push_back(integer(key.k));
  call.arguments.push_back(integer(key.n));
  if (in_tiles(key)) {
    const Result<TileShape> shape = tile_shape(key.format, key.n, key.k);
    call.arguments.push_back(integer(shape ? shape->subs : 0));
  }
  call.arguments.push_back(integer(key.warps));
  call.arguments.push_back(real(key.scale));
  return call;
}

Cost cost(const KernelKey& key) {
  // The tokens may all be the same.
  const std::int64_t values = std::int64_t{key.tokens} * key.k;
  return {row_bytes(key.format, key.k) + key.tokens * 4ll, values * 4, values * 2};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int) {
  if (part != 0) return;
  const auto* table = static_cast<const std::byte*>(arguments[0]);
  const auto* tokens = static_cast<const std::int32_t*>(arguments[1]);
  auto* y = static_cast<float*>(arguments[2]);
  for (int m = 0; m < key.tokens; ++m, y += key.k) {
    const std::int64_t id = tokens[m] >= 0 && tokens[m] < key.n ? tokens[m] : 0;
    row(key.format).unpack(table + id * row_bytes(key.format, key.k), key.k, y);
    for (int i = 0; i < key.k; ++i)
      y[i] = static_cast<float>(static_cast<double>(key.scale) * static_cast<double>(y[i]));
  }
}

const char* text_template(const KernelKey& key) {
  const bool covered =
      key.format == Format::q4_k || key.format == Format::q6_k || key.format == Format::q8_0;
  return covered && !in_tiles(key) ? "embed" : nullptr;
}

}  // namespace

const KernelRow kEmbedRow = {
    KernelType::embed,
    "embed",
    "one row of the embedding matrix, by token id",
    "k n tokens warps early scale layout",
    kAnyFormat,
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    0,
    "a scale times an integer is exact in f32, so every value has the definition's two roundings",
    text_template};

}  // namespace lathe
