// Owns the dequantize row: n rows of k weights in any format as f32 or f16. Device code:
// ptx_templates/ops/dequantize.h for blocks, ops/dequantize_tiles.h for tiles.
#include "codegen/kernels/rows.h"
#include "lathe/codegen/tile.h"

namespace lathe {
namespace {

bool in_tiles(const KernelKey& key) {
  return key.layout == Layout::tiles;
}

std::int64_t thread_blocks(const KernelKey& key) {
  const std::int64_t threads = key.warps * 32;
  const bool in_blocks = row(key.format).block > 1;
  if (in_tiles(key)) {
    const int values = in_blocks ? 4 : 1;
    return std::int64_t{key.n} * ((key.k / values + threads - 1) / threads);
  }
  return (std::int64_t{key.n} * (key.k / (in_blocks ? 32 : 1)) + threads - 1) / threads;
}

Result<void> check(const KernelKey& key) {
  LATHE_TRY(whole_blocks(key));
  LATHE_TRY(in_range("n", key.n, 1, 1 << 30));
  LATHE_TRY(in_range("warps", key.warps, 1, 32));
  if (in_tiles(key)) LATHE_TRY(has_tiles(key));
  if (key.format_b != Format::f32 && key.format_b != Format::f16)
    return invalid("format_b is {}; the result must be f32 or f16", row(key.format_b).name);
  if (thread_blocks(key) >= std::int64_t{1} << 31)
    return invalid("n = {} by k = {} with {} warps are more blocks than a launch can have", key.n,
                   key.k, key.warps);
  return {};
}

Geometry geometry(const KernelKey& key) {
  return {.grid_x = static_cast<unsigned>(thread_blocks(key)),
          .threads = static_cast<unsigned>(key.warps * 32)};
}

std::vector<Param> params(const KernelKey& key) {
  const Matrix matrix = {key.format, key.n, key.k}, numbers = {key.format_b, key.n, key.k};
  return {in_tiles(key) ? tiles_param("tiles", matrix, Access::read)
                        : blocks_param("blocks", matrix, Access::read),
          key.format_b == Format::f32 ? vector_out("y", std::int64_t{key.n} * key.k)
                                      : blocks_param("y", numbers, Access::write)};
}

OpCall call(const KernelKey& key) {
  OpCall call{in_tiles(key) ? "ops/dequantize_tiles.h" : "ops/dequantize.h",
              fmt::format("dequantize_{}{}", in_tiles(key) ? "tiles_" : "", row(key.format).name),
              parameters(2)};
  const Result<TileShape> shape = tile_shape(key.format, key.n, key.k);
  call.arguments.push_back(integer(key.k));
  call.arguments.push_back(integer(!in_tiles(key) ? key.n : shape ? shape->subs : 0));
  call.arguments.push_back(integer(key.warps));
  call.arguments.push_back(integer(key.format_b == Format::f16 ? 1 : 0));
  return call;
}

Cost cost(const KernelKey& key) {
  const std::int64_t values = std::int64_t{key.n} * key.k;
  return {key.n * row_bytes(key.format, key.k), values * row(key.format_b).bytes, values * 2};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto* blocks = static_cast<const std::byte*>(arguments[0]);
  auto* y = static_cast<std::byte*>(arguments[1]);
  std::vector<float> values(static_cast<std::size_t>(key.k));
  const auto [first, last] = share(key.n, part, parts);
  for (std::int64_t r = first; r < last; ++r) {
    row(key.format).unpack(blocks + r * row_bytes(key.format, key.k), key.k, values.data());
    row(key.format_b).pack(values.data(), key.k, y + r * row_bytes(key.format_b, key.k));
  }
}

}  // namespace

const KernelRow kDequantizeRow = {KernelType::dequantize,
                                  "dequantize",
                                  "n rows of k weights as f32 or f16",
                                  "k n format_b warps layout",
                                  kAnyFormat,
                                  check,
                                  geometry,
                                  params,
                                  call,
                                  cost,
                                  oracle,
                                  0,
                                  "every value has the definition's roundings, as embed's has",
                                  no_template};

}  // namespace lathe
