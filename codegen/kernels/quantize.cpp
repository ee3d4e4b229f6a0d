// Owns the quantize row: n vectors of k values as blocks of q8_0, q8_1, q8_1_tail or q8_k. Device
// code: ptx_templates/ops/quantize.h.
#include "codegen/kernels/rows.h"

namespace lathe {
namespace {

std::int64_t block_count(const KernelKey& key) {
  return std::int64_t{key.n} * (key.k / row(key.format).block);
}

Result<void> check(const KernelKey& key) {
  LATHE_TRY(whole_blocks(key));
  LATHE_TRY(in_range("n", key.n, 1, 1 << 30));
  LATHE_TRY(in_range("warps", key.warps, 1, 32));
  if (block_count(key) >= std::int64_t{1} << 31)
    return invalid("n = {} by k = {} are more blocks than a launch can have", key.n, key.k);
  return {};
}

Geometry geometry(const KernelKey& key) {
  return {.grid_x = static_cast<unsigned>((block_count(key) + key.warps - 1) / key.warps),
          .threads = static_cast<unsigned>(key.warps * 32)};
}

std::vector<Param> params(const KernelKey& key) {
  return {vector_in("x", std::int64_t{key.n} * key.k),
          blocks_param("blocks", {key.format, key.n, key.k}, Access::write)};
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/quantize.h", fmt::format("quantize_{}", row(key.format).name), parameters(2)};
  for (int value : {key.k, key.n, key.warps}) call.arguments.push_back(integer(value));
  return call;
}

Cost cost(const KernelKey& key) {
  const std::int64_t values = std::int64_t{key.n} * key.k;
  return {values * 4, key.n * row_bytes(key.format, key.k), values * 4};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto* x = static_cast<const float*>(arguments[0]);
  auto* blocks = static_cast<std::byte*>(arguments[1]);
  const auto [first, last] = share(key.n, part, parts);
  row(key.format)
      .pack(x + first * key.k, (last - first) * key.k,
            blocks + first * row_bytes(key.format, key.k));
}

}  // namespace

const KernelRow kQuantizeRow = {
    KernelType::quantize,
    "quantize",
    "n vectors of k values as blocks of signed bytes",
    "k n warps",
    "q8_0 q8_1 q8_1_tail q8_k",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    0,
    "the definition's operations, each correctly rounded, and sums in its order",
    no_template};

}  // namespace lathe
