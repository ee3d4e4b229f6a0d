// Owns the embed row: y[k] = scale * table[token]. Device code: ptx_templates/ops/embed.h.
#include "codegen/kernels/rows.h"

namespace lathe {
namespace {

bool in_blocks(const KernelKey& key) {
  return row(key.format).block > 1;
}

Result<void> check(const KernelKey& key) {
  LATHE_TRY(whole_blocks(key));
  LATHE_TRY(in_range("n", key.n, 1, 1 << 30));
  LATHE_TRY(in_range("warps", key.warps, 1, 32));
  if (!std::isfinite(key.scale)) return invalid("scale is not finite");
  return {};
}

Geometry geometry(const KernelKey& key) {
  return per_element(in_blocks(key) ? key.k / 32 : key.k, key.warps);
}

std::vector<Param> params(const KernelKey& key) {
  return {blocks_in("table", key),
          {"token", Access::read, Element::i32, 4, 4, false, false},
          vector_out("y", key.k)};
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/embed.h", fmt::format("embed_{}", row(key.format).name), parameters(3)};
  for (int value : {key.k, key.n, key.warps}) call.arguments.push_back(integer(value));
  call.arguments.push_back(real(key.scale));
  return call;
}

Cost cost(const KernelKey& key) {
  return {row_bytes(key.format, key.k) + 4, key.k * 4ll, key.k * 2ll};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int) {
  if (part != 0) return;
  const auto* table = static_cast<const std::byte*>(arguments[0]);
  const std::int32_t token = *static_cast<const std::int32_t*>(arguments[1]);
  auto* y = static_cast<float*>(arguments[2]);
  const std::int64_t id = token >= 0 && token < key.n ? token : 0;
  row(key.format).unpack(table + id * row_bytes(key.format, key.k), key.k, y);
  for (int i = 0; i < key.k; ++i)
    y[i] = static_cast<float>(static_cast<double>(key.scale) * static_cast<double>(y[i]));
}

}  // namespace

const KernelRow kEmbedRow = {
    KernelType::embed,
    "embed",
    "one row of the embedding matrix, by token id",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    0,
    "a scale times an integer is exact in f32, so every value has the definition's two roundings",
    no_template};

}  // namespace lathe
