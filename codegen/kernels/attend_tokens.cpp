// Owns the attend_tokens row: causal attention of a chunk's tokens. Device code:
// ptx_templates/ops/attend_tokens.h.
#include "codegen/kernels/cached_rows.h"
#include "codegen/kernels/rows.h"
#include "ptx_templates/ops/matmul_shapes.h"

namespace lathe {
namespace {

constexpr int kWarps = 8;

Result<void> check(const KernelKey& key) {
  LATHE_TRY(has_tokens(key));
  LATHE_TRY(check_heads(key, 16));
  LATHE_TRY(in_range("window", key.window, 0, 1 << 30));
  if (key.warps != kWarps) return invalid("warps is {}; it must be {}", key.warps, kWarps);
  return {};
}

Geometry geometry(const KernelKey& key) {
  return {.grid_x = static_cast<unsigned>(key.heads),
          .grid_y = static_cast<unsigned>(ceil_div(key.tokens, int{dev::kAttendTokens})),
          .threads = kWarps * 32,
          .shared_bytes = static_cast<unsigned>(dev::attend_tokens_bytes(key.head_dim))};
}

std::vector<Param> params(const KernelKey& key) {
  const std::int64_t queries = std::int64_t{key.tokens} * key.heads * key.head_dim;
  std::vector<Param> out = {{"queries", Access::read, Element::f16, queries * 2, 16}, chunk_in()};
  add_caches(key, Access::read, out);
  out.push_back(operands_out("y", false, key.tokens, key.heads * key.head_dim));
  return out;
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/attend_tokens.h", cache_op("attend_tokens", key),
              parameters_of({true, true, key.paged, true, true, true})};
  for (int value : {key.heads, key.kv_heads, key.head_dim, key.window, key.tokens})
    call.arguments.push_back(integer(value));
  return call;
}

// Per cached position, as for attention.
Cost cost(const KernelKey& key) {
  const std::int64_t values = std::int64_t{key.heads} * key.head_dim;
  return {2 * kv_position_bytes(key.format, std::int64_t{key.kv_heads} * key.head_dim),
          key.tokens * values * 2, 4ll * key.tokens * values};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto* queries = static_cast<const std::uint16_t*>(arguments[0]);
  const auto* chunk = static_cast<const std::int32_t*>(arguments[1]);
  std::size_t i = 2;
  const Caches caches = from_row(key, take_caches(key, arguments, i), chunk[2]);
  const int all = key.heads * key.head_dim;
  const OperandRows y = {static_cast<std::uint16_t*>(arguments[i]), dev::operand_width(all), 0};
  const auto [first, last] = share(std::min(chunk[0], key.tokens), part, parts);
  for (std::int64_t token = first; token < last; ++token)
    attend_token(key, chunk[1] + static_cast<int>(token), queries + token * all, caches, y,
                 static_cast<int>(token));
}

}  // namespace

const KernelRow kAttendTokensRow = {
    KernelType::attend_tokens,
    "attend_tokens",
    "causal attention of a chunk's tokens, as operands of matmul",
    "tokens heads kv_heads head_dim window warps paged",
    "f32 f16 q8_0",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    2e-3,
    "weights, keys, values and results are rounded to f16: with scores to 50, keys in f32 alone "
    "move a weight by 50 half steps of 2^-11 over the root of head_dim",
    no_template,
    80,
    "asynchronous copies",
    [](const KernelKey&) { return "mma ex2"; }};

}  // namespace lathe
